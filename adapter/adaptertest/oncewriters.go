package adaptertest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"slices"
	"strings"
	"time"

	"github.com/reqlock/reqlock/idempotency"
)

var onceWriters = []scenario{
	{name: "once: the writer keeps its optional interfaces", run: onceWriterKinds},
	{name: "once: the writer works", run: onceWriterWorks},
	{name: "once: a writer that only unwraps", run: onceUnwraps},
	{name: "once: nothing is sent before it is stored", run: onceHeldBack},
	{name: "once: a stream is not held back", run: onceStreams},
	{name: "once: early hints", run: onceEarlyHints},
	{name: "once: a hijacked connection", run: onceHijacked},
	{name: "once: an answer that is shorter than promised", run: onceShort},
	{name: "once: an answer that is longer than promised", run: onceLong},
	{name: "once: an answer that goes on after a refused write", run: onceRefusedWrite},
	{name: "once: HTTP/2", run: onceHTTP2},
}

func onceWriterKinds(fx *fixture) {
	describeWriter := func(w http.ResponseWriter, r *http.Request) {
		_, flusher := w.(http.Flusher)
		_, hijacker := w.(http.Hijacker)
		_, readerFrom := w.(io.ReaderFrom)
		_, stringWriter := w.(io.StringWriter)
		_, pusher := w.(http.Pusher)
		_, _ = fmt.Fprintln(w, flusher, hijacker, readerFrom, stringWriter, pusher)
	}
	for _, change := range []func(*Server){func(*Server) {}, http2, wrapped} {
		s := fx.serveWith(change, Route{Pattern: "/free/{id}", Handler: describeWriter}, Route{Pattern: orders, Once: []idempotency.Config{fx.once()}, Handler: describeWriter})
		s.postWithKey("x", with("X-User", s.url)).want(fx, 200, s.postWithKey("x", func(r *http.Request) { r.URL.Path = "/free/1" }).body)
	}
}

func onceWriterWorks(fx *fixture) {
	s := fx.serveOnce(func(w http.ResponseWriter, r *http.Request) {
		control := http.NewResponseController(w)
		if err := control.SetWriteDeadline(time.Now().Add(time.Minute)); err != nil {
			fx.Errorf("SetWriteDeadline: %v", err)
		}
		if err := control.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
			fx.Errorf("SetReadDeadline: %v", err)
		}
		if err := control.EnableFullDuplex(); err != nil {
			fx.Errorf("EnableFullDuplex: %v", err)
		}
		if n, err := io.WriteString(w, "first\n"); n != 6 || err != nil {
			fx.Errorf("WriteString: %d, %v", n, err)
		}
		if n, err := io.Copy(w, io.LimitReader(strings.NewReader("second\nthird"), 7)); n != 7 || err != nil {
			fx.Errorf("Copy: %d, %v", n, err)
		}
		if n, err := io.Copy(w, io.MultiReader(strings.NewReader("third"), failing{})); n != 5 || !errors.Is(err, errExploded) {
			fx.Errorf("Copy of what fails: %d, %v", n, err)
		}
	})
	first := s.postWithKey("x")
	first.wantOwn(fx, 200, "first\nsecond\nthird")
	s.postWithKey("x").wantReplay(fx, first)
}

type failing struct{}

func (failing) Read([]byte) (int, error) { return 0, errExploded }

// onceUnwraps has a writer that only unwraps: http.ResponseController must still reach the
// recorder.
func onceUnwraps(fx *fixture) {
	s := fx.serveWith(around(func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { next.ServeHTTP(unwrapping{w}, r) })
	}), Route{Pattern: orders, Once: []idempotency.Config{fx.once()}, Handler: func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, "one ")
		_ = http.NewResponseController(w).Flush() // the writers of frameworks may hide this one
		_, _ = io.WriteString(w, "two")
	}})
	first := s.postWithKey("x")
	first.wantOwn(fx, 201, "one two")
	fx.outcome()
	if again := s.postWithKey("x"); again.status == 201 {
		again.wantReplay(fx, first)
	} else {
		again.wantProblem(fx, 409, "not-replayable", "")
	}
}

type unwrapping struct{ http.ResponseWriter }

func (w unwrapping) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// onceHeldBack shows that no byte is sent before the record is stored.
func onceHeldBack(fx *fixture) {
	s := fx.serveWith(around(func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			next.ServeHTTP(noting{w, func() {
				if len(fx.records()) != 1 {
					fx.Error("the answer was sent before the record was stored")
				}
			}}, r)
		})
	}), Route{Pattern: orders, Once: []idempotency.Config{fx.once()}, Handler: func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, strings.Repeat("done", 100_000))
	}})
	if a := s.postWithKey("x"); a.status != 201 || len(a.body) != 400_000 {
		fx.Errorf("answer %d with %d bytes", a.status, len(a.body))
	}
}

// A noting writer calls a function before it sends.
type noting struct {
	http.ResponseWriter
	note func()
}

func (w noting) WriteHeader(status int) {
	w.note()
	w.ResponseWriter.WriteHeader(status)
}

func (w noting) Write(p []byte) (int, error) {
	w.note()
	return w.ResponseWriter.Write(p)
}

func onceStreams(fx *fixture) {
	seen, gone := make(chan struct{}), make(chan error, 1)
	s := fx.serveOnce(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "data: 1\n\n")
		if err := http.NewResponseController(w).Flush(); err != nil {
			fx.Errorf("Flush: %v", err)
		}
		mustReceive(fx, "the client has the first event", seen)
		<-r.Context().Done() // the client has left
		gone <- context.Cause(r.Context())
	})
	ctx, hangUp := context.WithCancel(fx.Context())
	defer hangUp()
	response, err := s.client.Do(s.newRequestWithKey("x").WithContext(ctx))
	if err != nil {
		fx.Fatal(err)
	}
	defer response.Body.Close()
	if line, err := bufio.NewReader(response.Body).ReadString('\n'); line != "data: 1\n" {
		fx.Errorf("read %q (%v)", line, err)
	}
	close(seen)
	hangUp()
	fx.wantErr("the stream ends with", mustReceive(fx, "the handler notices", gone), context.Canceled)
	fx.outcome()
	s.postWithKey("x").wantProblem(fx, 409, "not-replayable", "")
}

func onceEarlyHints(fx *fixture) {
	s := fx.serveOnce(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Link", "</style.css>")
		w.WriteHeader(http.StatusEarlyHints)
		w.Header().Set("Link", "</orders/1>")
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, "done")
	})
	var hints []string
	trace := &httptrace.ClientTrace{Got1xxResponse: func(status int, header textproto.MIMEHeader) error {
		hints = append(hints, fmt.Sprint(status, header["Link"]))
		return nil
	}}
	r := s.newRequestWithKey("x")
	first := s.must(s.send(r.WithContext(httptrace.WithClientTrace(r.Context(), trace))))
	first.wantOwn(fx, 201, "done")
	if !slices.Equal(hints, []string{"103 [</style.css>]"}) {
		fx.Errorf("the early hints are %q", hints)
	}
	s.postWithKey("x").wantReplay(fx, first)
}

func onceHijacked(fx *fixture) {
	s := fx.serveOnce(func(w http.ResponseWriter, r *http.Request) {
		conn, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			fx.Errorf("Hijack: %v", err)
			return
		}
		defer conn.Close()
		_, _ = rw.WriteString("HTTP/1.1 299 Mine\r\nContent-Length: 4\r\nConnection: close\r\n\r\nmine")
		_ = rw.Flush()
	})
	s.postWithKey("x").wantOwn(fx, 299, "mine")
	fx.outcome()
	s.postWithKey("x").wantProblem(fx, 409, "not-replayable", "")
}

func onceShort(fx *fixture) {
	c := &counter{}
	s := fx.serveOnce(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", "50")
		c.ServeHTTP(w, r)
	})
	if a := s.send(s.newRequestWithKey("x")); a.err == nil {
		fx.Errorf("the answer is whole: %+v", a)
	}
	fx.outcome()
	s.postWithKey("x").wantProblem(fx, 409, "not-replayable", "")
	c.want(fx, 1)
}

func onceLong(fx *fixture) {
	s := fx.serveOnce(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", "4")
		_, _ = io.WriteString(w, "four")
		if _, err := io.WriteString(w, "five"); !errors.Is(err, http.ErrContentLength) {
			fx.Errorf("the fifth byte: %v", err)
		}
	})
	first := s.postWithKey("x")
	first.wantOwn(fx, 200, "four")
	s.postWithKey("x").wantReplay(fx, first)
}

// After a write beyond Content-Length, net/http refuses all further writes. It cuts the connection
// if the answer is too short then.
func onceRefusedWrite(fx *fixture) {
	for name, rest := range map[string]func(http.ResponseWriter) error{
		"Write":       func(w http.ResponseWriter) error { _, err := w.Write([]byte("six!")); return err },
		"WriteString": func(w http.ResponseWriter) error { _, err := io.WriteString(w, "six!"); return err },
		"Copy":        func(w http.ResponseWriter) error { _, err := io.Copy(w, strings.NewReader("six!")); return err },
		"flushed": func(w http.ResponseWriter) error {
			_ = http.NewResponseController(w).Flush()
			_, err := w.Write([]byte("six!"))
			return err
		},
	} {
		c := &counter{}
		s := fx.serveOnce(func(w http.ResponseWriter, r *http.Request) {
			c.runs.Add(1)
			w.Header().Set("Content-Length", "8")
			_, _ = io.WriteString(w, "four")
			if _, err := io.WriteString(w, "fivefive"); !errors.Is(err, http.ErrContentLength) {
				fx.Errorf("%s: the write beyond the length: %v", name, err)
			}
			if err := rest(w); !errors.Is(err, http.ErrContentLength) {
				fx.Errorf("%s: the write after it: %v", name, err)
			}
		})
		user := with("X-User", name)
		if a := s.send(s.newRequestWithKey("x", user)); a.err == nil {
			fx.Errorf("%s: the answer is whole: %+v", name, a)
		}
		fx.outcome()
		s.postWithKey("x", user).wantProblem(fx, 409, "not-replayable", "")
		fx.outcome()
		c.want(fx, 1)
	}
}

func onceHTTP2(fx *fixture) {
	g := fx.newBlockingHandler()
	s := fx.serveWith(http2, Route{Pattern: orders, Once: []idempotency.Config{fx.once(repeatsWait)}, Handler: g.ServeHTTP})
	all := []*pendingRequest{s.start(s.newRequestWithKey("x"))}
	inside := g.nextRun() // the others share this connection
	for range 20 {
		all = append(all, s.start(s.newRequestWithKey("x")))
	}
	fx.eventually("the repeats wait", func() bool { return fx.locks.Stats().Waiting == 20 })
	inside.finish()
	for _, p := range all {
		p.mustGetAnswer().want(fx, 200, "done")
	}
	g.wantRuns(1)
}
