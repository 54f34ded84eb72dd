package guard

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/reqlock/reqlock/internal/request"
	"github.com/reqlock/reqlock/keyfuncs"
)

// A body that a key function read stays for the next guard. Any other is restored after the policy.
func TestTrackBody(t *testing.T) {
	t.Parallel()
	buffered := post(strings.NewReader("hello"))
	if _, err := keyfuncs.BodyHash()(buffered); err != nil || !request.IsBodyRead(buffered) {
		t.Fatalf("the body is not buffered (%v)", err)
	}
	for name, r := range map[string]*http.Request{"unread": post(strings.NewReader("hello")), "buffered": buffered, "none": post(http.NoBody), "nil": {}} {
		before := r.Body
		tracked := trackBody(r, &request.Account{})
		if request.IsBodyRead(r) != (r == buffered) {
			t.Errorf("%s: IsRead = %t", name, request.IsBodyRead(r))
		}
		if tracked.restore(r); r.Body != before {
			t.Errorf("%s: the body was not restored", name)
		}
	}

	r := post(iotest.ErrReader(errReading))
	tracked := trackBody(r, &request.Account{})
	if _, err := r.Body.Read(nil); err != errReading || tracked.failure != errReading {
		t.Errorf("Read = %v, tracked: %v", err, tracked.failure)
	}
}

var errReading = errors.New("reading")

func TestBufferBody_ClosesOriginal(t *testing.T) {
	t.Parallel()
	body := &closeTeller{Reader: strings.NewReader("hello")}
	r := post(body)
	r.Body = body
	if err := bufferBody(r, 5, &request.Account{}); err != nil {
		t.Fatal(err)
	}
	if text, err := io.ReadAll(r.Body); string(text) != "hello" || err != nil {
		t.Errorf("the body is %q, %v", text, err)
	}
	if err := r.Body.Close(); err != errClosing {
		t.Errorf("Close = %v, want that of the original", err)
	}
}

var errClosing = errors.New("closing")

type closeTeller struct{ io.Reader }

func (*closeTeller) Close() error { return errClosing }
