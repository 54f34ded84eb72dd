package ginlock

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"

	"github.com/gin-gonic/gin"
)

// A sink is Gin's writer with the WriteHeader of net/http, which sends the header. Gin's only sets
// the status.
type sink struct{ gin.ResponseWriter }

func (s sink) WriteHeader(status int) {
	s.ResponseWriter.WriteHeader(status)
	s.ResponseWriter.WriteHeaderNow()
}

// Unwrap is for http.ResponseController.
func (s sink) Unwrap() http.ResponseWriter { return s.ResponseWriter }

// A writer is a gin.ResponseWriter over another http.ResponseWriter.
type writer struct {
	http.ResponseWriter
	// outer has the methods that ResponseWriter lacks.
	outer  gin.ResponseWriter
	status int
	size   int
}

var errAlreadyWritten = errors.New("reqlock: ginlock: the connection cannot be hijacked after a part of the body was written")

func newWriter(w http.ResponseWriter, outer gin.ResponseWriter) *writer {
	return &writer{ResponseWriter: w, outer: outer, status: outer.Status(), size: outer.Size()}
}

func (w *writer) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *writer) Status() int   { return w.status }
func (w *writer) Size() int     { return w.size }
func (w *writer) Written() bool { return w.size >= 0 }

// WriteHeader only sets the status, which may change until something is written.
func (w *writer) WriteHeader(status int) {
	if status > 0 && !w.Written() {
		w.status = status
	}
}

func (w *writer) WriteHeaderNow() {
	if !w.Written() {
		w.size = 0
		w.ResponseWriter.WriteHeader(w.status)
	}
}

func (w *writer) Write(p []byte) (int, error) {
	w.WriteHeaderNow()
	n, err := w.ResponseWriter.Write(p)
	w.size += n
	return n, err
}

func (w *writer) WriteString(s string) (int, error) {
	w.WriteHeaderNow()
	n, err := io.WriteString(w.ResponseWriter, s)
	w.size += n
	return n, err
}

func (w *writer) Flush() {
	w.WriteHeaderNow()
	w.ResponseWriter.(http.Flusher).Flush() // It panics where the outer one does.
}

func (w *writer) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	if w.size > 0 {
		return nil, nil, errAlreadyWritten
	}
	w.size = 0
	return w.ResponseWriter.(http.Hijacker).Hijack()
}

func (w *writer) CloseNotify() <-chan bool { return w.outer.CloseNotify() }
func (w *writer) Pusher() http.Pusher      { return w.outer.Pusher() }
