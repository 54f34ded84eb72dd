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
func chat(fx *fixture, w http.ResponseWriter, ctx context.Context, ended func()) {
	conn, rw, err := http.NewResponseController(w).Hijack()
	if err != nil {
		fx.Errorf("Hijack: %v", err)
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
	fx   *fixture
	conn net.Conn
	in   *bufio.Reader
}

func (s *testServer) talk(path string) *talk {
	s.fx.Helper()
	conn := s.dial()
	_, _ = io.WriteString(conn, "GET "+path+" HTTP/1.1\r\nHost: test\r\nConnection: Upgrade\r\nUpgrade: chat\r\n\r\n")
	in := bufio.NewReader(conn)
	for _, want := range []string{"HTTP/1.1 101 Switching Protocols\r\n", "Connection: Upgrade\r\n", "Upgrade: chat\r\n", "\r\n"} {
		if line, err := in.ReadString('\n'); line != want {
			s.fx.Fatalf("read %q (%v), want %q", line, err, want)
		}
	}
	s.fx.outcome() // the handler has returned
	return &talk{s.fx, conn, in}
}

func (t *talk) say(line string) {
	t.fx.Helper()
	_, _ = io.WriteString(t.conn, line)
	if got, err := t.in.ReadString('\n'); got != line {
		t.fx.Fatalf("the connection says %q (%v), want %q", got, err, line)
	}
}

func detachHijacked(fx *fixture) {
	leases := make(chan *core.Lease, 1)
	g := fx.newBlockingHandler()
	s := fx.serve(
		Route{Method: http.MethodGet, Pattern: "/chat/{id}", Guards: []guard.Config{fx.config()}, Handler: func(w http.ResponseWriter, r *http.Request) {
			lease, ok := guard.Detach(r.Context())
			if !ok {
				fx.Error("Detach found no lease")
				return
			}
			ctx, unbind := lease.Bind(context.WithoutCancel(r.Context()))
			chat(fx, w, ctx, func() { unbind(); leases <- lease })
		}},
		Route{Method: http.MethodGet, Pattern: orders, Guards: []guard.Config{fx.config()}, Handler: g.ServeHTTP},
	)
	talk := s.talk("/chat/" + key)
	for range 3 {
		talk.say("hello\n")
		s.get(order).wantProblem(fx, 409, "locked", "1")
	}
	_ = talk.conn.Close()
	lease := mustReceive(fx, "the chat ends", leases)
	s.get(order).wantProblem(fx, 409, "locked", "1") // held until it is released
	if err := lease.Release(background); err != nil {
		fx.Errorf("Release: %v", err)
	}
	fx.wantFree(lockName)
	p := s.startGet(order)
	g.nextRun().finish()
	p.mustGetAnswer().want(fx, 200, "done")
}

func releaseHijacked(fx *fixture) {
	ended := make(chan struct{})
	s := fx.serve(
		Route{Method: http.MethodGet, Pattern: "/chat/{id}", Guards: []guard.Config{fx.config()}, Handler: func(w http.ResponseWriter, r *http.Request) {
			if err := guard.Release(r.Context()); err != nil {
				fx.Errorf("Release: %v", err)
			}
			chat(fx, w, background, func() { close(ended) })
		}},
		Route{Method: http.MethodGet, Pattern: orders, Guards: []guard.Config{fx.config()}, Handler: func(http.ResponseWriter, *http.Request) {}},
	)
	talk := s.talk("/chat/" + key)
	for range 3 {
		talk.say("hello\n")
		s.get(order).want(fx, 200, "")
	}
	_ = talk.conn.Close()
	mustReceive(fx, "the chat ends", ended)
}

// The stream passes its lock to a goroutine that goes on after the client left.
func detachStream(fx *fixture) {
	leases := make(chan *core.Lease, 1)
	tick := make(chan struct{})
	g := fx.newBlockingHandler()
	s := fx.serve(
		Route{Pattern: "/events/{id}", Guards: []guard.Config{fx.config()}, Handler: func(w http.ResponseWriter, r *http.Request) {
			lease, ok := guard.Detach(r.Context())
			if !ok {
				fx.Error("Detach found no lease")
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
		Route{Pattern: orders, Guards: []guard.Config{fx.config()}, Handler: g.ServeHTTP},
	)
	ctx, hangUp := context.WithCancel(fx.Context())
	defer hangUp()
	stream, err := s.client.Do(s.newRequest(http.MethodGet, "/events/"+key, nil).WithContext(ctx))
	if err != nil {
		fx.Fatal(err)
	}
	defer stream.Body.Close()
	in := bufio.NewReader(stream.Body)
	for range 3 {
		for _, want := range []string{"data: tick\n", "\n"} {
			if line, err := in.ReadString('\n'); line != want {
				fx.Fatalf("the stream says %q (%v), want %q", line, err, want)
			}
		}
		s.get(order).wantProblem(fx, 409, "locked", "1")
		select {
		case tick <- struct{}{}:
		case <-time.After(patience):
			fx.Fatal("the stream has ended")
		}
	}
	hangUp()
	lease := mustReceive(fx, "the stream ends", leases)
	s.get(order).wantProblem(fx, 409, "locked", "1")
	if err := lease.Release(background); err != nil {
		fx.Errorf("Release: %v", err)
	}
	p := s.startGet(order)
	g.nextRun().finish()
	p.mustGetAnswer().want(fx, 200, "done")
}

func detachBeyond(fx *fixture) {
	leases := make(chan *core.Lease, 1)
	contexts := make(chan context.Context, 1)
	s := fx.serveOrders(func(w http.ResponseWriter, r *http.Request) {
		lease, ok := guard.Detach(r.Context())
		if !ok {
			fx.Error("Detach found no lease")
		}
		if _, ok := guard.Detach(r.Context()); ok {
			fx.Error("the lease can be detached twice")
		}
		if _, ok := guard.LeaseFrom(r.Context()); ok {
			fx.Error("LeaseFrom has a lease after Detach")
		}
		fx.wantErr("Release after Detach", guard.Release(r.Context()), core.ErrNotHeld)
		if r.Context().Err() != nil {
			fx.Error("the handler's context has ended with Detach")
		}
		leases <- lease
		contexts <- r.Context()
	})
	s.get(order).want(fx, 200, "")
	if mustReceive(fx, "the handler runs", contexts).Err() == nil {
		fx.Error("the handler's context has not ended when it returned")
	}
	fx.wantHeld(lockName)
	lease := <-leases
	if err := lease.Err(); err != nil {
		fx.Errorf("the lease: %v", err)
	}
	s.get(order).wantProblem(fx, 409, "locked", "1")
	if err := lease.Release(background); err != nil {
		fx.Errorf("Release: %v", err)
	}
	fx.wantFree(lockName)
}

func detachSeveral(fx *fixture) {
	leases := make(chan *core.Lease, 1)
	s := fx.serveOrders(func(w http.ResponseWriter, r *http.Request) {
		seen, _ := guard.LeaseFrom(r.Context())
		lease, ok := guard.Detach(r.Context())
		if !ok || lease != seen {
			fx.Errorf("Detach returned %v, %v; LeaseFrom returned %v", lease, ok, seen)
			return
		}
		fx.wantErr("Release after Detach", guard.Release(r.Context()), core.ErrNotHeld)
		leases <- lease
	}, keysAre("b", "a"))
	s.get(order).want(fx, 200, "")
	fx.wantHeld("reqlock:a")
	fx.wantHeld("reqlock:b")
	if err := (<-leases).Release(context.Background()); err != nil {
		fx.Errorf("Release: %v", err)
	}
	fx.wantFree("reqlock:a")
	fx.wantFree("reqlock:b")
}

func releaseSeveral(fx *fixture) {
	s := fx.serveOrders(func(w http.ResponseWriter, r *http.Request) {
		fx.wantHeld("reqlock:a")
		fx.wantHeld("reqlock:b")
		if err := guard.Release(r.Context()); err != nil {
			fx.Errorf("Release: %v", err)
		}
		fx.wantFree("reqlock:a")
		fx.wantFree("reqlock:b")
	}, keysAre("b", "a"))
	s.get(order).want(fx, 200, "")
}

func releaseBeforeStream(fx *fixture) {
	streams, others := fx.newBlockingHandler(), fx.newBlockingHandler()
	s := fx.serve(
		Route{Pattern: orders, Guards: []guard.Config{fx.config()}, Handler: others.ServeHTTP},
		Route{Pattern: "/streams/{id}", Guards: []guard.Config{fx.config()}, Handler: func(w http.ResponseWriter, r *http.Request) {
			lease, _ := guard.LeaseFrom(r.Context())
			if err := guard.Release(r.Context()); err != nil {
				fx.Errorf("Release: %v", err)
			}
			fx.wantErr("a second Release", guard.Release(r.Context()), core.ErrNotHeld)
			fx.wantErr("the lease", lease.Err(), core.ErrReleased)
			if _, ok := guard.LeaseFrom(r.Context()); ok {
				fx.Error("LeaseFrom has a lease after Release")
			}
			if _, ok := guard.Detach(r.Context()); ok {
				fx.Error("Detach found a lease after Release")
			}
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = io.WriteString(w, "begins\n")
			if err := http.NewResponseController(w).Flush(); err != nil {
				fx.Errorf("Flush: %v", err)
			}
			streams.ServeHTTP(w, r)
			if r.Context().Err() != nil {
				fx.Error("the handler's context has ended with Release")
			}
		}},
	)
	stream, err := s.client.Do(s.newRequest(http.MethodGet, "/streams/"+key, nil))
	if err != nil {
		fx.Fatal(err)
	}
	defer stream.Body.Close()
	in := bufio.NewReader(stream.Body)
	if line, err := in.ReadString('\n'); line != "begins\n" {
		fx.Fatalf("read %q (%v)", line, err)
	}
	streaming := streams.nextRun()
	p := s.startGet(order)
	others.nextRun().finish()
	p.mustGetAnswer().want(fx, 200, "done")
	streaming.finish()
	if rest, err := io.ReadAll(in); string(rest) != "done" {
		fx.Errorf("the stream ends with %q (%v)", rest, err)
	}
	fx.wantFree(lockName)
}

func leaseFrom(fx *fixture) {
	s := fx.serve(
		Route{Pattern: orders, Guards: []guard.Config{fx.config(func(cfg *guard.Config) { cfg.LeaseTime = time.Minute })}, Handler: func(w http.ResponseWriter, r *http.Request) {
			lease, ok := guard.LeaseFrom(r.Context())
			if !ok || lease.Name() != lockName || lease.Err() != nil || lease.Remaining() <= patience {
				fx.Errorf("LeaseFrom returned %+v, %v", lease, ok)
			}
		}},
		Route{Pattern: "/free", Handler: wantNoLease(fx)},
		Route{Pattern: "/skipped", Guards: []guard.Config{fx.config(keyedBy(skip))}, Handler: wantNoLease(fx)},
	)
	for _, path := range []string{order, "/free", "/skipped"} {
		s.get(path).want(fx, 200, "")
	}
	fx.wantFree(lockName)
}

func wantNoLease(fx *fixture) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if lease, ok := guard.LeaseFrom(r.Context()); ok || lease != nil {
			fx.Errorf("%s: LeaseFrom returned %v, %v", r.URL.Path, lease, ok)
		}
		if lease, ok := guard.Detach(r.Context()); ok || lease != nil {
			fx.Errorf("%s: Detach returned %v, %v", r.URL.Path, lease, ok)
		}
		fx.wantErr("Release of nothing", guard.Release(r.Context()), core.ErrNotHeld)
	}
}

func leaseReleasedByHandler(fx *fixture) {
	s := fx.serveOrders(func(w http.ResponseWriter, r *http.Request) {
		lease, _ := guard.LeaseFrom(r.Context())
		if err := lease.Release(r.Context()); err != nil {
			fx.Errorf("Release: %v", err)
		}
		fx.wantFree(lockName)
	})
	s.get(order).want(fx, 200, "")
	if o := fx.outcome(); o.Err != nil {
		fx.Errorf("the outcome is %+v: nothing was lost", o)
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
