package idempotency

import (
	"bufio"
	"net"
	"net/http"
)

// reveal gives w the methods to flush and to hijack that only a writer inside it has. Otherwise
// http.ResponseController would unwrap w and bypass the Recorder.
func reveal(w http.ResponseWriter) http.ResponseWriter {
	flushes, hijacks := abilities(w)
	var flushesInside, hijacksInside bool
	for inner := w; ; {
		outer, ok := inner.(interface{ Unwrap() http.ResponseWriter })
		if !ok {
			break
		}
		inner = outer.Unwrap()
		f, h := abilities(inner)
		flushesInside, hijacksInside = flushesInside || f, hijacksInside || h
	}
	switch {
	case hijacksInside && !hijacks:
		return hijackable{flushable{w}}
	case flushesInside && !flushes:
		return flushable{w}
	}
	return w
}

// abilities reports what w can do itself, not by unwrapping it.
func abilities(w http.ResponseWriter) (flushes, hijacks bool) {
	switch w.(type) {
	case interface{ FlushError() error }, http.Flusher:
		flushes = true
	}
	_, hijacks = w.(http.Hijacker)
	return flushes, hijacks
}

type flushable struct{ http.ResponseWriter }

// Unwrap gives http.ResponseController everything else.
func (w flushable) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// FlushError flushes the inner writer.
func (w flushable) FlushError() error { return http.NewResponseController(w.ResponseWriter).Flush() }

type hijackable struct{ flushable }

// Hijack hijacks the connection of the inner writer.
func (w hijackable) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return http.NewResponseController(w.ResponseWriter).Hijack()
}
