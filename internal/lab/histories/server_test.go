package histories

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/guard"
	"github.com/reqlock/reqlock/idempotency"
	"github.com/reqlock/reqlock/internal/lab/redistest"
	"github.com/reqlock/reqlock/keyfuncs"
	httplock "github.com/reqlock/reqlock/middleware/nethttp"
)

// serverVariable has the address of Redis, and makes the test binary a server of the soak.
const serverVariable = "REQLOCK_SOAK_REDIS"

// sampleVariable has the time between two samples of a server.
const sampleVariable = "REQLOCK_SOAK_SAMPLE"

// A Sample holds the counts of a server. It sends one from time to time, and a last one when it is
// idle.
type Sample struct {
	// Addr is the address that the server listens on. Only the first sample has it.
	Addr string
	At   time.Time
	// Heap is what is in use after a garbage collection, in bytes.
	Heap       uint64
	Goroutines int

	// core.Observer reports these for each lock.
	Acquired, Released, Lost, RenewFailed int64
	// Fenced is a part of Acquired.
	Fenced int64
	// FencedLeft is how many callers left while they acquired a fenced lock.
	FencedLeft int64
	// Runs counts runs of handlers, and Leases the locks that they held.
	Runs, Leases int64
	// Left is how many requests had clients that left too early.
	Left  int64
	Wrong []string
}

// A server is a web server with a route for each mode, whose handlers check their locks.
type server struct {
	// rdb is the client of the handlers.
	rdb *redis.Client

	acquired, released, lost, renewFailed, fenced, fencedLeft, runs, leases, left atomic.Int64

	mu    sync.Mutex
	wrong []string
}

// complain records a broken promise. It keeps only the first few.
func (s *server) complain(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.wrong) < 20 {
		s.wrong = append(s.wrong, fmt.Sprintf(format, args...))
	}
}

func (s *server) sample() Sample {
	var memory runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&memory)
	s.mu.Lock()
	defer s.mu.Unlock()
	return Sample{
		At: time.Now(), Heap: memory.HeapAlloc, Goroutines: runtime.NumGoroutine(),
		Acquired: s.acquired.Load(), Released: s.released.Load(), Lost: s.lost.Load(), RenewFailed: s.renewFailed.Load(),
		Fenced: s.fenced.Load(), FencedLeft: s.fencedLeft.Load(),
		Runs: s.runs.Load(), Leases: s.leases.Load(), Left: s.left.Load(), Wrong: s.wrong,
	}
}

// observer counts the events of locks.
func (s *server) observer() core.Observer {
	return core.Observer{
		Acquired: func(_ context.Context, e core.Event) {
			s.acquired.Add(1)
			if e.Kind == "fenced" {
				s.fenced.Add(1)
			}
		},
		NotAcquired: func(_ context.Context, e core.Event) {
			if e.Kind == "fenced" && errors.Is(e.Err, context.Canceled) {
				s.fencedLeft.Add(1)
			}
		},
		Released: func(_ context.Context, e core.Event) {
			s.released.Add(1)
			if e.Err != nil {
				s.complain("%s lock %s released: %v", e.Kind, e.Name, e.Err)
			}
		},
		Lost: func(_ context.Context, e core.Event) {
			s.lost.Add(1)
			s.complain("%s lock %s lost: %v", e.Kind, e.Name, e.Err)
		},
		RenewFailed: func(_ context.Context, e core.Event) {
			s.renewFailed.Add(1)
			s.complain("%s lock %s not renewed: %v", e.Kind, e.Name, e.Err)
		},
	}
}

// Write receives the log, which must stay empty.
func (s *server) Write(line []byte) (int, error) {
	s.complain("the log says: %s", strings.TrimSpace(string(line)))
	return len(line), nil
}

// observe counts the outcomes of requests.
func (s *server) observe(_ *http.Request, o guard.Outcome) {
	switch {
	case !o.Ran && o.Status == 499:
		s.left.Add(1)
	case o.Status >= 500 || o.Ran && o.Err != nil:
		s.complain("outcome %+v", o)
	}
}

// A route of the soak. Reads and writes share their locks.
type soakRoute struct {
	path string
	mode guard.Mode
	// name is what the locks are called.
	name  string
	locks int64
	// shared is true if the request is a GET.
	shared bool
}

var soakRoutes = []soakRoute{
	{path: "exclusive", mode: guard.ModeExclusive, name: "exclusive", locks: 1},
	{path: "fair", mode: guard.ModeFair, name: "fair", locks: 1},
	{path: "fenced", mode: guard.ModeFenced, name: "fenced", locks: 1},
	{path: "read", mode: guard.ModeRead, name: "readwrite", locks: 1, shared: true},
	{path: "write", mode: guard.ModeWrite, name: "readwrite", locks: 1},
	{path: "readwrite", mode: guard.ModeReadWrite, name: "readwrite", locks: 1, shared: true},
	{path: "several", mode: guard.ModeExclusive, name: "several", locks: 2},
}

// handler serves the routes: /at-once/fair/7, /wait/fair/7, and /once with an Idempotency-Key.
func (s *server) handler(locks *core.Client) http.Handler {
	log := slog.New(slog.NewTextHandler(s, &slog.HandlerOptions{Level: slog.LevelWarn}))
	mux := http.NewServeMux()
	for _, route := range soakRoutes {
		for prefix, wait := range map[string]time.Duration{"at-once": 0, "wait": 2 * time.Second} {
			cfg := httplock.Config{Mode: route.mode, WaitTime: wait, Logger: log, Observe: s.observe}
			key := keyfuncs.Prefix(route.name+":", keyfuncs.PathValue("id"))
			if route.locks > 1 {
				cfg.Keys = []keyfuncs.Func{key, keyfuncs.Prefix(route.name+":second:", keyfuncs.PathValue("id"))}
			} else {
				cfg.Key = key
			}
			mux.Handle(fmt.Sprintf("/%s/%s/{id}", prefix, route.path), httplock.New(locks, cfg)(s.guarded(route)))
		}
	}
	once := httplock.Idempotent(locks, idempotency.Config{
		Scope: idempotency.ScopeGlobal, WaitTime: 2 * time.Second, TTL: 2 * time.Second, Logger: log,
		Observe: s.observe,
	})
	mux.Handle("POST /once", once(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.runs.Add(1)
		s.leases.Add(1)
		name := "once:" + r.Header.Get("Idempotency-Key")
		s.inside(name, false)
		_, _ = fmt.Fprint(w, "paid")
	})))
	return mux
}

// guarded works under the lock of a route and checks it.
func (s *server) guarded(route soakRoute) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.runs.Add(1)
		s.leases.Add(route.locks)
		lease, held := guard.LeaseFrom(r.Context())
		if !held {
			s.complain("%s runs without a lock", r.URL.Path)
			return
		}
		shared := route.shared && (route.mode == guard.ModeRead || r.Method == http.MethodGet)
		name := route.name + ":" + r.PathValue("id")
		if token, ok := lease.Token(); ok {
			s.fence(name, token)
		}
		s.inside(name, shared)
		if err := lease.Err(); err != nil {
			s.complain("%s: the lease has ended: %v", r.URL.Path, err)
		}
		_, _ = fmt.Fprint(w, "done")
	})
}

// A reader adds this to the count of a name in Redis. A writer adds 1.
const reader = 1000

// inside counts in Redis the handlers that work under a name.
func (s *server) inside(name string, shared bool) {
	ctx, me := context.Background(), int64(1)
	if shared {
		me = reader
	}
	n, err := s.rdb.HIncrBy(ctx, "soak:inside", name, me).Result()
	if err != nil || shared && n%reader != 0 || !shared && n != 1 {
		s.complain("%s: the count of handlers inside is %d (%v), shared %v", name, n, err, shared)
	}
	time.Sleep(time.Duration(rand.Int64N(int64(3 * time.Millisecond))))
	if err := s.rdb.HIncrBy(ctx, "soak:inside", name, -me).Err(); err != nil {
		s.complain("%s: %v", name, err)
	}
}

// fence checks that tokens rise, as a storage service would.
func (s *server) fence(name string, token uint64) {
	ctx := context.Background()
	last, err := s.rdb.HGet(ctx, "soak:tokens", name).Uint64()
	if err != nil && err != redis.Nil || token <= last {
		s.complain("%s: token %d after %d (%v)", name, token, last, err)
	}
	if err := s.rdb.HSet(ctx, "soak:tokens", name, token).Err(); err != nil {
		s.complain("%s: %v", name, err)
	}
}

// runServer serves until in ends, and writes samples to out.
func runServer(addr string, in io.Reader, out io.Writer) error {
	period, err := time.ParseDuration(os.Getenv(sampleVariable))
	if err != nil {
		return err
	}
	s := &server{rdb: redis.NewClient(&redis.Options{Addr: addr})}
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	locks, err := core.New(rdb, core.Options{Observer: s.observer(), Logger: slog.New(slog.NewTextHandler(s, &slog.HandlerOptions{Level: slog.LevelWarn}))})
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	srv := &http.Server{Handler: s.handler(locks), ReadHeaderTimeout: 10 * time.Second}
	served := make(chan error, 1)
	go func() { served <- srv.Serve(listener) }()
	lines := json.NewEncoder(out)
	first := s.sample()
	first.Addr = listener.Addr().String()
	if err := lines.Encode(first); err != nil {
		return err
	}

	over := make(chan struct{})
	go func() {
		defer close(over)
		_, _ = io.Copy(io.Discard, in)
	}()
	ticks := time.NewTicker(period)
	defer ticks.Stop()
	for running := true; running; {
		select {
		case <-ticks.C:
			if err := lines.Encode(s.sample()); err != nil {
				return err
			}
		case <-over:
			running = false
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := srv.Shutdown(ctx); err != nil {
		return fmt.Errorf("shutdown: %w", err)
	}
	<-served
	for locks.Stats() != (core.Stats{}) {
		if ctx.Err() != nil {
			return fmt.Errorf("the lock client is not idle: %+v", locks.Stats())
		}
		time.Sleep(2 * time.Millisecond)
	}
	if err := errors.Join(locks.Close(ctx), rdb.Close(), s.rdb.Close()); err != nil {
		return err
	}
	if err := lines.Encode(s.sample()); err != nil {
		return err
	}
	return redistest.Leaks()
}
