package guard

import (
	"io"
	"net/http"

	"github.com/reqlock/reqlock/internal/bodybudget"
)

// bufferBody reads the body to its end, and puts a copy in its place. From then on, net/http
// watches for the client to hang up.
func bufferBody(r *http.Request, limit int64, account *bodybudget.Account) error {
	noteBody(r, account)
	_, err := bodybudget.Read(r, limit)
	return err
}

// A notedBody records its read error. If a key function returns that error, the body is at fault,
// and not the key. Room for the body is taken from the account of the guard.
type notedBody struct {
	io.ReadCloser
	account *bodybudget.Account
	failure error
}

// unnoted stands for every body that is read already, or missing.
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

// BodyAccount implements bodybudget.Owner.
func (b *notedBody) BodyAccount() *bodybudget.Account { return b.account }
