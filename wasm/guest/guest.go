package guest

import "strings"

// A Request is the request to decide on. It is valid until the function returns; what its methods
// return stays valid.
type Request struct{}

// A Part is a part of each request: a header, by its name in any case, or one of the constants. The
// host hands over the parts that Handle names with the request. Other parts can be read too, but
// each costs a call of the host.
type Part string

// The parts beside headers.
const (
	PartMethod     Part = ":method"
	PartURI        Part = ":uri"
	PartSourceAddr Part = ":source"
	PartProtocol   Part = ":protocol"
	PartHost       Part = ":host"
	PartBody       Part = ":body" // makes the host read the body of every request
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

// Handle sets the function that decides, and the parts of each request that it reads. Call it once,
// in an init function, because main does not run.
func Handle(f func(r Request, lock Lock), parts ...Part) {
	if decide != nil || f == nil {
		panic("reqlock: guest: call Handle once, with a function")
	}
	decide = f
	declare(parts)
}

// Settings returns the host's Config.Settings. It also works in an init function.
func Settings() []byte { return []byte(fetch(getConfig)) }

// Log writes a line to the host's log. The host truncates long lines and drops lines above its rate
// limit.
func Log(level Level, text string) { hostLog(int32(level), text) }

// Method returns the request's method, such as "GET".
func (Request) Method() string { return part(fieldMethod, getMethod) }

// URI returns the path, encoded as it was sent, and the query.
func (Request) URI() string { return part(fieldURI, getURI) }

// Path returns the path of the URI, still encoded. Decode it before using it in a key: a router
// treats /acme and /%61cme as the same.
func (r Request) Path() string {
	path, _, _ := strings.Cut(r.URI(), "?")
	return path
}

// Protocol returns the request's HTTP version, such as "HTTP/1.1".
func (Request) Protocol() string { return part(fieldProtocol, getProtocolVersion) }

// SourceAddr returns the address and port of the host's connection to the client.
func (Request) SourceAddr() string { return part(fieldSource, getSourceAddr) }

// Host returns the host that the client asked for, with its port if it has one.
func (r Request) Host() string {
	if text, ok := field(fieldHost); ok {
		return text
	}
	return r.Header("host")
}

// Header returns the first value of a header, or "" if there is none. The name may be in any case.
// "host" is a header here.
func (r Request) Header(name string) string {
	if all, count, ok := header(name); ok {
		if count > 1 {
			all, _, _ = strings.Cut(all, "\x00")
		}
		return all
	}
	if values := r.HeaderValues(name); len(values) > 0 {
		return values[0]
	}
	return ""
}

// HeaderValues returns all values of a header, one for each time it was sent.
func (Request) HeaderValues(name string) []string {
	switch all, count, ok := header(name); {
	case ok && count == 0:
		return nil
	case ok && count == 1:
		return []string{all}
	case ok:
		return strings.Split(all, "\x00")
	}
	return fetchList(func(buf []byte) uint64 { return getHeaderValues(name, buf) })
}

// HeaderNames returns the names of all headers in lower case.
func (Request) HeaderNames() []string { return fetchList(getHeaderNames) }

// Body returns the request's body. A plugin that calls it makes the host read the body of every
// request. If the body is larger than Config.MaxBody or cannot be read, Body ends the call, and the
// host answers the client.
func (Request) Body() []byte {
	if text, ok := field(fieldBody); ok {
		return []byte(text)
	}
	if bodyMissing() {
		lock.needsBody = true
		panic(endOfCall{})
	}
	body := []byte{}
	for buf := make([]byte, 4096); ; {
		result := readBody(buf)
		body = append(body, buf[:uint32(result)]...)
		if result>>32 != 0 {
			return body
		}
	}
}

// An endOfCall is the panic that ends a call before the function returns.
type endOfCall struct{}

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
