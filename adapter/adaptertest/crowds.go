package adaptertest

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"

	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/guard"
)

// crowds send many requests, in every framework. heavy_test.go has longer tests.
var crowds = []scenario{
	{name: "handlers leave goroutines behind that use their contexts", run: goroutinesLeft, alone: true, setup: []func(*setup){crowded}},
	{name: "long answers to a client that sends one request after another", run: longAnswers, alone: true},
}

// crowdPatience is the patience of tests with many requests, on a busy machine.
const crowdPatience = 15 * patience

func crowded(s *setup) {
	s.options.CommandTimeout, s.options.MaxWaiting, s.patience = crowdPatience, -1, crowdPatience
}

// goroutinesLeft tests objects that frameworks reuse for later requests, and state that guards
// share. The race detector makes it strict.
func goroutinesLeft(fx *fixture) {
	const requests, keys = 200, 20 // one HTTP/2 connection has 250 streams
	var left sync.WaitGroup
	patient := fx.config(func(cfg *guard.Config) { cfg.WaitTime = crowdPatience })
	s := fx.serveWith(http2, Route{Pattern: orders, Guards: []guard.Config{patient}, Handler: func(w http.ResponseWriter, r *http.Request) {
		ctx, begun := r.Context(), make(chan struct{})
		id := r.PathValue("id")
		left.Go(func() {
			look := func() (held bool) {
				lease, held := guard.LeaseFrom(ctx)
				if held {
					_, _, _ = lease.Remaining(), lease.Err(), lease.Name()
				}
				if got := r.PathValue("id"); got != id || r.Pattern == "" || r.Header.Get("X-Id") != id {
					fx.Errorf("the request for %s turned into one for %s", id, got)
				}
				return held
			}
			close(begun)
			for range 10 {
				look()
			}
			<-ctx.Done()
			for range 10 { // the lock is released after the context ends
				look()
			}
			fx.wantErr("the cause of the context", context.Cause(ctx), context.Canceled)
			if lease, err := fx.locks.Lock("reqlock:"+id).Acquire(ctx, core.AcquireOptions{}); err == nil {
				fx.Error("Acquire succeeded with a context that has ended")
				_ = lease.Release(background)
			}
			if !within(fx.patience, func() bool { return !look() }) {
				fx.Error("LeaseFrom returned a lease long after the request")
			}
			fx.wantErr("Release", guard.Release(ctx), core.ErrNotHeld)
		})
		<-begun
		_, _ = io.WriteString(w, id)
	}})
	s.client.Timeout = crowdPatience
	send := func(id string) {
		r := s.newRequest(http.MethodGet, "/orders/"+id, nil)
		r.Header.Set("X-Id", id)
		s.send(r).want(fx, http.StatusOK, id)
	}
	// The others use its connection. Hundreds of handshakes at a time would delay everything else for
	// longer than a lease.
	send("first")
	var all sync.WaitGroup
	for i := range requests {
		all.Go(func() { send(strconv.Itoa(i % keys)) })
	}
	all.Wait()
	left.Wait()
}

// The client has all of a long answer before the handler returns.
func longAnswers(fx *fixture) {
	s := fx.serveOrders(answerLong, waits)
	for _, o := range s.oneAfterAnother(100) {
		if !o.Ran {
			fx.Errorf("the outcome is %+v", o)
		}
	}
}

const mebibyte = 1 << 20

var long = make([]byte, mebibyte)

func answerLong(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Length", strconv.Itoa(len(long)))
	_, _ = w.Write(long)
}

// oneAfterAnother sends n requests for order, each after the long answer to the previous one.
func (s *testServer) oneAfterAnother(n int) (outcomes []guard.Outcome) {
	s.fx.Helper()
	request := s.newRequest(http.MethodGet, order, nil)
	for i := range n {
		if err := s.readLong(request); err != nil {
			s.fx.Fatalf("request %d: %v", i, err)
		}
		outcomes = append(outcomes, s.fx.outcome())
	}
	return outcomes
}

func (s *testServer) readLong(r *http.Request) error {
	response, err := s.client.Do(r)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	size, err := io.Copy(io.Discard, response.Body)
	if response.StatusCode != http.StatusOK || size != mebibyte || err != nil {
		return fmt.Errorf("answer %d with %d bytes (%v)", response.StatusCode, size, err)
	}
	return nil
}
