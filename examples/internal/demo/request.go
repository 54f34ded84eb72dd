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

// A Request is one of a demonstration, and what became of it.
type Request struct {
	Name  string // A, B, C …
	What  string // it asks for, in few words
	Path  string
	JSON  string        // its body; empty: none
	GET   bool          // instead of POST
	After time.Duration // when it is sent, from the first of the demonstration on

	Answer *http.Response // its body is closed
	Body   []byte         // of the answer
	Waited time.Duration  // until the handler began, or until the request was refused
	Ran    time.Duration  // the handler, as the server tells
}

// Refused reports whether it was answered by the lock, in the handler's place.
func (r *Request) Refused() bool {
	var problem struct{ Type string }
	return json.Unmarshal(r.Body, &problem) == nil && strings.HasPrefix(problem.Type, "urn:reqlock:problem:")
}

// Collide sends requests at the same time, or each at its own, and returns when all are answered.
func Collide(ctx context.Context, base string, requests []*Request) error {
	client := &http.Client{Transport: &http.Transport{}} // no proxy in between
	defer client.CloseIdleConnections()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var all sync.WaitGroup
	for _, r := range requests {
		all.Go(func() {
			if err := r.send(ctx, client, base); err != nil {
				cancel(err) // the first error is the cause of all others
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

// Time sets the header by which a handler says how long it ran, which is the bar of # in a timeline.
func Time(answer http.Header, began time.Time) {
	answer.Set(timing, fmt.Sprintf(timingFormat, time.Since(began).Milliseconds()))
}

// Work takes its time, as a call to a payment provider would. An error means that the client has left or that the lock is lost:
// whatever comes next would not be safe.
func Work(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return fmt.Errorf("stopped half-way: %w", context.Cause(ctx))
	}
}
