package guest

import (
	"strings"
	"time"
)

// A Request is the one that is to be decided on. It is good until the function returns.
type Request struct{}

// A Lock takes what is decided: at least one key, unless Skip or Deny is called. What is not set is as in the host's Config.
type Lock struct{}

// A Mode is a kind of lock.
type Mode int32

// The modes, with their numbers in the ABI.
const (
	ModeExclusive Mode = 0 // one request at a time
	ModeFair      Mode = 1 // the same, first come, first served
	ModeFenced    Mode = 2 // ModeExclusive with a fencing token
	ModeRead      Mode = 3 // shared with other readers
	ModeWrite     Mode = 4 // excludes readers and writers
	ModeReadWrite Mode = 5 // ModeRead for GET and HEAD, ModeWrite for the rest
)

// A Level says how much a line in the log matters.
type Level int32

// The levels, with their numbers in the ABI.
const (
	LevelDebug Level = -1
	LevelInfo  Level = 0
	LevelWarn  Level = 1
	LevelError Level = 2
)

var decide func(Request, Lock)

// Handle sets the function that decides, once. Call it from an init function: main does not run.
func Handle(f func(r Request, lock Lock)) {
	if decide != nil || f == nil {
		panic("reqlock: guest: Handle takes one function, once")
	}
	decide = f
}

// Settings is the host's Config.Settings. It is there from the start, also in an init function.
func Settings() []byte { return []byte(fetch(getConfig)) }

// Log writes a line to the host's log. Long ones are cut, and too many are dropped.
func Log(level Level, text string) { hostLog(int32(level), text) }

// Method is the request's, such as "GET".
func (Request) Method() string { return fetch(getMethod) }

// URI is the path, encoded as it came, and the query.
func (Request) URI() string { return fetch(getURI) }

// Path is the URI's, still encoded: /acme and /%61cme, which a router takes for the same, are two keys unless the plugin decodes them.
func (r Request) Path() string {
	path, _, _ := strings.Cut(r.URI(), "?")
	return path
}

// Protocol is the request's version of HTTP, such as "HTTP/1.1".
func (Request) Protocol() string { return fetch(getProtocolVersion) }

// SourceAddr is the client's address and port, as the host's connection has it.
func (Request) SourceAddr() string { return fetch(getSourceAddr) }

// Header is the first value of a header, in any case; empty: there is none. "host" is there as well.
func (r Request) Header(name string) string {
	if values := r.HeaderValues(name); len(values) > 0 {
		return values[0]
	}
	return ""
}

// HeaderValues are all the values of a header, one for each time it was sent.
func (Request) HeaderValues(name string) []string {
	return fetchList(func(buf []byte) uint64 { return getHeaderValues(name, buf) })
}

// HeaderNames are those of all headers, in lower case.
func (Request) HeaderNames() []string { return fetchList(getHeaderNames) }

// Body is what has not been read yet of the request's body. A plugin that calls it makes the host read the body of every request;
// one that is larger than Config.MaxBody is then answered 413.
func (Request) Body() []byte {
	body := []byte{}
	for buf := make([]byte, 4096); ; {
		result := readBody(buf)
		body = append(body, buf[:uint32(result)]...)
		if result>>32 != 0 {
			return body
		}
	}
}

// AddKey adds a key; a request with several gets all of their locks or none. A key has 1 to 4096 bytes of valid UTF-8.
func (Lock) AddKey(key string) { addKey(key) }

// SetWait sets how long the request waits for others; 0: 409 at once. The host's Config.MaxWait bounds it.
func (Lock) SetWait(d time.Duration) { setWaitMS(milliseconds(d)) }

// SetLease sets how long the lock is held at most; 0: for as long as the handler runs. The host's Config.MaxLease bounds it.
func (Lock) SetLease(d time.Duration) { setLeaseMS(milliseconds(d)) }

// SetMode sets the kind of lock.
func (Lock) SetMode(mode Mode) { setMode(int32(mode)) }

// Skip has the handler run without a lock.
func (Lock) Skip() { skip() }

// Deny has the client answered with a status from 400 to 599, and a text of which it sees 256 bytes at most. The handler does not run.
func (Lock) Deny(status int, text string) { deny(int32(status), text) }

// milliseconds rounds up: 0 has a meaning of its own.
func milliseconds(d time.Duration) int64 {
	ms := d.Milliseconds()
	if d > time.Duration(ms)*time.Millisecond {
		ms++
	}
	return ms
}

// buffer is what most answers fit into.
var buffer [2048]byte

// fetch asks again with more room if the answer does not fit.
func fetch(get func(buf []byte) uint32) string {
	buf := buffer[:]
	n := get(buf)
	if int(n) > len(buf) {
		buf = make([]byte, n)
		n = get(buf)
	}
	return string(buf[:n])
}

// fetchList is fetch for count<<32|length and values that end in NUL.
func fetchList(get func(buf []byte) uint64) []string {
	buf := buffer[:]
	result := get(buf)
	if n := uint32(result); int(n) > len(buf) {
		buf = make([]byte, n)
		result = get(buf)
	}
	list := make([]string, result>>32)
	rest := string(buf[:uint32(result)])
	for i := range list {
		list[i], rest, _ = strings.Cut(rest, "\x00")
	}
	return list
}
