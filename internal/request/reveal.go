package request

import (
	"bufio"
	"io"
	"net"
	"net/http"
)

// A HijackFunc is http.Hijacker's Hijack.
type HijackFunc = func() (net.Conn, *bufio.ReadWriter, error)

// Reveal returns a writer, for a recorder to wrap, with the optional interfaces of w that
// http.ResponseController cannot use past the recorder. It looks for the methods to flush and to
// hijack in a writer, and then in those that it unwraps to. If w has them itself, or nothing inside w
// has, that is w. Otherwise the writer has a FlushError, and hijack gets what hijacks the connection.
// It is an http.Flusher or an http.Hijacker only if w is: handlers that ask find what they would
// without a recorder.
func Reveal(w http.ResponseWriter, hijack func(HijackFunc) (net.Conn, *bufio.ReadWriter, error)) http.ResponseWriter {
	own, inside := abilitiesOf(w), abilitiesInside(w)
	if (own.flushes || !inside.flushes) && (own.hijacks || !inside.hijacks) {
		return w
	}
	base := shell{w, w}
	if !own.hijacks && inside.hijacks {
		base.next = passage{w, hijack}
	}
	return base.with(own.flushes || inside.flushes)
}

// abilities are what http.ResponseController finds in a writer.
type abilities struct{ flushes, hijacks bool }

func abilitiesOf(w http.ResponseWriter) (own abilities) {
	switch w.(type) {
	case interface{ FlushError() error }, http.Flusher:
		own.flushes = true
	}
	_, own.hijacks = w.(http.Hijacker)
	return own
}

// abilitiesInside returns those of all writers that w unwraps to.
func abilitiesInside(w http.ResponseWriter) (all abilities) {
	for {
		outer, ok := w.(interface{ Unwrap() http.ResponseWriter })
		if !ok {
			return all
		}
		w = outer.Unwrap()
		own := abilitiesOf(w)
		all.flushes, all.hijacks = all.flushes || own.flushes, all.hijacks || own.hijacks
	}
}

// A shell is a writer without optional interfaces, but with an Unwrap of its own.
type shell struct {
	http.ResponseWriter
	next http.ResponseWriter
}

func (s shell) Unwrap() http.ResponseWriter { return s.next }

// A flushing shell also has the FlushError of what is in it, or http.ResponseController's.
type flushing struct{ shell }

func (s flushing) FlushError() error { return http.NewResponseController(s.ResponseWriter).Flush() }

// A passage is where http.ResponseController finds the way to hijack what is inside a writer.
type passage struct {
	http.ResponseWriter
	hijack func(HijackFunc) (net.Conn, *bufio.ReadWriter, error)
}

func (p passage) Unwrap() http.ResponseWriter { return p.ResponseWriter }

func (p passage) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return p.hijack(http.NewResponseController(p.ResponseWriter).Hijack)
}

// with returns s with the optional interfaces of its writer, which is no http.Flusher and
// http.Hijacker at once. io.WriteString and io.Copy do without the others.
func (s shell) with(flushes bool) http.ResponseWriter {
	flusher, isFlusher := s.ResponseWriter.(http.Flusher)
	hijacker, isHijacker := s.ResponseWriter.(http.Hijacker)
	source, reads := s.ResponseWriter.(io.ReaderFrom)
	pusher, pushes := s.ResponseWriter.(http.Pusher)
	type kind struct{ flushes, flusher, hijacker, reads, pushes bool }
	switch f := (flushing{s}); (kind{flushes, isFlusher, isHijacker, reads, pushes}) {
	case kind{pushes: true}:
		return struct {
			shell
			http.Pusher
		}{s, pusher}
	case kind{reads: true}:
		return struct {
			shell
			io.ReaderFrom
		}{s, source}
	case kind{reads: true, pushes: true}:
		return struct {
			shell
			io.ReaderFrom
			http.Pusher
		}{s, source, pusher}
	case kind{flushes: true}:
		return f
	case kind{flushes: true, pushes: true}:
		return struct {
			flushing
			http.Pusher
		}{f, pusher}
	case kind{flushes: true, reads: true}:
		return struct {
			flushing
			io.ReaderFrom
		}{f, source}
	case kind{flushes: true, reads: true, pushes: true}:
		return struct {
			flushing
			io.ReaderFrom
			http.Pusher
		}{f, source, pusher}
	case kind{flushes: true, flusher: true}:
		return struct {
			flushing
			http.Flusher
		}{f, flusher}
	case kind{flushes: true, flusher: true, pushes: true}:
		return struct {
			flushing
			http.Flusher
			http.Pusher
		}{f, flusher, pusher}
	case kind{flushes: true, flusher: true, reads: true}:
		return struct {
			flushing
			http.Flusher
			io.ReaderFrom
		}{f, flusher, source}
	case kind{flushes: true, flusher: true, reads: true, pushes: true}:
		return struct {
			flushing
			http.Flusher
			io.ReaderFrom
			http.Pusher
		}{f, flusher, source, pusher}
	case kind{flushes: true, hijacker: true}:
		return struct {
			flushing
			http.Hijacker
		}{f, hijacker}
	case kind{flushes: true, hijacker: true, pushes: true}:
		return struct {
			flushing
			http.Hijacker
			http.Pusher
		}{f, hijacker, pusher}
	case kind{flushes: true, hijacker: true, reads: true}:
		return struct {
			flushing
			http.Hijacker
			io.ReaderFrom
		}{f, hijacker, source}
	case kind{flushes: true, hijacker: true, reads: true, pushes: true}:
		return struct {
			flushing
			http.Hijacker
			io.ReaderFrom
			http.Pusher
		}{f, hijacker, source, pusher}
	}
	return s
}
