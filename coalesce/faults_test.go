package coalesce

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/internal/lab/redistest"
	"github.com/reqlock/reqlock/internal/lineage"
)

// A shift is callers in several processes that call Do while faults happen. It writes their history.
type shift struct {
	began   time.Time
	clients []*core.Client
	stop    chan struct{}
	callers sync.WaitGroup

	mu      sync.Mutex
	history history
	// lost, failures, shared and far count runs that have lost their lock, calls that got an error of
	// Redis or of the wait, shared answers, and those that another process has run.
	lost, failures, shared, far int
}

// A value is what a run returns. Each caller marks its own.
type value struct {
	Run   string
	Marks map[string]bool
}

const (
	shiftLease = 200 * time.Millisecond
	shiftWait  = 500 * time.Millisecond
)

func (s *shift) now() time.Duration { return time.Since(s.began) }

// count reads a counter of the shift.
func (s *shift) count(of *int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return *of
}

// call calls Do once, as the random numbers say.
func (s *shift) call(process int, id string, random *rand.Rand) {
	r := &pastRun{id: id, key: fmt.Sprint("report:", random.IntN(2))}
	opts := Options{WaitTime: shiftWait, LeaseTime: shiftLease, Keep: time.Duration(1+random.IntN(20)) * time.Millisecond}
	opts.ErrorFor = [...]time.Duration{-1, opts.Keep}[random.IntN(2)]
	ctx, leave := context.WithTimeout(bg, time.Duration(1+random.IntN(5))*shiftWait/4)
	defer leave()
	stalls, panics := random.IntN(20) == 0, random.IntN(20) == 0
	r.failed = random.IntN(5) == 0
	work := time.Duration(random.IntN(4)) * time.Millisecond
	c := pastCall{process: process, key: r.key, asked: s.now()}
	var result value
	var err error
	func() {
		defer func() { _ = recover() }()
		err = errBroken // if fn panics
		result, c.shared, err = Do(ctx, s.clients[process], r.key, opts, func(ctx context.Context) (value, error) {
			r.begin = s.now()
			s.mu.Lock()
			s.history.runs[id] = r
			s.mu.Unlock()
			// The context ends by a timer, which may be late on a busy machine. The lease looks at the clock.
			lease := lineage.From(ctx).Lease.(*core.Lease)
			held := time.Duration(0)
			for end := r.begin + work; ; time.Sleep(time.Millisecond) {
				now := s.now()
				if ctx.Err() != nil || lease.Err() != nil {
					break
				}
				if held = now; !stalls && now > end {
					break
				}
			}
			if panics {
				panic("boom")
			}
			s.mu.Lock()
			defer s.mu.Unlock()
			if lease.Err() != nil {
				s.lost++
			}
			r.held, r.end = held, s.now()
			r.gone = r.end + shiftLease + opts.Keep
			if r.failed {
				return value{}, errors.New("broken:" + id)
			}
			return value{id, map[string]bool{}}, nil
		})
	}()
	c.ended = s.now()
	s.mu.Lock()
	defer s.mu.Unlock()
	var broken *Error
	text := ""
	if err != nil {
		text, _, _ = strings.Cut(err.Error(), " ")
	}
	switch of, says := strings.CutPrefix(text, "broken:"); {
	case err == nil:
		c.answer, c.marked = result.Run, len(result.Marks) > 0
		result.Marks[id] = true
	case says && (errors.As(err, &broken) || of == id):
		c.answer, c.failed, c.shared = of, true, of != id
	case errors.As(err, &broken): // a panic
	default:
		s.failures++
	}
	if c.shared {
		s.shared++
		if !strings.HasPrefix(c.answer, fmt.Sprint(process, ".")) {
			s.far++
		}
	}
	s.history.calls = append(s.history.calls, c)
}

// Whatever fails, each caller gets an answer of a run that overlapped its wait, or whose record was
// still there, and no one waits for ever.
func TestDo_Faults(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s := &shift{began: time.Now(), stop: make(chan struct{}), history: history{runs: make(map[string]*pastRun)}}
	var proxies []*redistest.Proxy
	for range 3 {
		proxy := server.Proxy(t)
		locks, err := core.New(proxy.Client(t), core.Options{CommandTimeout: shiftWait, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			ctx, cancel := context.WithTimeout(bg, patience)
			defer cancel()
			if err := locks.Close(ctx); err != nil {
				t.Error(err)
			}
		})
		proxies, s.clients = append(proxies, proxy), append(s.clients, locks)
	}
	for process := range proxies {
		for caller := range 8 {
			s.callers.Go(func() {
				random := rand.New(rand.NewPCG(uint64(process), uint64(caller)))
				for n := 0; ; n++ {
					select {
					case <-s.stop:
						return
					case <-time.After(time.Duration(random.IntN(2000)) * time.Microsecond):
						s.call(process, fmt.Sprint(process, ".", caller, ".", n), random)
					}
				}
			})
		}
	}
	// If what must happen does not, the history may say why.
	more := func(what string, of *int, n int) {
		t.Helper()
		before := s.count(of)
		for end := time.Now().Add(patience); s.count(of) < before+n && !t.Failed(); time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Errorf("timed out waiting for %d more %s", n, what)
			}
		}
	}
	for _, fault := range []struct{ begin, end func() }{
		{func() { server.Freeze(t) }, func() { server.Thaw(t) }},
		{proxies[0].Cut, proxies[0].Restore},
		{proxies[1].Stall, proxies[1].Restore},
		{proxies[2].Mute, proxies[2].Restore},
	} {
		more("answers of other processes", &s.far, 20)
		more("runs that lose their lock", &s.lost, 2)
		fault.begin()
		more("calls that fail", &s.failures, 5)
		fault.end()
	}
	more("answers of other processes", &s.far, 20)
	close(s.stop)
	ended := make(chan struct{})
	go func() {
		s.callers.Wait()
		close(ended)
	}()
	receive(t, "the end of all calls", ended)
	all := s.history.violations()
	for _, v := range all[:min(len(all), 10)] {
		t.Error(v)
	}
	t.Logf("%d violations in %d calls and %d runs, of which %d lost their lock; %d answers were shared, %d with another process",
		len(all), len(s.history.calls), len(s.history.runs), s.lost, s.shared, s.far)
	for i, locks := range s.clients {
		eventually(t, fmt.Sprint("client ", i, " has no group"), func() bool { return underWay(locks) == 0 })
	}
}
