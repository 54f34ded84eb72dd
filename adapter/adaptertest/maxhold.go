package adaptertest

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/guard"
	"github.com/reqlock/reqlock/keyfuncs"
)

var maxHold = []scenario{
	{name: "MaxHold ends the handler's context", run: maxHoldEndsContext},
	{name: "MaxHold is logged once for each route", run: maxHoldLogged},
	{name: "MaxHold, and then the lock is lost", run: maxHoldAndLoss},
	{name: "MaxHold of an outer guard", run: maxHoldNested},
	{name: "MaxHold does not matter after Release", run: maxHoldAfterRelease},
	{name: "MaxHold does not matter after Detach", run: maxHoldAfterDetach},
	{name: "MaxHold ends the reading of a body that never arrives", run: maxHoldSilentBody},
	{name: "MaxHold ends the reading of a body that arrives slowly", run: maxHoldDribblingBody},
	{name: "MaxHold and a writer without deadlines", run: maxHoldPlainWriter},
	{name: "MaxHold ends an answer that the client does not read", run: maxHoldUnread},
	{name: "MaxHold leaves the connection usable", run: maxHoldConnection},
	{name: "BufferBody: a body that arrives slowly holds no lock", run: bufferedDribble},
}

// holdsFor is a short MaxHold.
func holdsFor(cfg *guard.Config) { cfg.MaxHold = 50 * time.Millisecond }

func maxHoldEndsContext(fx *fixture) {
	g := fx.newBlockingHandler()
	s := fx.serveOrders(g.ServeHTTP, holdsFor)
	p := s.startGet(order)
	inside := g.nextRun()
	if n := fx.locks.Stats().Renewals; n > 1 {
		fx.Errorf("%d locks are renewed", n)
	}
	mustReceive(fx, "the handler's context ends", inside.ctx.Done())
	fx.wantErr("its cause", context.Cause(inside.ctx), guard.ErrMaxHold)
	if n := fx.locks.Stats().Renewals; n != 0 {
		fx.Errorf("%d locks are still renewed", n)
	}
	lease, ok := guard.LeaseFrom(inside.ctx)
	if !ok || lease.Err() != nil {
		fx.Errorf("the lease has ended: %v, %v", lease, ok)
	}
	fx.wantHeld(lockName)
	s.get(order).wantProblem(fx, 409, "locked", "1")
	fx.outcome()
	inside.finish()
	p.mustGetAnswer().want(fx, 200, "done")
	fx.wantFree(lockName)
	if o := fx.outcome(); !o.Ran || o.Err != guard.ErrMaxHold || o.Held < 50*time.Millisecond {
		fx.Errorf("the outcome is %+v", o)
	}
}

// maxHoldLogged has a handler that hangs for many requests.
func maxHoldLogged(fx *fixture) {
	g := fx.newBlockingHandler()
	cfg := fx.config(holdsFor)
	var routes []Route
	for _, pattern := range []string{orders, "/other/{id}"} {
		routes = append(routes, Route{Method: http.MethodGet, Pattern: pattern, Guards: []guard.Config{cfg}, Handler: g.ServeHTTP})
	}
	s := fx.serve(routes...)
	for range 3 {
		for _, path := range []string{order, "/other/x"} {
			p := s.startGet(path)
			inside := g.nextRun()
			mustReceive(fx, "the handler's context ends", inside.ctx.Done())
			inside.finish()
			p.mustGetAnswer().want(fx, 200, "done")
			fx.outcome()
		}
	}
	if n := fx.log.count("held its lock for MaxHold"); n != 2 {
		fx.Errorf("%d lines, want one for each of two routes:\n%s", n, fx.log.text())
	}
	for _, part := range []string{"level=WARN", "method=GET", "orders/", "MaxHold=50ms"} {
		if !strings.Contains(fx.log.text(), part) {
			fx.Errorf("the log lacks %s:\n%s", part, fx.log.text())
		}
	}
}

// maxHoldAndLoss loses the lock between MaxHold and the end of the handler.
func maxHoldAndLoss(fx *fixture) {
	g := fx.newBlockingHandler()
	s := fx.serveOrders(g.ServeHTTP, holdsFor)
	p := s.startGet(order)
	inside := g.nextRun()
	mustReceive(fx, "the handler's context ends", inside.ctx.Done())
	fx.rdb.Del(background, lockName)
	inside.finish()
	p.mustGetAnswer().want(fx, 200, "done")
	o := fx.outcome()
	fx.wantErr("the outcome", o.Err, guard.ErrMaxHold)
	fx.wantErr("the outcome", o.Err, core.ErrLockLost)
}

// holdsForLong is a MaxHold within which a slow machine gets further locks.
func holdsForLong(cfg *guard.Config) { cfg.MaxHold = 2 * time.Second }

// maxHoldNested has three guards, the outermost with a MaxHold. The innermost has the same lock,
// which is no longer renewed; the lock of the guard in between is.
func maxHoldNested(fx *fixture) {
	g := fx.newBlockingHandler()
	s := fx.serve(Route{
		Pattern: orders,
		Guards:  []guard.Config{fx.config(holdsForLong), fx.config(keyedBy(keyfuncs.Const("between"))), fx.config()},
		Handler: g.ServeHTTP,
	})
	p := s.startGet(order)
	inside := g.nextRun()
	mustReceive(fx, "the handler's context ends", inside.ctx.Done())
	fx.wantErr("its cause", context.Cause(inside.ctx), guard.ErrMaxHold)
	fx.eventually("one lock is renewed", func() bool { return fx.locks.Stats().Renewals == 1 })
	fx.wantHeld(lockName)
	inside.finish()
	p.mustGetAnswer().want(fx, 200, "done")
	fx.wantFree(lockName)
}

func maxHoldAfterRelease(fx *fixture) {
	outlivesMaxHold(fx, func(ctx context.Context) {
		if err := guard.Release(ctx); err != nil {
			fx.Errorf("Release: %v", err)
		}
	})
}

func maxHoldAfterDetach(fx *fixture) {
	leases := make(chan *core.Lease, 1)
	outlivesMaxHold(fx, func(ctx context.Context) {
		lease, ok := guard.Detach(ctx)
		if !ok {
			fx.Error("Detach found no lease")
		}
		leases <- lease
	})
	lease := <-leases
	if n := fx.locks.Stats().Renewals; n != 1 {
		fx.Errorf("%d locks are renewed, want the detached one", n)
	}
	if err := lease.Release(background); err != nil {
		fx.Error(err)
	}
}

// outlivesMaxHold shows that a handler without its lock may run for longer than MaxHold, while
// MaxHold ends a later handler that keeps its lock.
func outlivesMaxHold(fx *fixture, give func(context.Context)) {
	// Longer than it takes to give up the lock.
	holds := func(cfg *guard.Config) { cfg.MaxHold = 4 * time.Second }
	g, later := fx.newBlockingHandler(), fx.newBlockingHandler()
	s := fx.serve(
		Route{Pattern: orders, Guards: []guard.Config{fx.config(holds)}, Handler: func(w http.ResponseWriter, r *http.Request) {
			give(r.Context())
			g.ServeHTTP(w, r)
		}},
		Route{Pattern: "/later/{id}", Guards: []guard.Config{fx.config(holds)}, Handler: later.ServeHTTP},
	)
	first := s.startGet(order)
	inside := g.nextRun()
	second := s.startGet("/later/a")
	last := later.nextRun()
	mustReceive(fx, "the later handler's context ends", last.ctx.Done())
	if inside.ctx.Err() != nil {
		fx.Errorf("the context has ended: %v", context.Cause(inside.ctx))
	}
	last.finish()
	inside.finish()
	first.mustGetAnswer().want(fx, 200, "done")
	second.mustGetAnswer().want(fx, 200, "done")
}

// reads is a handler that reads its body to the end, and sends the error to ends.
func reads(fx *fixture, ends chan<- error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		_, err := io.Copy(io.Discard, r.Body)
		if err != nil && !errors.Is(context.Cause(r.Context()), guard.ErrMaxHold) {
			fx.Errorf("the context's cause is %v", context.Cause(r.Context()))
		}
		ends <- err
		w.WriteHeader(http.StatusRequestTimeout)
	}
}

// dribble sends a POST whose body never ends. After the first byte it sends one byte at a time, or
// none if silent.
func (s *testServer) dribble(path string, silent bool) net.Conn {
	s.fx.Helper()
	conn := s.dial()
	_, err := io.WriteString(conn, "POST "+path+" HTTP/1.1\r\nHost: test\r\nContent-Length: 1000000\r\n\r\nx")
	if err != nil {
		s.fx.Fatal(err)
	}
	if silent {
		return conn
	}
	go func() {
		for err == nil {
			time.Sleep(2 * time.Millisecond)
			_, err = io.WriteString(conn, "x") // fails when either side has closed
		}
	}()
	return conn
}

func maxHoldSilentBody(fx *fixture) { maxHoldBody(fx, true) }

func maxHoldDribblingBody(fx *fixture) { maxHoldBody(fx, false) }

func maxHoldBody(fx *fixture, silent bool) {
	ends := make(chan error, 1)
	g := fx.newBlockingHandler()
	s := fx.serve(
		Route{Method: http.MethodPost, Pattern: orders, Guards: []guard.Config{fx.config(holdsFor)}, Handler: reads(fx, ends)},
		Route{Method: http.MethodGet, Pattern: orders, Guards: []guard.Config{fx.config(waits)}, Handler: g.ServeHTTP},
	)
	s.dribble(order, silent)
	err := mustReceive(fx, "the handler has read its body", ends)
	fx.wantErr("the body ends with", err, guard.ErrMaxHold)
	next := s.startGet(order)
	g.nextRun().finish()
	next.mustGetAnswer().want(fx, 200, "done")
}

// maxHoldPlainWriter has a writer without deadlines, as outer middleware may pass on. MaxHold
// cannot end a blocked Read then, but prevents the next one.
func maxHoldPlainWriter(fx *fixture) {
	ends := make(chan error, 1)
	s := fx.serveWith(wrapped, Route{Pattern: orders, Guards: []guard.Config{fx.config(holdsFor)}, Handler: reads(fx, ends)})
	s.dribble(order, false)
	fx.wantErr("the body ends with", mustReceive(fx, "the handler has read its body", ends), guard.ErrMaxHold)
	fx.eventuallyFree(lockName)
}

// maxHoldUnread has a client that sends its request and then reads nothing. The handler ends while
// it still has its lock.
func maxHoldUnread(fx *fixture) {
	plain := func(*Server) {}
	behind := around(func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { next.ServeHTTP(unwrapping{w}, r) })
	})
	for _, change := range []func(*Server){plain, behind} {
		ends := make(chan error, 1)
		s := fx.serveWith(change, Route{Pattern: orders, Guards: []guard.Config{fx.config(holdsFor)}, Handler: writesMuch(ends)})
		conn := s.dial()
		if _, err := io.WriteString(conn, "GET "+order+" HTTP/1.1\r\nHost: test\r\n\r\n"); err != nil {
			fx.Fatal(err)
		}
		fx.wantErr("after the answer, the lease", mustReceive(fx, "the handler has written its answer", ends), nil)
		fx.eventuallyFree(lockName)
	}
}

// writesMuch is a handler whose answer is larger than the buffers of a connection. Then it sends
// how its lease has ended; nil: it has not.
func writesMuch(ends chan<- error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		lease, _ := guard.LeaseFrom(r.Context())
		part := make([]byte, 1<<20)
		for range 64 {
			if _, err := w.Write(part); err != nil {
				break
			}
		}
		ends <- lease.Err()
	}
}

// maxHoldConnection shows that MaxHold does not affect the next request on the connection.
func maxHoldConnection(fx *fixture) {
	var runs atomic.Int64
	s := fx.serve(
		Route{Pattern: "/unread/{id}", Guards: []guard.Config{fx.config(holdsFor)}, Handler: untilDone},
		Route{Pattern: "/read/{id}", Guards: []guard.Config{fx.config(holdsFor)}, Handler: func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			untilDone(w, r)
		}},
		Route{Pattern: "/flushed/{id}", Guards: []guard.Config{fx.config(holdsFor)}, Handler: func(w http.ResponseWriter, r *http.Request) {
			_ = http.NewResponseController(w).Flush() // the server reads the rest of the body
			untilDone(w, r)
		}},
		Route{Pattern: "/buffered/{id}", Guards: []guard.Config{fx.config(holdsFor, func(cfg *guard.Config) { cfg.BufferBody = 100 })}, Handler: untilDone},
		Route{Pattern: "/next", Handler: func(w http.ResponseWriter, r *http.Request) {
			runs.Add(1)
			if r.Context().Err() != nil {
				fx.Errorf("after %s, a request begins with a context that has ended", r.URL.RawQuery)
			}
		}},
	)
	paths := []string{"/unread/a", "/read/a", "/flushed/a", "/buffered/a"}
	for _, path := range paths {
		s.post(path, strings.Repeat("x", 50)).want(fx, 200, "held too long")
		for range 2 {
			s.get("/next?"+path).want(fx, 200, "")
		}
	}
	if int(runs.Load()) != 2*len(paths) {
		fx.Errorf("%d requests have run", runs.Load())
	}
}

func untilDone(w http.ResponseWriter, r *http.Request) {
	<-r.Context().Done()
	if errors.Is(context.Cause(r.Context()), guard.ErrMaxHold) {
		_, _ = io.WriteString(w, "held too long")
	}
}

func bufferedDribble(fx *fixture) {
	g := fx.newBlockingHandler()
	arrived := make(chan struct{})
	s := fx.serveWith(around(func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodPost {
				close(arrived)
			}
			next.ServeHTTP(w, r)
		})
	}), Route{
		Pattern: orders,
		Guards:  []guard.Config{fx.config(func(cfg *guard.Config) { cfg.BufferBody = 2_000_000 })},
		Handler: g.ServeHTTP,
	})
	s.dribble(order, false)
	mustReceive(fx, "the request has arrived", arrived)
	for range 20 {
		p := s.startGet(order)
		g.nextRun().finish()
		p.mustGetAnswer().want(fx, 200, "done")
	}
	g.wantRuns(20)
}
