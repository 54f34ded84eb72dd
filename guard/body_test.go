package guard

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/reqlock/reqlock/internal/bodybudget"
	"github.com/reqlock/reqlock/keyfuncs"
)

// A deadlineWriter notes that a read was given a deadline, and ends it.
type deadlineWriter struct {
	http.ResponseWriter
	deadlines chan time.Time
}

func newDeadlineWriter() *deadlineWriter {
	return &deadlineWriter{httptest.NewRecorder(), make(chan time.Time, 10)}
}

func (w *deadlineWriter) SetReadDeadline(d time.Time) error {
	w.deadlines <- d
	return nil
}

// A slowBody has Read wait until it is told what to return.
type slowBody struct {
	begun chan struct{}
	end   chan error
}

func newSlowBody() *slowBody { return &slowBody{make(chan struct{}), make(chan error)} }

func (b *slowBody) Read([]byte) (int, error) {
	close(b.begun)
	return 0, <-b.end
}

func (b *slowBody) Close() error { return nil }

func post(body io.Reader) *http.Request { return httptest.NewRequest(http.MethodPost, "/", body) }

func TestWatchBody(t *testing.T) {
	t.Parallel()
	buffered := post(strings.NewReader("hello"))
	if err := bufferBody(buffered, 5, &bodybudget.Account{}); err != nil {
		t.Fatal(err)
	}
	for name, r := range map[string]*http.Request{
		"none":     post(http.NoBody),
		"buffered": buffered,
		"nil":      {Method: http.MethodPost},
	} {
		before := r.Body
		if watchBody(r) != nil || r.Body != before {
			t.Errorf("%s: it is watched", name)
		}
	}
}

// Nobody reads: the connection is left alone, and what comes later is refused.
func TestBodyEndsBetweenReads(t *testing.T) {
	t.Parallel()
	r, w := post(strings.NewReader("hello")), newDeadlineWriter()
	b := watchBody(r)
	p := make([]byte, 3)
	if n, err := r.Body.Read(p); n != 3 || err != nil {
		t.Fatalf("Read = %d, %v", n, err)
	}
	b.end(w)
	if n, err := r.Body.Read(p); n != 0 || err != ErrMaxHold {
		t.Errorf("Read afterwards = %d, %v; want ErrMaxHold", n, err)
	}
	b.finish(w, r)
	if len(w.deadlines) != 0 || w.Header().Get("Connection") != "" {
		t.Error("the connection was given a deadline, or is to be closed")
	}
}

// Somebody reads: whatever the read makes of its deadline, the connection is of no further use in
// HTTP/1.
func TestBodyEndsDuringRead(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		writer     http.ResponseWriter
		major      int
		read, want error
		connection string
	}{
		"cut off":             {newDeadlineWriter(), 1, os.ErrDeadlineExceeded, ErrMaxHold, "close"},
		"at its end just now": {newDeadlineWriter(), 1, io.EOF, io.EOF, "close"},
		"more of it":          {newDeadlineWriter(), 1, nil, nil, "close"},
		"HTTP/2":              {newDeadlineWriter(), 2, os.ErrDeadlineExceeded, ErrMaxHold, ""},
		"no deadlines":        {httptest.NewRecorder(), 1, nil, nil, ""},
	} {
		slow := newSlowBody()
		r := post(slow)
		r.ProtoMajor = test.major
		b := watchBody(r)
		result := make(chan error)
		go func() {
			_, err := r.Body.Read(make([]byte, 10))
			result <- err
		}()
		<-slow.begun
		b.end(test.writer)
		slow.end <- test.read
		if err := <-result; err != test.want {
			t.Errorf("%s: Read = %v, want %v", name, err, test.want)
		}
		if _, err := r.Body.Read(make([]byte, 10)); err != ErrMaxHold {
			t.Errorf("%s: the next Read = %v, want ErrMaxHold", name, err)
		}
		b.finish(test.writer, r)
		if got := test.writer.Header().Get("Connection"); got != test.connection {
			t.Errorf("%s: Connection is %q, want %q", name, got, test.connection)
		}
	}
}

// A body that a key function has read is left for the next guard to find; any other is back when
// the policy is made.
func TestNoteBody(t *testing.T) {
	t.Parallel()
	buffered := post(strings.NewReader("hello"))
	if _, err := keyfuncs.BodyHash()(buffered); err != nil || !bodybudget.IsRead(buffered) {
		t.Fatalf("the body is not buffered (%v)", err)
	}
	for name, r := range map[string]*http.Request{"unread": post(strings.NewReader("hello")), "buffered": buffered, "none": post(http.NoBody), "nil": {}} {
		before := r.Body
		noted := noteBody(r, &bodybudget.Account{})
		if bodybudget.IsRead(r) != (r == buffered) {
			t.Errorf("%s: IsRead = %t", name, bodybudget.IsRead(r))
		}
		if noted.restore(r); r.Body != before {
			t.Errorf("%s: the body is another afterwards", name)
		}
	}

	r := post(iotest.ErrReader(errReading))
	noted := noteBody(r, &bodybudget.Account{})
	if _, err := r.Body.Read(nil); err != errReading || noted.failure != errReading {
		t.Errorf("Read = %v, noted: %v", err, noted.failure)
	}
}

var errReading = errors.New("reading")

func TestBufferBodyClosesTheOriginal(t *testing.T) {
	t.Parallel()
	body := &closeTeller{Reader: strings.NewReader("hello")}
	r := post(body)
	r.Body = body
	if err := bufferBody(r, 5, &bodybudget.Account{}); err != nil {
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
