package adaptertest

import (
	"context"
	"net/http"
	"sync/atomic"
)

// A blockingHandler is a handler that runs until the test finishes it or ends.
type blockingHandler struct {
	most    int64 // So many handlers may be inside at a time.
	fx      *fixture
	entered chan *handlerRun
	runs    atomic.Int64
	inside  atomic.Int64
}

// A handlerRun is one run of the handler.
type handlerRun struct {
	ctx      context.Context
	finished chan struct{}
}

func (fx *fixture) newBlockingHandler() *blockingHandler {
	return &blockingHandler{fx: fx, most: 1, entered: make(chan *handlerRun, 1000)}
}

// ServeHTTP answers "done" when the test finishes it.
func (g *blockingHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	g.runs.Add(1)
	if n := g.inside.Add(1); n > g.most {
		g.fx.Errorf("%d handlers are inside", n)
	}
	s := &handlerRun{ctx: r.Context(), finished: make(chan struct{})}
	g.entered <- s
	select {
	case <-s.finished:
	case <-g.fx.Context().Done():
	}
	g.inside.Add(-1)
	_, _ = w.Write([]byte("done"))
}

// nextRun waits until a handler is inside.
func (g *blockingHandler) nextRun() *handlerRun {
	g.fx.Helper()
	return mustReceive(g.fx, "the handler runs", g.entered)
}

// finish makes the handler return.
func (s *handlerRun) finish() { close(s.finished) }

// wantRuns fails the test unless the handler ran n times.
func (g *blockingHandler) wantRuns(n int64) {
	g.fx.Helper()
	if got := g.runs.Load(); got != n {
		g.fx.Errorf("the handler ran %d times, want %d", got, n)
	}
}
