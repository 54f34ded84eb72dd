package adaptertest

import (
	"context"
	"net/http"
	"sync/atomic"
)

// A gate is a handler that stays inside until the test lets it out or ends.
type gate struct {
	most    int64 // So many handlers may be inside at a time.
	e       *env
	entered chan *stay
	runs    atomic.Int64
	inside  atomic.Int64
}

// A stay is one run of the handler.
type stay struct {
	ctx context.Context
	out chan struct{}
}

func (e *env) gate() *gate { return &gate{e: e, most: 1, entered: make(chan *stay, 1000)} }

// ServeHTTP answers "done" when it is let out.
func (g *gate) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	g.runs.Add(1)
	if n := g.inside.Add(1); n > g.most {
		g.e.Errorf("%d handlers are inside", n)
	}
	s := &stay{ctx: r.Context(), out: make(chan struct{})}
	g.entered <- s
	select {
	case <-s.out:
	case <-g.e.Context().Done():
	}
	g.inside.Add(-1)
	_, _ = w.Write([]byte("done"))
}

// next waits until a handler is inside.
func (g *gate) next() *stay {
	g.e.Helper()
	return await(g.e, "the handler runs", g.entered)
}

// leave lets the handler out.
func (s *stay) leave() { close(s.out) }

// wantRuns fails the test unless the handler ran n times.
func (g *gate) wantRuns(n int64) {
	g.e.Helper()
	if got := g.runs.Load(); got != n {
		g.e.Errorf("the handler ran %d times, want %d", got, n)
	}
}
