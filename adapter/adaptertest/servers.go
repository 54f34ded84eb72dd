package adaptertest

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/reqlock/reqlock/guard"
)

var servers = []scenario{
	{name: "HTTP/2: 250 streams of one connection exclude each other", run: http2Excludes},
	{name: "HTTP/2: a client that leaves while it waits, with a body", run: http2ClientLeaves},
	{name: "HTTP/2: MaxHold ends the reading of a body", run: http2MaxHold},
	{name: "HTTP/2: MaxHold ends an answer that the client does not read", run: http2MaxHoldUnread},
	{name: "http.TimeoutHandler around the guard", run: timeoutHandler},
	{name: "WaitTime beyond the server's WriteTimeout", run: writeTimeout},
	{name: "the handler's ResponseWriter is the framework's", run: writerNotWrapped},
	{name: "Flush, ReadFrom, deadlines and trailers work", run: writerWorks},
}

func http2(srv *Server) { srv.TLS = identity().Clone() } // each server changes its own

func http2Excludes(fx *fixture) {
	const streams = 250 // the most that a server allows on one connection
	var connections sync.Map
	g := fx.newBlockingHandler()
	s := fx.serveWith(http2, Route{Pattern: orders, Guards: []guard.Config{fx.config(waits)}, Handler: func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor != 2 {
			fx.Errorf("the request is %s", r.Proto)
		}
		connections.Store(r.RemoteAddr, nil)
		g.ServeHTTP(w, r)
	}}, Route{Pattern: "/at-once/{id}", Guards: []guard.Config{fx.config()}, Handler: g.ServeHTTP})

	all := []*pendingRequest{s.startGet(order)}
	inside := g.nextRun() // there is a connection now
	s.get("/at-once/"+key).wantProblem(fx, 409, "locked", "1")
	for len(all) < streams {
		all = append(all, s.startGet(order))
	}
	fx.eventually("all others wait", func() bool { return fx.locks.Stats().Waiting == streams-1 })
	inside.finish()
	for range streams - 1 {
		g.nextRun().finish()
	}
	for _, p := range all {
		p.mustGetAnswer().want(fx, 200, "done")
	}
	g.wantRuns(streams)
	n := 0
	for range connections.Range {
		n++
	}
	if n != 1 {
		fx.Errorf("there were %d connections, want one", n)
	}
}

// HTTP/2 notices a client that left, whether its body was read or not.
func http2ClientLeaves(fx *fixture) {
	fx.mustHold(lockName)
	s := fx.serveWith(http2, Route{Pattern: orders, Guards: []guard.Config{fx.config(waits)}, Handler: func(http.ResponseWriter, *http.Request) {
		fx.Error("the handler ran without the lock")
	}})
	for range 20 {
		p := s.start(s.newRequest(http.MethodPost, order, strings.NewReader("an unread body")))
		fx.eventually("the request waits", func() bool { return fx.locks.Stats().Waiting == 1 })
		p.disconnect()
		if o := fx.outcome(); o.Status != 499 {
			fx.Errorf("the outcome is %+v, want status 499", o)
		}
	}
}

func http2MaxHold(fx *fixture) {
	ends := make(chan error, 1)
	s := fx.serveWith(http2, Route{Pattern: orders, Guards: []guard.Config{fx.config(holdsFor)}, Handler: reads(fx, ends)})
	in, out := io.Pipe()
	defer out.Close()
	s.start(s.newRequest(http.MethodPost, order, in))
	if _, err := io.WriteString(out, "the beginning"); err != nil {
		fx.Fatal(err)
	}
	fx.wantErr("the body ends with", mustReceive(fx, "the handler has read its body", ends), guard.ErrMaxHold)
	fx.eventuallyFree(lockName)
}

// http2MaxHoldUnread shows that the stream ends, and not the connection.
func http2MaxHoldUnread(fx *fixture) {
	ends := make(chan error, 1)
	s := fx.serveWith(http2,
		Route{Pattern: orders, Guards: []guard.Config{fx.config(holdsFor)}, Handler: writesMuch(ends)},
		Route{Pattern: "/next", Handler: func(http.ResponseWriter, *http.Request) {}},
	)
	response, err := s.client.Do(s.newRequest(http.MethodGet, order, nil))
	if err != nil {
		fx.Fatal(err)
	}
	defer response.Body.Close()
	if response.ProtoMajor != 2 {
		fx.Errorf("the answer came by %s", response.Proto)
	}
	fx.wantErr("after the answer, the lease", mustReceive(fx, "the handler has written its answer", ends), nil)
	fx.eventuallyFree(lockName)
	s.get("/next").want(fx, 200, "")
}

func timeoutHandler(fx *fixture) {
	g := fx.newBlockingHandler()
	s := fx.serveWith(around(func(next http.Handler) http.Handler {
		// But not before the handler runs.
		soon := http.TimeoutHandler(next, 4*time.Second, "too late")
		later := http.TimeoutHandler(next, 2*patience, "too late")
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.RawQuery == "first" {
				soon.ServeHTTP(w, r)
			} else {
				later.ServeHTTP(w, r)
			}
		})
	}), Route{Pattern: orders, Guards: []guard.Config{fx.config()}, Handler: g.ServeHTTP})
	first := s.startGet(order + "?first")
	inside := g.nextRun()
	first.mustGetAnswer().want(fx, 503, "too late")
	for range 3 { // the handler still runs, although the client has an answer
		s.get(order).wantProblem(fx, 409, "locked", "1")
	}
	inside.finish()
	fx.eventuallyFree(lockName)
	second := s.startGet(order)
	g.nextRun().finish()
	second.mustGetAnswer().want(fx, 200, "done")
}

func writeTimeout(fx *fixture) {
	for _, test := range []struct {
		write, wait time.Duration
		warnings    int
	}{
		{time.Minute, time.Minute, 1},
		{time.Minute, 2 * time.Minute, 1},
		{time.Minute, time.Minute - 1, 0},
		{0, time.Minute, 0},
		{-time.Second, time.Minute, 0},
	} {
		before := fx.log.count("WriteTimeout")
		s := fx.serveWith(func(srv *Server) { srv.WriteTimeout = test.write }, Route{
			Pattern: orders,
			Guards:  []guard.Config{fx.config(func(cfg *guard.Config) { cfg.WaitTime = test.wait })},
			Handler: func(http.ResponseWriter, *http.Request) {},
		})
		for range 3 {
			s.get(order).want(fx, 200, "")
		}
		if n := fx.log.count("WriteTimeout") - before; n != test.warnings {
			fx.Errorf("WriteTimeout %s, WaitTime %s: %d warnings, want %d", test.write, test.wait, n, test.warnings)
		}
	}
}

func writerNotWrapped(fx *fixture) {
	describeWriter := func(w http.ResponseWriter, r *http.Request) {
		kind := fmt.Sprintf("%T", w)
		_, flusher := w.(http.Flusher)
		_, hijacker := w.(http.Hijacker)
		_, readerFrom := w.(io.ReaderFrom)
		_, stringWriter := w.(io.StringWriter)
		_, unwraps := w.(interface{ Unwrap() http.ResponseWriter })
		_, _ = fmt.Fprintln(w, kind, flusher, hijacker, readerFrom, stringWriter, unwraps)
	}
	s := fx.serve(
		Route{Pattern: "/free/{id}", Handler: describeWriter},
		Route{Pattern: orders, Guards: []guard.Config{fx.config(func(cfg *guard.Config) {
			cfg.MaxHold, cfg.BufferBody = time.Minute, 1000
		})}, Handler: describeWriter},
	)
	s.get(order).want(fx, 200, s.get("/free/"+key).body)
}

func writerWorks(fx *fixture) {
	flushed := make(chan struct{})
	s := fx.serveOrders(func(w http.ResponseWriter, r *http.Request) {
		control := http.NewResponseController(w)
		w.Header().Set("Trailer", "X-End")
		if err := control.SetWriteDeadline(time.Now().Add(time.Minute)); err != nil {
			fx.Errorf("SetWriteDeadline: %v", err)
		}
		if err := control.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
			fx.Errorf("SetReadDeadline: %v", err)
		}
		_, _ = io.WriteString(w, "first\n")
		if err := control.Flush(); err != nil {
			fx.Errorf("Flush: %v", err)
		}
		mustReceive(fx, "the client has the first part", flushed)
		if _, err := io.Copy(w, io.LimitReader(strings.NewReader("second\nthird"), 7)); err != nil {
			fx.Errorf("Copy: %v", err)
		}
		w.Header().Set("X-End", "yes")
	})
	response, err := s.client.Do(s.newRequest(http.MethodGet, order, nil))
	if err != nil {
		fx.Fatal(err)
	}
	defer response.Body.Close()
	in := bufio.NewReader(response.Body)
	if line, err := in.ReadString('\n'); line != "first\n" {
		fx.Errorf("read %q (%v)", line, err)
	}
	close(flushed)
	if rest, err := io.ReadAll(in); string(rest) != "second\n" || err != nil {
		fx.Errorf("then %q (%v)", rest, err)
	}
	if got := response.Trailer.Get("X-End"); got != "yes" {
		fx.Errorf("the trailer is %q", got)
	}
}

// wrapped hides the optional methods of the server's writer from the guard.
func wrapped(srv *Server) {
	srv.Around = func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			next.ServeHTTP(struct{ http.ResponseWriter }{w}, r)
		})
	}
}
