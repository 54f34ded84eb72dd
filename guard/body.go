package guard

import (
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/reqlock/reqlock/internal/bodybudget"
)

// bufferBody reads the body to its end, and puts a copy in its place. From then on, net/http watches
// for the client to hang up.
func bufferBody(r *http.Request, limit int64, account *bodybudget.Account) error {
	noteBody(r, account)
	_, err := bodybudget.Read(r, limit)
	return err
}

// A notedBody records why reading it failed, so that the error of a key function that only passes it
// on is not blamed on the key. The account of the guard pays for what is read into memory.
type notedBody struct {
	io.ReadCloser
	account *bodybudget.Account
	failure error
}

// unnoted stands for every body that needs no notes. It is never read.
var unnoted = &notedBody{}

// noteBody replaces a body that may still be read from the client by a notedBody, until restore.
func noteBody(r *http.Request, account *bodybudget.Account) *notedBody {
	if r.Body == nil || r.Body == http.NoBody || bodybudget.IsRead(r) {
		return unnoted
	}
	noted := &notedBody{ReadCloser: r.Body, account: account}
	r.Body = noted
	return noted
}

// restore puts the original body back, unless it was read and replaced by a copy.
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

// A watchedBody is a body whose reading can be ended. It knows whether a Read is under way: only then
// may the connection get a deadline. At any other time net/http may be watching the connection for the
// client to hang up. It would mistake the deadline for that, and end the contexts of this request and
// of all that follow on the connection.
type watchedBody struct {
	io.ReadCloser

	mu      sync.Mutex
	reading bool
	over    bool
	cut     bool // the connection has a deadline
}

// watchBody replaces the body by a watchedBody; nil: there is no body, or it has been read.
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

// end lets no further Read begin, and ends the current one if the writer supports deadlines.
func (b *watchedBody) end(w http.ResponseWriter) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.over = true
	if b.reading {
		b.cut = http.NewResponseController(w).SetReadDeadline(time.Now()) == nil
	}
}

// finish closes the connection after the answer if it has a deadline: the Read that the deadline was
// for may have reached the end of the body at the same moment, and net/http may have begun to watch.
func (b *watchedBody) finish(w http.ResponseWriter, r *http.Request) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.cut && r.ProtoMajor == 1 {
		w.Header().Set("Connection", "close")
	}
}
