package guard

import (
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/reqlock/reqlock/internal/bodybudget"
)

// bufferBody reads the body to its end, at which net/http begins to watch for the client hanging up, and puts a copy
// in its place.
func bufferBody(r *http.Request, limit int64, account *bodybudget.Account) error {
	noteBody(r, account)
	_, err := bodybudget.Read(r, limit)
	return err
}

// A notedBody notes why its reading has failed: a key function returns that, and has not failed itself. What is read of it into
// memory goes on the account of its guard.
type notedBody struct {
	io.ReadCloser
	account *bodybudget.Account
	failure error
}

// unnoted stands for every body that has no need to be noted. It is never read.
var unnoted = &notedBody{}

// noteBody puts a notedBody in the place of a body that may still be read from the client, until restore is called.
func noteBody(r *http.Request, account *bodybudget.Account) *notedBody {
	if r.Body == nil || r.Body == http.NoBody || bodybudget.IsRead(r) {
		return unnoted
	}
	noted := &notedBody{ReadCloser: r.Body, account: account}
	r.Body = noted
	return noted
}

// restore puts the body back, unless it has been read and another left in its place.
func (b *notedBody) restore(r *http.Request) {
	if r.Body == b {
		r.Body = b.ReadCloser
	}
}

func (b *notedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil && err != io.EOF {
		b.failure = err
	}
	return n, err
}

// BodyAccount makes it a bodybudget.Owner.
func (b *notedBody) BodyAccount() *bodybudget.Account { return b.account }

// A watchedBody is a body whose reading can be ended. It knows whether somebody is reading: only then may the connection be
// given a deadline. At any other time net/http may be watching it for the client hanging up; it would take the deadline for
// that, and end the contexts of this request and of all that follow on the connection.
type watchedBody struct {
	io.ReadCloser

	mu      sync.Mutex
	reading bool
	over    bool
	cut     bool // the connection has been given a deadline
}

// watchBody watches the reading of a body; nil: there is none, or it has been read.
func watchBody(r *http.Request) *watchedBody {
	if r.Body == nil || r.Body == http.NoBody || bodybudget.IsRead(r) {
		return nil
	}
	b := &watchedBody{ReadCloser: r.Body}
	r.Body = b
	return b
}

// Read ends with ErrMaxHold once the reading is over.
func (b *watchedBody) Read(p []byte) (int, error) {
	b.mu.Lock()
	if b.over {
		b.mu.Unlock()
		return 0, ErrMaxHold
	}
	b.reading = true
	b.mu.Unlock()

	n, err := b.ReadCloser.Read(p)

	b.mu.Lock()
	defer b.mu.Unlock()
	b.reading = false
	if b.over && err != nil && err != io.EOF {
		err = ErrMaxHold
	}
	return n, err
}

// end lets no further Read begin, and ends one that is under way. A writer that knows no deadlines leaves that one be.
func (b *watchedBody) end(w http.ResponseWriter) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.over = true
	if b.reading {
		b.cut = http.NewResponseController(w).SetReadDeadline(time.Now()) == nil
	}
}

// finish has the connection closed after the answer if it was given a deadline. The Read that was meant may have come to
// the end of the body at that very moment, and net/http have begun to watch.
func (b *watchedBody) finish(w http.ResponseWriter, r *http.Request) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.cut && r.ProtoMajor == 1 {
		w.Header().Set("Connection", "close")
	}
}
