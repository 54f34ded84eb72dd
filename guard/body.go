package guard

import (
	"io"
	"net/http"

	"github.com/reqlock/reqlock/internal/request"
)

// bufferBody reads the body to its end, and puts a copy in its place. From then on, net/http
// watches for the client to hang up.
func bufferBody(r *http.Request, limit int64, account *request.Account) error {
	trackBody(r, account)
	_, err := request.ReadBody(r, limit)
	return err
}

// A trackedBody records its read error. If a key function returns that error, the body is at fault,
// and not the key. Room for the body is taken from the account of the guard.
type trackedBody struct {
	io.ReadCloser
	account *request.Account
	failure error
}

// untracked stands for every body that is read already, or missing.
var untracked = &trackedBody{}

// trackBody replaces a body that may still be read from the client by a trackedBody, until restore.
func trackBody(r *http.Request, account *request.Account) *trackedBody {
	if r.Body == nil || r.Body == http.NoBody || request.IsBodyRead(r) {
		return untracked
	}
	tracked := &trackedBody{ReadCloser: r.Body, account: account}
	r.Body = tracked
	return tracked
}

// restore puts the original body back, unless it was read and replaced by a copy.
func (b *trackedBody) restore(r *http.Request) {
	if r.Body == b {
		r.Body = b.ReadCloser
	}
}

func (b *trackedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil && err != io.EOF {
		b.failure = err
	}
	return n, err
}

// BodyAccount implements request.BodyOwner.
func (b *trackedBody) BodyAccount() *request.Account { return b.account }
