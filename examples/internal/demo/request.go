package demo

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"
)

// A Request is one request of a demonstration with its result.
type Request struct {
	Name  string // A, B, C …
	What  string // a short description
	Path  string
	JSON  string        // body; empty: none
	GET   bool          // GET instead of POST
	After time.Duration // when to send it, from the start of the demonstration

	Answer *http.Response // its body is closed
	Body   []byte         // of the answer
	Waited time.Duration  // until the handler began or the request was refused
	Ran    time.Duration  // the handler's time, as reported by the server
}

// Refused reports whether the guard answered in place of the handler.
func (r *Request) Refused() bool {
	var problem struct{ Type string }
	return json.Unmarshal(r.Body, &problem) == nil && strings.HasPrefix(problem.Type, "urn:reqlock:problem:")
}

// Collide sends requests at the same time, or at their After times, and returns when all are
// answered.
func Collide(ctx context.Context, base string, requests []*Request) error {
	client := &http.Client{Transport: &http.Transport{}} // no proxy in between
	defer client.CloseIdleConnections()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var all sync.WaitGroup
	for _, r := range requests {
		all.Go(func() {
			if err := r.send(ctx, client, base); err != nil {
				cancel(err) // later errors follow from the first
			}
		})
	}
	all.Wait()
	return context.Cause(ctx)
}

func (r *Request) send(ctx context.Context, client *http.Client, base string) error {
	select {
	case <-time.After(r.After):
	case <-ctx.Done():
		return ctx.Err()
	}
	method := http.MethodPost
	if r.GET {
		method = http.MethodGet
	}
	req, err := http.NewRequestWithContext(ctx, method, base+r.Path, strings.NewReader(r.JSON))
	if err != nil {
		return err
	}
	if r.JSON != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	sent := time.Now()
	r.Answer, err = client.Do(req)
	if err != nil {
		return err
	}
	defer r.Answer.Body.Close()
	if r.Body, err = io.ReadAll(r.Answer.Body); err != nil {
		return fmt.Errorf("%s %s: %w", method, req.URL, err)
	}
	total := time.Since(sent)
	var ms int
	if _, err := fmt.Sscanf(r.Answer.Header.Get(timing), timingFormat, &ms); err == nil {
		r.Ran = time.Duration(ms) * time.Millisecond
	}
	r.Waited = max(0, total-r.Ran)
	return nil
}

const (
	timing       = "Server-Timing"
	timingFormat = "handler;dur=%d"
)

// Time sets the header with which a handler reports how long it ran: the bar of # in a timeline.
func Time(answer http.Header, began time.Time) {
	answer.Set(timing, fmt.Sprintf(timingFormat, time.Since(began).Milliseconds()))
}

// Work takes some time, like a call to a payment provider. An error means that the client
// disconnected or the lock is lost: continuing would not be safe.
func Work(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return fmt.Errorf("stopped midway: %w", context.Cause(ctx))
	}
}
