package guard

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/reqlock/reqlock/internal/request"
)

// A deadlineWriter records a read deadline, and ends the Read.
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

// A slowBody waits in Read until the test sends the result.
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
	if err := bufferBody(buffered, 5, &request.Account{}); err != nil {
		t.Fatal(err)
	}
	for name, r := range map[string]*http.Request{
		"none":     post(http.NoBody),
		"buffered": buffered,
		"nil":      {Method: http.MethodPost},
	} {
		before := r.Body
		if watchBody(r, newDeadlineWriter()) != nil || r.Body != before {
			t.Errorf("%s: watchBody replaced it", name)
		}
	}
}

// Without a Read under way, the connection gets no deadline, and later Reads fail.
func TestWatchedBody_EndsBetweenReads(t *testing.T) {
	t.Parallel()
	r, w := post(strings.NewReader("hello")), newDeadlineWriter()
	b := watchBody(r, w)
	p := make([]byte, 3)
	if n, err := r.Body.Read(p); n != 3 || err != nil {
		t.Fatalf("Read = %d, %v", n, err)
	}
	b.end()
	if n, err := r.Body.Read(p); n != 0 || err != ErrMaxHold {
		t.Errorf("Read afterwards = %d, %v; want ErrMaxHold", n, err)
	}
	b.finish(w, r)
	if len(w.deadlines) != 0 || w.Header().Get("Connection") != "" {
		t.Error("the connection has a deadline, or will be closed")
	}
}

// With a Read under way, the connection gets a deadline, and HTTP/1 cannot use it again, whatever
// the Read returns.
func TestWatchedBody_EndsDuringRead(t *testing.T) {
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
		b := watchBody(r, test.writer)
		result := make(chan error)
		go func() {
			_, err := r.Body.Read(make([]byte, 10))
			result <- err
		}()
		<-slow.begun
		b.end()
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
