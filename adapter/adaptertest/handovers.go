package adaptertest

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/guard"
	"github.com/reqlock/reqlock/keyfuncs"
)

var handovers = []scenario{
	{name: "Detach across a hijacked connection", run: detachHijacked},
	{name: "Release before a connection is hijacked", run: releaseHijacked},
	{name: "Detach by a stream of events", run: detachStream},
	{name: "Detach keeps the lock until it is released", run: detachBeyond},
	{name: "Detach with several keys", run: detachSeveral},
	{name: "Release with several keys", run: releaseSeveral},
	{name: "Release before a stream of events", run: releaseBeforeStream},
	{name: "LeaseFrom", run: leaseFrom},
	{name: "a lease that the handler releases by itself", run: leaseReleasedByHandler},
}

// chat hijacks the connection and echoes lines on it until the client closes it. It sends a line
// when ctx ends.
func chat(e *env, w http.ResponseWriter, ctx context.Context, ended func()) {
	conn, rw, err := http.NewResponseController(w).Hijack()
	if err != nil {
		e.Errorf("Hijack: %v", err)
		ended()
		return
	}
	go func() {
		defer ended()
		defer conn.Close()
		_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: chat\r\n\r\n")
		for {
			line, err := rw.ReadString('\n')
			if err != nil {
				return
			}
			if ctx.Err() != nil {
				line = "the lock is lost\n"
			}
			_, _ = io.WriteString(conn, line)
		}
	}()
}

// A talk is a client's side of a chat.
type talk struct {
	e    *env
	conn net.Conn
	in   *bufio.Reader
}

func (s *site) talk(path string) *talk {
	s.e.Helper()
	conn := s.dial()
	_, _ = io.WriteString(conn, "GET "+path+" HTTP/1.1\r\nHost: test\r\nConnection: Upgrade\r\nUpgrade: chat\r\n\r\n")
	in := bufio.NewReader(conn)
	for _, want := range []string{"HTTP/1.1 101 Switching Protocols\r\n", "Connection: Upgrade\r\n", "Upgrade: chat\r\n", "\r\n"} {
		if line, err := in.ReadString('\n'); line != want {
			s.e.Fatalf("read %q (%v), want %q", line, err, want)
		}
	}
	s.e.outcome() // the handler has returned
	return &talk{s.e, conn, in}
}

func (t *talk) say(line string) {
	t.e.Helper()
	_, _ = io.WriteString(t.conn, line)
	if got, err := t.in.ReadString('\n'); got != line {
		t.e.Fatalf("the connection says %q (%v), want %q", got, err, line)
	}
}

func detachHijacked(e *env) {
	leases := make(chan *core.Lease, 1)
	g := e.gate()
	s := e.serve(
		Route{Method: http.MethodGet, Pattern: "/chat/{id}", Guards: []guard.Config{e.config()}, Handler: func(w http.ResponseWriter, r *http.Request) {
			lease, ok := guard.Detach(r.Context())
			if !ok {
				e.Error("Detach found no lease")
				return
			}
			ctx, unbind := lease.Bind(context.WithoutCancel(r.Context()))
			chat(e, w, ctx, func() { unbind(); leases <- lease })
		}},
		Route{Method: http.MethodGet, Pattern: orders, Guards: []guard.Config{e.config()}, Handler: g.ServeHTTP},
	)
	talk := s.talk("/chat/" + key)
	for range 3 {
		talk.say("hello\n")
		s.get(order).wantProblem(e, 409, "locked", "1")
	}
	_ = talk.conn.Close()
	lease := await(e, "the chat ends", leases)
	s.get(order).wantProblem(e, 409, "locked", "1") // held until it is released
	if err := lease.Release(background); err != nil {
		e.Errorf("Release: %v", err)
	}
	e.wantFree(lockName)
	p := s.startGet(order)
	g.next().leave()
	p.answer().want(e, 200, "done")
}

func releaseHijacked(e *env) {
	ended := make(chan struct{})
	s := e.serve(
		Route{Method: http.MethodGet, Pattern: "/chat/{id}", Guards: []guard.Config{e.config()}, Handler: func(w http.ResponseWriter, r *http.Request) {
			if err := guard.Release(r.Context()); err != nil {
				e.Errorf("Release: %v", err)
			}
			chat(e, w, background, func() { close(ended) })
		}},
		Route{Method: http.MethodGet, Pattern: orders, Guards: []guard.Config{e.config()}, Handler: func(http.ResponseWriter, *http.Request) {}},
	)
	talk := s.talk("/chat/" + key)
	for range 3 {
		talk.say("hello\n")
		s.get(order).want(e, 200, "")
	}
	_ = talk.conn.Close()
	await(e, "the chat ends", ended)
}

// The stream passes its lock to a goroutine that goes on after the client left.
func detachStream(e *env) {
	leases := make(chan *core.Lease, 1)
	tick := make(chan struct{})
	g := e.gate()
	s := e.serve(
		Route{Pattern: "/events/{id}", Guards: []guard.Config{e.config()}, Handler: func(w http.ResponseWriter, r *http.Request) {
			lease, ok := guard.Detach(r.Context())
			if !ok {
				e.Error("Detach found no lease")
				return
			}
			defer func() { leases <- lease }()
			w.Header().Set("Content-Type", "text/event-stream")
			for {
				_, _ = io.WriteString(w, "data: tick\n\n")
				if err := http.NewResponseController(w).Flush(); err != nil {
					return
				}
				select {
				case <-tick:
				case <-r.Context().Done():
					return
				}
			}
		}},
		Route{Pattern: orders, Guards: []guard.Config{e.config()}, Handler: g.ServeHTTP},
	)
	ctx, hangUp := context.WithCancel(e.Context())
	defer hangUp()
	stream, err := s.client.Do(s.request(http.MethodGet, "/events/"+key, nil).WithContext(ctx))
	if err != nil {
		e.Fatal(err)
	}
	defer stream.Body.Close()
	in := bufio.NewReader(stream.Body)
	for range 3 {
		for _, want := range []string{"data: tick\n", "\n"} {
			if line, err := in.ReadString('\n'); line != want {
				e.Fatalf("the stream says %q (%v), want %q", line, err, want)
			}
		}
		s.get(order).wantProblem(e, 409, "locked", "1")
		select {
		case tick <- struct{}{}:
		case <-time.After(patience):
			e.Fatal("the stream has ended")
		}
	}
	hangUp()
	lease := await(e, "the stream ends", leases)
	s.get(order).wantProblem(e, 409, "locked", "1")
	if err := lease.Release(background); err != nil {
		e.Errorf("Release: %v", err)
	}
	p := s.startGet(order)
	g.next().leave()
	p.answer().want(e, 200, "done")
}

func detachBeyond(e *env) {
	leases := make(chan *core.Lease, 1)
	contexts := make(chan context.Context, 1)
	s := e.serveOrders(func(w http.ResponseWriter, r *http.Request) {
		lease, ok := guard.Detach(r.Context())
		if !ok {
			e.Error("Detach found no lease")
		}
		if _, ok := guard.Detach(r.Context()); ok {
			e.Error("the lease can be detached twice")
		}
		if _, ok := guard.LeaseFrom(r.Context()); ok {
			e.Error("LeaseFrom has a lease after Detach")
		}
		e.wantErr("Release after Detach", guard.Release(r.Context()), core.ErrNotHeld)
		if r.Context().Err() != nil {
			e.Error("the handler's context has ended with Detach")
		}
		leases <- lease
		contexts <- r.Context()
	})
	s.get(order).want(e, 200, "")
	if await(e, "the handler runs", contexts).Err() == nil {
		e.Error("the handler's context has not ended when it returned")
	}
	e.wantHeld(lockName)
	lease := <-leases
	if err := lease.Err(); err != nil {
		e.Errorf("the lease: %v", err)
	}
	s.get(order).wantProblem(e, 409, "locked", "1")
	if err := lease.Release(background); err != nil {
		e.Errorf("Release: %v", err)
	}
	e.wantFree(lockName)
}

func detachSeveral(e *env) {
	leases := make(chan *core.Lease, 1)
	s := e.serveOrders(func(w http.ResponseWriter, r *http.Request) {
		seen, _ := guard.LeaseFrom(r.Context())
		lease, ok := guard.Detach(r.Context())
		if !ok || lease != seen {
			e.Errorf("Detach returned %v, %v; LeaseFrom returned %v", lease, ok, seen)
			return
		}
		e.wantErr("Release after Detach", guard.Release(r.Context()), core.ErrNotHeld)
		leases <- lease
	}, keysAre("b", "a"))
	s.get(order).want(e, 200, "")
	e.wantHeld("reqlock:a")
	e.wantHeld("reqlock:b")
	if err := (<-leases).Release(context.Background()); err != nil {
		e.Errorf("Release: %v", err)
	}
	e.wantFree("reqlock:a")
	e.wantFree("reqlock:b")
}

func releaseSeveral(e *env) {
	s := e.serveOrders(func(w http.ResponseWriter, r *http.Request) {
		e.wantHeld("reqlock:a")
		e.wantHeld("reqlock:b")
		if err := guard.Release(r.Context()); err != nil {
			e.Errorf("Release: %v", err)
		}
		e.wantFree("reqlock:a")
		e.wantFree("reqlock:b")
	}, keysAre("b", "a"))
	s.get(order).want(e, 200, "")
}

func releaseBeforeStream(e *env) {
	streams, others := e.gate(), e.gate()
	s := e.serve(
		Route{Pattern: orders, Guards: []guard.Config{e.config()}, Handler: others.ServeHTTP},
		Route{Pattern: "/streams/{id}", Guards: []guard.Config{e.config()}, Handler: func(w http.ResponseWriter, r *http.Request) {
			lease, _ := guard.LeaseFrom(r.Context())
			if err := guard.Release(r.Context()); err != nil {
				e.Errorf("Release: %v", err)
			}
			e.wantErr("a second Release", guard.Release(r.Context()), core.ErrNotHeld)
			e.wantErr("the lease", lease.Err(), core.ErrReleased)
			if _, ok := guard.LeaseFrom(r.Context()); ok {
				e.Error("LeaseFrom has a lease after Release")
			}
			if _, ok := guard.Detach(r.Context()); ok {
				e.Error("Detach found a lease after Release")
			}
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = io.WriteString(w, "begins\n")
			if err := http.NewResponseController(w).Flush(); err != nil {
				e.Errorf("Flush: %v", err)
			}
			streams.ServeHTTP(w, r)
			if r.Context().Err() != nil {
				e.Error("the handler's context has ended with Release")
			}
		}},
	)
	stream, err := s.client.Do(s.request(http.MethodGet, "/streams/"+key, nil))
	if err != nil {
		e.Fatal(err)
	}
	defer stream.Body.Close()
	in := bufio.NewReader(stream.Body)
	if line, err := in.ReadString('\n'); line != "begins\n" {
		e.Fatalf("read %q (%v)", line, err)
	}
	streaming := streams.next()
	p := s.startGet(order)
	others.next().leave()
	p.answer().want(e, 200, "done")
	streaming.leave()
	if rest, err := io.ReadAll(in); string(rest) != "done" {
		e.Errorf("the stream ends with %q (%v)", rest, err)
	}
	e.wantFree(lockName)
}

func leaseFrom(e *env) {
	s := e.serve(
		Route{Pattern: orders, Guards: []guard.Config{e.config(func(cfg *guard.Config) { cfg.LeaseTime = time.Minute })}, Handler: func(w http.ResponseWriter, r *http.Request) {
			lease, ok := guard.LeaseFrom(r.Context())
			if !ok || lease.Name() != lockName || lease.Err() != nil || lease.Remaining() <= patience {
				e.Errorf("LeaseFrom returned %+v, %v", lease, ok)
			}
		}},
		Route{Pattern: "/free", Handler: wantNoLease(e)},
		Route{Pattern: "/skipped", Guards: []guard.Config{e.config(keyedBy(skip))}, Handler: wantNoLease(e)},
	)
	for _, path := range []string{order, "/free", "/skipped"} {
		s.get(path).want(e, 200, "")
	}
	e.wantFree(lockName)
}

func wantNoLease(e *env) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if lease, ok := guard.LeaseFrom(r.Context()); ok || lease != nil {
			e.Errorf("%s: LeaseFrom returned %v, %v", r.URL.Path, lease, ok)
		}
		if lease, ok := guard.Detach(r.Context()); ok || lease != nil {
			e.Errorf("%s: Detach returned %v, %v", r.URL.Path, lease, ok)
		}
		e.wantErr("Release of nothing", guard.Release(r.Context()), core.ErrNotHeld)
	}
}

func leaseReleasedByHandler(e *env) {
	s := e.serveOrders(func(w http.ResponseWriter, r *http.Request) {
		lease, _ := guard.LeaseFrom(r.Context())
		if err := lease.Release(r.Context()); err != nil {
			e.Errorf("Release: %v", err)
		}
		e.wantFree(lockName)
	})
	s.get(order).want(e, 200, "")
	if o := e.outcome(); o.Err != nil {
		e.Errorf("the outcome is %+v: nothing was lost", o)
	}
}

func skip(*http.Request) (string, error) { return "", keyfuncs.ErrSkip }

// keysAre sets several keys, the same for all requests.
func keysAre(keys ...string) func(*guard.Config) {
	return func(cfg *guard.Config) {
		cfg.Key = nil
		for _, key := range keys {
			cfg.Keys = append(cfg.Keys, keyfuncs.Const(key))
		}
	}
}
