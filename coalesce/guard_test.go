package coalesce

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/guard"
	"github.com/reqlock/reqlock/idempotency"
	"github.com/reqlock/reqlock/internal/lab/redistest"
	"github.com/reqlock/reqlock/internal/request"
	"github.com/reqlock/reqlock/keyfuncs"
)

// A site has one handler in several processes. Each run goes on until its end is sent.
type site struct {
	t        *testing.T
	server   *redistest.Server
	rdb      *redis.Client
	locks    []*core.Client
	guards   []*Guard
	running  chan struct{} // receives when a run begins
	ends     chan http.HandlerFunc
	outcomes chan guard.Outcome
}

func newSite(t *testing.T, processes int, cfg Config) *site {
	s := &site{t: t, server: redistest.Start(t), running: make(chan struct{}, 2000), ends: make(chan http.HandlerFunc, 2000), outcomes: make(chan guard.Outcome, 2000)}
	s.rdb = s.server.Client(t)
	for range processes {
		s.add(cfg)
	}
	return s
}

// add starts one more process.
func (s *site) add(cfg Config) {
	s.t.Helper()
	cfg.Logger = slog.New(slog.DiscardHandler)
	cfg.Observe = func(_ *http.Request, o guard.Outcome) { s.outcomes <- o }
	locks := newLocks(s.t, s.server)
	g, err := New(locks, cfg)
	if err != nil {
		s.t.Fatal(err)
	}
	s.locks, s.guards = append(s.locks, locks), append(s.guards, g)
}

// handler returns that of one of the processes.
func (s *site) handler(process int) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.guards[process].Serve(w, r, func(r *http.Request, rec *Recorder) {
			s.running <- struct{}{}
			(<-s.ends)(rec.Wrap(w), r)
		})
	})
}

// get sends a request to a process, and returns where its answer comes.
func (s *site) get(process int, changes ...func(*http.Request)) <-chan *httptest.ResponseRecorder {
	r := httptest.NewRequest("GET", "http://shop/report", nil)
	for _, change := range changes {
		change(r)
	}
	answers := make(chan *httptest.ResponseRecorder, 1)
	go func() {
		w := httptest.NewRecorder()
		defer func() {
			if p := recover(); p != nil {
				w.Code = 0
			}
			answers <- w
		}()
		s.handler(process).ServeHTTP(w, r)
	}()
	return answers
}

// begin is get for a request that runs.
func (s *site) begin(process int, changes ...func(*http.Request)) <-chan *httptest.ResponseRecorder {
	s.t.Helper()
	answers := s.get(process, changes...)
	receive(s.t, "a run", s.running)
	return answers
}

// gather waits until so many requests wait: those that lead for their process, and those behind them.
func (s *site) gather(waiting int) {
	s.t.Helper()
	eventually(s.t, fmt.Sprint(waiting, " requests wait"), func() bool {
		n := 0
		for i := range s.guards {
			n += s.locks[i].Stats().Waiting + waitingWith(s.locks[i])
		}
		return n == waiting
	})
}

func (s *site) finish(h http.HandlerFunc) { s.ends <- h }

func write(text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, text) }
}

func header(name, value string) func(*http.Request) {
	return func(r *http.Request) { r.Header.Set(name, value) }
}

func isShared(w *httptest.ResponseRecorder) bool { return w.Header().Get("Reqlock-Shared") == "1" }

// A thousand requests to three processes get the status, the headers and the body of one run, with a
// few commands to Redis.
func TestServe_OneRunForAll(t *testing.T) {
	t.Parallel()
	s := newSite(t, 3, Config{})
	answers := []<-chan *httptest.ResponseRecorder{s.begin(0)}
	for i := range 999 {
		answers = append(answers, s.get(i%3))
	}
	s.gather(999)
	s.finish(func(w http.ResponseWriter, _ *http.Request) {
		w.Header()["X-Sold"] = []string{"7", "8"}
		w.Header().Set("Content-Type", "text/csv")
		w.WriteHeader(http.StatusAccepted)
		_, _ = io.WriteString(w, "sold,")
		_, _ = io.WriteString(w, "7")
	})
	shared := 0
	for _, answer := range answers {
		w := receive(t, "an answer", answer)
		h := w.Header()
		if w.Code != 202 || w.Body.String() != "sold,7" || fmt.Sprint(h["X-Sold"]) != "[7 8]" || h.Get("Content-Type") != "text/csv" {
			t.Fatalf("answer %d %v %s", w.Code, h, w.Body)
		}
		if isShared(w) {
			shared++
		}
	}
	if shared != 999 || len(s.running) > 0 {
		t.Errorf("%d of 1000 answers are shared, and %d more ran", shared, len(s.running))
	}
	for range 1000 {
		if o := <-s.outcomes; o.Status != 202 || o.Ran == errors.Is(o.Err, ErrShared) {
			t.Fatalf("outcome %+v", o)
		}
	}
	stats := s.rdb.Info(bg, "commandstats").Val()
	_, scripts, _ := strings.Cut(stats, "cmdstat_evalsha:calls=")
	if calls, err := strconv.Atoi(strings.SplitN(scripts, ",", 2)[0]); err != nil || calls > 20 {
		t.Errorf("%d scripts were sent (%v); want a few of each process", calls, err)
	}
}

// Requests of the process that runs wait for it without Redis: their number changes no command.
func TestServe_OneProcess(t *testing.T) {
	t.Parallel()
	s := newSite(t, 1, Config{})
	answers := []<-chan *httptest.ResponseRecorder{s.begin(0)}
	for range 500 {
		answers = append(answers, s.get(0))
	}
	s.gather(500)
	if waiting := s.locks[0].Stats().Waiting; waiting != 0 {
		t.Errorf("%d requests wait for Redis", waiting)
	}
	s.finish(write("7"))
	for _, answer := range answers {
		if w := receive(t, "an answer", answer); w.Body.String() != "7" {
			t.Errorf("answer %d %s", w.Code, w.Body)
		}
	}
	stats := s.rdb.Info(bg, "commandstats").Val()
	_, scripts, _ := strings.Cut(stats, "cmdstat_evalsha:calls=")
	if calls, err := strconv.Atoi(strings.SplitN(scripts, ",", 2)[0]); err != nil || calls > 6 {
		t.Errorf("%d scripts were sent (%v); want those that acquire and release", calls, err)
	}
}

// A kept answer serves requests that come when the run has ended. Unmarked leaves out the header.
func TestServe_Keep(t *testing.T) {
	t.Parallel()
	for _, unmarked := range []bool{false, true} {
		s := newSite(t, 2, Config{Keep: time.Hour, Unmarked: unmarked})
		s.finish(write("7"))
		for i := range 2 {
			w := receive(t, "an answer", s.get(i))
			if w.Body.String() != "7" || isShared(w) != (i == 1 && !unmarked) {
				t.Errorf("answer %d: %v %s", i, w.Header(), w.Body)
			}
		}
	}
	brief := newSite(t, 1, Config{Keep: time.Millisecond})
	for i := range 2 {
		brief.finish(write(strconv.Itoa(i)))
		if w := receive(t, "an answer", brief.get(0)); w.Body.String() != strconv.Itoa(i) || isShared(w) {
			t.Errorf("answer %d after Keep: %s", i, w.Body)
		}
		eventually(t, "the record expires", func() bool { return brief.rdb.DBSize(bg).Val() == 0 })
	}
}

// The client of the run gets its answer while the run goes on.
func TestServe_Streams(t *testing.T) {
	t.Parallel()
	s := newSite(t, 1, Config{})
	srv := httptest.NewServer(s.handler(0))
	defer srv.Close()
	end := make(chan struct{})
	s.finish(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write(make([]byte, 64<<10))
		<-end
	})
	response, err := srv.Client().Get(srv.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if _, err := io.ReadFull(response.Body, make([]byte, 1000)); err != nil {
		t.Error(err)
	}
	close(end)
	if rest, err := io.ReadAll(response.Body); len(rest) != 64<<10-1000 || err != nil {
		t.Errorf("%d bytes more, %v", len(rest), err)
	}
}

// The client of the run leaves, and so does one that waits: the run goes on for the others.
func TestServe_ClientLeaves(t *testing.T) {
	t.Parallel()
	s := newSite(t, 2, Config{})
	ctx, leave := context.WithCancel(bg)
	leaving := func(r *http.Request) { *r = *r.WithContext(ctx) }
	gone := s.begin(0, leaving)
	waiting := s.get(0, leaving)
	s.gather(1)
	stays, remote := s.get(0), s.get(1)
	s.gather(3)
	leave()
	receive(t, "the end of the one that waits", waiting)
	s.finish(func(w http.ResponseWriter, r *http.Request) {
		if r.Context().Err() != nil {
			t.Error("the context of the run has ended")
		}
		write("7")(w, r)
	})
	receive(t, "the end of the run", gone)
	for _, answer := range []<-chan *httptest.ResponseRecorder{stays, remote} {
		if w := receive(t, "an answer", answer); w.Body.String() != "7" || !isShared(w) {
			t.Errorf("answer %d %s", w.Code, w.Body)
		}
	}
}

// The client that asks Redis for all of its process leaves: another one asks.
func TestServe_LeaderLeaves(t *testing.T) {
	t.Parallel()
	s := newSite(t, 2, Config{})
	first := s.begin(0)
	ctx, leave := context.WithCancel(bg)
	leader := s.get(1, func(r *http.Request) { *r = *r.WithContext(ctx) })
	s.gather(1)
	stays := s.get(1)
	s.gather(2)
	leave()
	receive(t, "the end of the leader", leader)
	s.gather(1)
	s.finish(write("7"))
	receive(t, "the run", first)
	if w := receive(t, "an answer", stays); w.Body.String() != "7" || !isShared(w) {
		t.Errorf("answer %d %s", w.Code, w.Body)
	}
}

// When the lease of a run is over, as after the death of its process, one of those who wait runs, in
// any process, and the late answer goes to its own client only.
func TestServe_LeaseTime(t *testing.T) {
	t.Parallel()
	s := newSite(t, 1, Config{LeaseTime: 200 * time.Millisecond})
	s.add(Config{}) // however slow the machine is, the next run keeps its lease
	lost := make(chan struct{})
	first := s.begin(0)
	s.finish(func(w http.ResponseWriter, r *http.Request) {
		<-r.Context().Done()
		<-lost
		write("late")(w, r)
	})
	second := s.get(1)
	receive(t, "the next run", s.running)
	s.finish(write("7"))
	if w := receive(t, "an answer", second); w.Body.String() != "7" || isShared(w) {
		t.Errorf("the next run: %s", w.Body)
	}
	close(lost)
	if w := receive(t, "an answer", first); w.Body.String() != "late" {
		t.Errorf("the first run: %s", w.Body)
	}
	if w := receive(t, "an answer", s.get(0)); w.Body.String() != "7" || !isShared(w) {
		t.Errorf("afterwards: %s", w.Body)
	}
}

// An answer that is not shared lets all who wait run at once, in each process, while its own run may
// go on. From then on, that run ends with its client.
func TestServe_NotShared(t *testing.T) {
	t.Parallel()
	for want, first := range map[string]http.HandlerFunc{
		becauseSetCookie: func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Set-Cookie", "session=1")
			w.WriteHeader(200)
		},
		becausePrivate: func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Cache-Control", "private")
			_, _ = io.WriteString(w, "mine")
		},
		becauseFlushed:  func(w http.ResponseWriter, _ *http.Request) { _ = http.NewResponseController(w).Flush() },
		becauseTooLarge: func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, 11)) },
		becausePartial:  func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(206) },
	} {
		t.Run(want, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, 2, Config{MaxAnswer: 10})
			ctx, leave := context.WithCancel(bg)
			defer leave()
			own := s.begin(0, func(r *http.Request) { *r = *r.WithContext(ctx) })
			others := []<-chan *httptest.ResponseRecorder{s.get(0), s.get(0), s.get(1), s.get(1)}
			s.gather(4)
			s.finish(func(w http.ResponseWriter, r *http.Request) { first(w, r); <-r.Context().Done() })
			for range others {
				receive(t, "a run", s.running) // all at the same time
			}
			for range others {
				s.finish(write("own"))
			}
			for _, answer := range others {
				if w := receive(t, "an answer", answer); w.Body.String() != "own" || isShared(w) || w.Header().Get("Set-Cookie") != "" {
					t.Errorf("answer %v %s", w.Header(), w.Body)
				}
			}
			leave()
			receive(t, "the end of the first run", own)
			for range 5 {
				var because *NotShared
				if o := <-s.outcomes; !errors.As(o.Err, &because) || because.Reason != want || !o.Ran {
					t.Errorf("outcome %+v", o)
				}
			}
		})
	}
}

// With Limit, few of those who run for themselves do so at once in all processes. Who waits for longer
// than WaitTime gets 409.
func TestServe_Limit(t *testing.T) {
	t.Parallel()
	s := newSite(t, 2, Config{Limit: 2})
	own := s.begin(0)
	others := []<-chan *httptest.ResponseRecorder{s.get(0), s.get(0), s.get(0), s.get(1), s.get(1), s.get(1)}
	s.gather(6)
	s.finish(func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Set-Cookie", "session=1") })
	receive(t, "the first run", own)
	for range 2 {
		receive(t, "a run", s.running)
	}
	for waiting := 4; waiting > 0; waiting-- {
		eventually(t, fmt.Sprint(waiting, " requests to wait for their turn"), func() bool {
			return s.locks[0].Stats().Waiting+s.locks[1].Stats().Waiting == waiting
		})
		if len(s.running) > 0 {
			t.Fatal("more than two run")
		}
		s.finish(write("own"))
		receive(t, "a run", s.running)
	}
	s.finish(write("own"))
	s.finish(write("own"))
	for _, answer := range others {
		if w := receive(t, "an answer", answer); w.Body.String() != "own" || isShared(w) {
			t.Errorf("answer %v %s", w.Header(), w.Body)
		}
	}
	for range 7 {
		var because *NotShared
		if o := <-s.outcomes; !errors.As(o.Err, &because) || because.Reason != becauseSetCookie || !o.Ran {
			t.Errorf("outcome %+v", o)
		}
	}
}

// Who waits for the limit does so for what is left of WaitTime.
func TestServe_LimitIsReached(t *testing.T) {
	t.Parallel()
	s := newSite(t, 1, Config{Limit: 1, WaitTime: time.Second / 2})
	own := s.begin(0)
	s.finish(func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Set-Cookie", "session=1") })
	receive(t, "the first run", own)
	alone := s.begin(0)
	if w := receive(t, "an answer", s.get(0)); w.Code != 409 || !strings.Contains(w.Body.String(), "wait-timeout") {
		t.Errorf("answer %d %s", w.Code, w.Body)
	}
	s.finish(write("own"))
	receive(t, "the run", alone)
}

// A run that fails or panics is an error for all who wait. With ErrorFor -1 the next one runs.
func TestServe_Errors(t *testing.T) {
	t.Parallel()
	fails := func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "Internal Server Error", 500) }
	for name, end := range map[string]http.HandlerFunc{
		"500":   fails,
		"panic": func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
	} {
		s := newSite(t, 2, Config{ErrorFor: time.Minute}) // however long those who wait take to ask again
		first := s.begin(0)
		others := []<-chan *httptest.ResponseRecorder{s.get(0), s.get(1)}
		s.gather(2)
		s.finish(end)
		for _, answer := range others {
			if w := receive(t, "an answer", answer); w.Code != 500 || w.Body.String() != "Internal Server Error\n" || !isShared(w) {
				t.Errorf("%s: answer %d %v %s", name, w.Code, w.Header(), w.Body)
			}
		}
		receive(t, "the run", first)

		alone := newSite(t, 2, Config{ErrorFor: -1})
		first = alone.begin(0)
		others = []<-chan *httptest.ResponseRecorder{alone.get(0), alone.get(1)}
		alone.gather(2)
		for range 2 {
			alone.finish(end)
			receive(t, name+": the next run", alone.running)
		}
		alone.finish(write("7"))
		ok := 0
		for _, answer := range append(others, first) {
			if w := receive(t, "an answer", answer); w.Body.String() == "7" {
				ok++
			}
		}
		if ok != 1 {
			t.Errorf("%s: %d requests got the answer of the last run, want 1", name, ok)
		}
	}
}

// Two users of one URL never get the answer of each other, whatever says who they are.
func TestServe_Users(t *testing.T) {
	t.Parallel()
	const pairs = 200
	for name, test := range map[string]struct {
		header string
		cfg    Config
	}{
		"Authorization":         {"Authorization", Config{}},
		"Cookie":                {"Cookie", Config{}},
		"Authorization in Vary": {"Authorization", Config{Vary: []string{"authorization"}}},
		"Cookie in Vary":        {"Cookie", Config{Vary: []string{"Cookie"}}},
		"User":                  {"X-User", Config{User: func(r *http.Request) (string, error) { return r.Header.Get("X-User"), nil }}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, 2, test.cfg)
			for range 2 * pairs {
				s.finish(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.Header.Get(test.header)) })
			}
			var all sync.WaitGroup
			for pair := range pairs {
				for i, user := range []string{"ann", "bob"} {
					all.Go(func() {
						path := func(r *http.Request) { r.RequestURI = fmt.Sprint("/", pair/4) }
						w := receive(t, "an answer", s.get(i, header(test.header, user), path))
						if w.Body.String() != user {
							t.Errorf("%s got the answer of %s", user, w.Body)
						}
					})
				}
			}
			all.Wait()
		})
	}
}

// All who wait in a process send one copy of the body. It is in the budget until the last has it.
// Not parallel: the budget is that of the process.
func TestServe_OneCopy(t *testing.T) {
	const size = 1 << 20
	before := request.BudgetUsed()
	s := newSite(t, 2, Config{})
	runner := s.begin(0)
	sent, end := make(chan *byte, 1000), make(chan struct{})
	var all sync.WaitGroup
	for i := range 1000 {
		all.Go(func() {
			s.handler(i%2).ServeHTTP(slow{httptest.NewRecorder(), sent, end}, httptest.NewRequest("GET", "http://shop/report", nil))
		})
	}
	s.gather(1000)
	s.finish(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, size)) })
	copies := make(map[*byte]bool)
	for range 1000 {
		copies[receive(t, "a body", sent)] = true
	}
	receive(t, "the run", runner)
	if len(copies) != 2 {
		t.Errorf("two processes have %d copies", len(copies))
	}
	if used := request.BudgetUsed() - before; used < 2*size-2*request.Exempt || used > 2*size+request.Exempt {
		t.Errorf("%d bytes of the budget are in use, want those of two copies", used)
	}
	close(end)
	all.Wait()
	if used := request.BudgetUsed() - before; used != 0 {
		t.Errorf("%d bytes of the budget are in use at the end", used)
	}
}

// A slow writer tells where the body is that it sends.
type slow struct {
	http.ResponseWriter
	sent chan *byte
	end  chan struct{}
}

func (s slow) Write(p []byte) (int, error) {
	s.sent <- &p[0]
	<-s.end
	return len(p), nil
}

// A client that has the answer gets 304, and the run never knows what its own client has.
func TestServe_Conditional(t *testing.T) {
	t.Parallel()
	s := newSite(t, 2, Config{Keep: time.Hour})
	s.finish(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("If-None-Match") != "" {
			w.WriteHeader(http.StatusNotModified)
			return
		}
		w.Header().Set("Etag", `"1"`)
		_, _ = io.WriteString(w, "7")
	})
	has := header("If-None-Match", `"1"`)
	if w := receive(t, "an answer", s.get(0, has)); w.Code != 200 || w.Body.String() != "7" {
		t.Errorf("the run: answer %d %s", w.Code, w.Body)
	}
	if w := receive(t, "an answer", s.get(1, has)); w.Code != 304 || w.Body.Len() > 0 || w.Header().Get("Etag") != `"1"` || w.Header().Get("Content-Type") != "" {
		t.Errorf("one who has it: answer %d %v %s", w.Code, w.Header(), w.Body)
	}
	if w := receive(t, "an answer", s.get(1, header("If-None-Match", `"2"`))); w.Code != 200 || w.Body.String() != "7" {
		t.Errorf("one who has another: answer %d %s", w.Code, w.Body)
	}
	s.finish(write("part"))
	if w := receive(t, "an answer", s.get(1, header("Range", "bytes=0-0"))); w.Body.String() != "part" {
		t.Errorf("a Range: answer %s", w.Body)
	}
}

// No one waits longer than WaitTime, in the process that runs and in others.
func TestServe_WaitTime(t *testing.T) {
	t.Parallel()
	s := newSite(t, 2, Config{WaitTime: 10 * time.Millisecond})
	run := s.begin(0)
	for i := range 2 {
		if w := receive(t, "an answer", s.get(i)); w.Code != 409 || !strings.Contains(w.Body.String(), "wait-timeout") {
			t.Errorf("process %d: answer %d %s", i, w.Code, w.Body)
		}
	}
	s.finish(write("7"))
	receive(t, "the run", run)
}

func TestServe_MaxWaiters(t *testing.T) {
	t.Parallel()
	s := newSite(t, 1, Config{MaxWaiters: 1})
	run, waits := s.begin(0), s.get(0)
	s.gather(1)
	if w := receive(t, "an answer", s.get(0)); w.Code != 503 || !strings.Contains(w.Body.String(), "queue-full") {
		t.Errorf("answer %d %s", w.Code, w.Body)
	}
	s.finish(write("7"))
	receive(t, "the run", run)
	receive(t, "an answer", waits)
}

// Only with FailOpen does a request run while Redis is down.
func TestServe_FailOpen(t *testing.T) {
	t.Parallel()
	for _, open := range []bool{false, true} {
		s := newSite(t, 1, Config{FailOpen: open})
		s.server.Kill(t)
		s.finish(write("7"))
		if w := receive(t, "an answer", s.get(0)); (w.Body.String() == "7") != open || (w.Code == 503) == open {
			t.Errorf("FailOpen %v: answer %d %s", open, w.Code, w.Body)
		}
	}
}

// sealed returns a Codec with a key.
func sealed(t *testing.T, key byte) idempotency.Codec {
	block, err := aes.NewCipher(append(make([]byte, 31), key))
	if err != nil {
		t.Fatal(err)
	}
	gcm, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		t.Fatal(err)
	}
	return idempotency.AEAD(gcm)
}

// Redis does not see a sealed answer. Another process opens it, and one without the key runs.
func TestServe_Codec(t *testing.T) {
	t.Parallel()
	s := newSite(t, 3, Config{Codec: sealed(t, 1), Keep: time.Hour})
	s.guards[2].cfg.Codec = sealed(t, 2)
	s.finish(write("a secret answer"))
	for i := range 2 {
		if w := receive(t, "an answer", s.get(i)); w.Body.String() != "a secret answer" || isShared(w) != (i == 1) {
			t.Errorf("process %d: %s", i, w.Body)
		}
	}
	keys := s.rdb.Keys(bg, "*").Val()
	if len(keys) == 0 {
		t.Error("Redis has no record")
	}
	for _, key := range keys {
		if text, err := s.rdb.Get(bg, key).Result(); err == nil && strings.Contains(text, "secret") {
			t.Errorf("Redis has %q", text)
		}
	}
	s.finish(write("own"))
	if w := receive(t, "an answer", s.get(2)); w.Body.String() != "own" || isShared(w) {
		t.Errorf("the process with another key: %s", w.Body)
	}
}

// A run that asks for what it makes does not wait for itself.
func TestServe_Nested(t *testing.T) {
	t.Parallel()
	s := newSite(t, 1, Config{})
	s.finish(func(w http.ResponseWriter, r *http.Request) { s.handler(0).ServeHTTP(w, r) })
	s.finish(write("7"))
	if w := receive(t, "an answer", s.get(0)); w.Body.String() != "7" {
		t.Errorf("answer %d %s", w.Code, w.Body)
	}
}

func TestConfig_Validate(t *testing.T) {
	t.Parallel()
	for says, cfg := range map[string]Config{
		"Vary":       {Vary: []string{"*"}},
		"Unsafe":     {Unsafe: "the POST is a query"},
		"Policy":     {Key: keyfuncs.Path(), Policy: func(*http.Request, *guard.Policy) error { return nil }},
		"MaxWaiters": {MaxWaiters: -2},
		"Keep":       {Keep: 2 * time.Hour},
		"Keep is 0":  {Stale: time.Minute},
		"Stale is -": {Keep: time.Minute, Stale: -time.Second},
		"Stale is 2": {Keep: time.Minute, Stale: 2 * time.Hour},
		"Stale is 1": {Keep: time.Minute, Stale: time.Microsecond},
		"ErrorFor":   {ErrorFor: time.Microsecond},
		"MaxAnswer":  {MaxAnswer: -1},
		"Limit":      {Limit: -1},
		"WaitTime":   {WaitTime: -1},
		"LeaseTime":  {LeaseTime: time.Microsecond},
	} {
		if err := cfg.Validate(); !errors.Is(err, ErrInvalidConfig) || !strings.Contains(err.Error(), says) {
			t.Errorf("%+v: %v, want one about %s", cfg, err, says)
		}
	}
	if _, err := New(nil, Config{}); !errors.Is(err, ErrInvalidConfig) {
		t.Errorf("no client: %v", err)
	}
}

// What is not an answer of this version is refused, and none is changed on its way through Redis.
func TestDecodeAnswer(t *testing.T) {
	t.Parallel()
	a := &answer{status: 200, born: time.UnixMilli(1_764_000_000_123), header: http.Header{"A": {"1", ""}, "B": {}}, body: []byte("body")}
	data := a.encode(true)
	got, err := decodeAnswer(data)
	if err != nil || got.status != 200 || !got.born.Equal(a.born) || fmt.Sprint(got.header) != fmt.Sprint(a.header) || string(got.body) != "body" {
		t.Errorf("%+v, %v", got, err)
	}
	if got, err := decodeAnswer((&answer{because: "vary"}).encode(true)); err != nil || got.because != "vary" {
		t.Errorf("%+v, %v", got, err)
	}
	for size := range len(data) - len("body") {
		if _, err := decodeAnswer(data[:size]); err == nil {
			t.Errorf("the first %d bytes are an answer", size)
		}
	}
	for _, data := range []string{"", "RQLI\x01A", "RQLC\x02A\xc8\x01\x00\x00", "RQLC\x01X", "RQLC\x01Nodd", "RQLC\x01A\x10\x00\x00"} {
		if _, err := decodeAnswer([]byte(data)); err == nil {
			t.Errorf("%q is an answer", data)
		}
	}
}
