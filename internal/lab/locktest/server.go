package locktest

import (
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
)

// A Server is a server of a handler, and a client that follows no redirect.
type Server struct {
	testing.TB
	Client *http.Client
	URL    string
}

// NewServer serves h until the test ends.
func NewServer(t testing.TB, h http.Handler) *Server {
	t.Helper()
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	client := srv.Client()
	client.Timeout = patience
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &Server{t, client, srv.URL}
}

// An Answer is what the client got, without its Date.
type Answer struct {
	Status int
	Header http.Header
	Body   string
}

// Replayed reports whether the answer is a replay of an earlier one.
func (a Answer) Replayed() bool { return a.Header.Get("Idempotent-Replayed") == "true" }

// Equal reports whether both answers are the same.
func (a Answer) Equal(b Answer) bool {
	return a.Status == b.Status && a.Body == b.Body && maps.EqualFunc(a.Header, b.Header, slices.Equal)
}

func (a Answer) String() string { return fmt.Sprintf("%d %q %v", a.Status, a.Body, a.Header) }

// NewRequest returns a request that ends with the test.
func (s *Server) NewRequest(method, path, body string) *http.Request {
	s.Helper()
	r, err := http.NewRequestWithContext(s.Context(), method, s.URL+path, strings.NewReader(body))
	if err != nil {
		s.Fatal(err)
	}
	return r
}

// Do sends a request and returns the answer.
func (s *Server) Do(r *http.Request) Answer {
	s.Helper()
	response, err := s.Client.Do(r)
	if err != nil {
		s.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		s.Fatal(err)
	}
	response.Header.Del("Date")
	return Answer{response.StatusCode, response.Header, string(body)}
}

// Want sends a request and fails the test unless the answer has the status, and the text in its
// body. The name of a host may precede the path. headers are names and values.
func (s *Server) Want(method, path string, status int, text string, headers ...string) {
	s.Helper()
	host, path, _ := strings.Cut(path, "/")
	r := s.NewRequest(method, "/"+path, "")
	r.Host = host
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	if a := s.Do(r); a.Status != status || !strings.Contains(a.Body, text) {
		s.Errorf("%s %s/%s %v: answer %v, want %d with %q", method, host, path, headers, a, status, text)
	}
}

// WantNot sends a request and fails the test if the body of the answer has one of the texts.
func (s *Server) WantNot(method, path string, texts ...string) {
	s.Helper()
	a := s.Do(s.NewRequest(method, path, ""))
	for _, text := range texts {
		if strings.Contains(a.Body, text) {
			s.Errorf("%s %s: answer %v has %q in it", method, path, a, text)
		}
	}
}

// PostWithKey sends a POST with an idempotency key, and returns the answer.
func (s *Server) PostWithKey(path, key string, changes ...func(*http.Request)) Answer {
	s.Helper()
	r := s.NewRequest(http.MethodPost, path, "{}")
	r.Header.Set("Idempotency-Key", key)
	for _, change := range changes {
		change(r)
	}
	return s.Do(r)
}

// WantPanic fails the test unless f panics with a text that contains says.
func WantPanic(t testing.TB, says string, f func()) {
	t.Helper()
	defer func() {
		t.Helper()
		if text := fmt.Sprint(recover()); !strings.Contains(text, says) {
			t.Errorf("panics with %q, want %q in it", text, says)
		}
	}()
	f()
}
