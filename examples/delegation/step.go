package main

import (
	"io"
	"net/http"
	"time"

	"github.com/reqlock/reqlock/examples/internal/demo"
)

// A step is what one service does for an order, under its lock.
type step struct {
	done string // such as "billed"
	// client calls the next service, at host and path with the order behind it. nil: there is none.
	client     *http.Client
	host, path string
}

func (s step) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	began := time.Now()
	// The client disconnected, or the lock is lost.
	if err := demo.Work(r.Context(), workTime); err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	rest, ok := s.call(w, r)
	if !ok {
		return
	}
	demo.Time(w.Header(), began)
	_, _ = io.WriteString(w, s.done+rest)
}

// call returns what the next service has done, behind a comma. If that has refused, call answers
// with it. The context of the request leads the client to the lease, and so to the token.
func (s step) call(w http.ResponseWriter, r *http.Request) (rest string, ok bool) {
	if s.client == nil {
		return "", true
	}
	next, err := http.NewRequestWithContext(r.Context(), http.MethodPost, "http://"+s.host+s.path+r.PathValue("id"), nil)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return "", false
	}
	answer, err := s.client.Do(next)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return "", false
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return "", false
	}
	if answer.StatusCode != http.StatusOK {
		w.Header().Set("Content-Type", answer.Header.Get("Content-Type"))
		w.WriteHeader(answer.StatusCode)
		_, _ = w.Write(body)
		return "", false
	}
	return ", " + string(body), true
}
