package guard

import (
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/reqlock/reqlock/internal/request"
)

// A watchedBody is a body whose reading MaxHold can end. It knows whether a Read is under way: only
// then may the connection get a deadline. At any other time net/http may be watching the connection
// for the client to hang up. It would mistake the deadline for that, and end the contexts of this
// request and of all that follow on the connection.
type watchedBody struct {
	io.ReadCloser
	interrupt func(deadline time.Time) error // nil: the writer has no deadlines

	mu    sync.Mutex
	state bodyState
}

type bodyState int

const (
	bodyIdle    bodyState = iota // no Read is under way
	bodyReading                  // a Read is under way
	bodyEnded                    // further Reads fail
	bodyCut                      // further Reads fail, and the connection has a deadline
)

// watchBody replaces the body by a watchedBody; nil: there is no body, or it has been read. Call it
// before the handler runs.
func watchBody(r *http.Request, w http.ResponseWriter) *watchedBody {
	if r.Body == nil || r.Body == http.NoBody || request.IsBodyRead(r) {
		return nil
	}
	b := &watchedBody{ReadCloser: r.Body}
	if w, ok := request.Outermost[interface{ SetReadDeadline(time.Time) error }](w); ok {
		b.interrupt = w.SetReadDeadline
	}
	r.Body = b
	return b
}

// Read fails with ErrMaxHold once the reading has ended.
func (b *watchedBody) Read(p []byte) (int, error) {
	if !b.move(bodyReading) {
		return 0, ErrMaxHold
	}
	n, err := b.ReadCloser.Read(p)
	if !b.move(bodyIdle) && err != nil && err != io.EOF {
		err = ErrMaxHold
	}
	return n, err
}

func (b *watchedBody) move(to bodyState) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.moveLocked(to)
}

// moveLocked changes the state, unless the reading has ended, and reports whether it did.
func (b *watchedBody) moveLocked(to bodyState) bool {
	if b.state >= bodyEnded {
		return false
	}
	b.state = to
	return true
}

// end ends the reading. It interrupts a Read that is under way if the writer supports deadlines.
func (b *watchedBody) end() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.state == bodyReading && b.interrupt != nil && b.interrupt(time.Now()) == nil {
		b.moveLocked(bodyCut)
		return
	}
	b.moveLocked(bodyEnded)
}

// finish closes the connection after the answer if it has a deadline: the Read that the deadline
// was for may have reached the end of the body at the same moment, and net/http may have begun to
// watch.
func (b *watchedBody) finish(w http.ResponseWriter, r *http.Request) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.state == bodyCut && r.ProtoMajor == 1 {
		w.Header().Set("Connection", "close")
	}
}
