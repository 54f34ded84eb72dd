package guest

import (
	"strings"
	"time"
)

// A Request is the request to decide on. It is valid until the function returns.
type Request struct{}

// A Lock receives the decision: at least one key, unless Skip or Deny is called. Values that are
// not set are those of the host's Config.
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

// A Level is the severity of a log line.
type Level int32

// The levels, with their numbers in the ABI.
const (
	LevelDebug Level = -1
	LevelInfo  Level = 0
	LevelWarn  Level = 1
	LevelError Level = 2
)

var decide func(Request, Lock)

// Handle sets the function that decides. Call it once, in an init function, because main does not
// run.
func Handle(f func(r Request, lock Lock)) {
	if decide != nil || f == nil {
		panic("reqlock: guest: call Handle once, with a function")
	}
	decide = f
}

// Settings returns the host's Config.Settings. It also works in an init function.
func Settings() []byte { return []byte(fetch(getConfig)) }

// Log writes a line to the host's log. The host truncates long lines and drops lines above its rate
// limit.
func Log(level Level, text string) { hostLog(int32(level), text) }

// Method returns the request's method, such as "GET".
func (Request) Method() string { return fetch(getMethod) }

// URI returns the path, encoded as it was sent, and the query.
func (Request) URI() string { return fetch(getURI) }

// Path returns the path of the URI, still encoded. Decode it before using it in a key: a router
// treats /acme and /%61cme as the same.
func (r Request) Path() string {
	path, _, _ := strings.Cut(r.URI(), "?")
	return path
}

// Protocol returns the request's HTTP version, such as "HTTP/1.1".
func (Request) Protocol() string { return fetch(getProtocolVersion) }

// SourceAddr returns the address and port of the host's connection to the client.
func (Request) SourceAddr() string { return fetch(getSourceAddr) }

// Header returns the first value of a header, or "" if there is none. The name may be in any case.
// "host" is a header here.
func (r Request) Header(name string) string {
	if values := r.HeaderValues(name); len(values) > 0 {
		return values[0]
	}
	return ""
}

// HeaderValues returns all values of a header, one for each time it was sent.
func (Request) HeaderValues(name string) []string {
	return fetchList(func(buf []byte) uint64 { return getHeaderValues(name, buf) })
}

// HeaderNames returns the names of all headers in lower case.
func (Request) HeaderNames() []string { return fetchList(getHeaderNames) }

// Body returns the unread rest of the request's body. A plugin that calls it makes the host read
// the body of every request, and answer 413 if a body is larger than Config.MaxBody.
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

// AddKey adds a key of 1 to 4096 bytes of valid UTF-8. A request with several keys gets all of
// their locks or none.
func (Lock) AddKey(key string) { addKey(key) }

// SetWait sets how long the request waits for a held lock, up to the host's Config.MaxWait. 0 means
// 409 at once.
func (Lock) SetWait(d time.Duration) { setWaitMS(milliseconds(d)) }

// SetLease sets how long the lock is held at most, up to the host's Config.MaxLease. 0 means until
// the handler returns.
func (Lock) SetLease(d time.Duration) { setLeaseMS(milliseconds(d)) }

// SetMode sets the kind of lock.
func (Lock) SetMode(mode Mode) { setMode(int32(mode)) }

// Skip lets the handler run without a lock.
func (Lock) Skip() { skip() }

// Deny answers the client with a status from 400 to 599 and up to 256 bytes of text. The handler
// does not run.
func (Lock) Deny(status int, text string) { deny(int32(status), text) }

// milliseconds rounds up, because 0 has another meaning.
func milliseconds(d time.Duration) int64 {
	ms := d.Milliseconds()
	if d > time.Duration(ms)*time.Millisecond {
		ms++
	}
	return ms
}

// buffer has room for most values.
var buffer [2048]byte

// fetch repeats the call with a larger buffer if the value does not fit.
func fetch(get func(buf []byte) uint32) string {
	buf := buffer[:]
	n := get(buf)
	if int(n) > len(buf) {
		buf = make([]byte, n)
		n = get(buf)
	}
	return string(buf[:n])
}

// fetchList is fetch for count<<32|length and values that end with NUL.
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
