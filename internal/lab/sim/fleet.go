package sim

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/delegation"
)

// A process uses locks, through its own Redis client.
type process struct {
	world *world
	name  string
	locks *core.Client
	redis redis.UniversalClient
	work  sync.WaitGroup

	// Guarded by the world's mutex.
	frozenUntil time.Duration
	// cutOff has the time until which no packet passes, by node.
	cutOff map[*node]time.Duration
	// dead is true if no packet passes any more.
	dead bool
	// closing is true if the process is closing, or dead.
	closing bool
	// abandoned is true if the process may have left entries in Redis. See leftover.
	abandoned   bool
	abandonedAt time.Duration
}

// newProcess starts a process.
func (w *world) newProcess(name string) *process {
	proc := &process{world: w, name: name, cutOff: make(map[*node]time.Duration)}
	proc.redis = redis.NewClient(&redis.Options{
		Addr:                     w.nodes[0].addr,
		Protocol:                 2,
		PoolSize:                 w.cfg.poolSize,
		DisableIdentity:          true,
		DialerRetries:            1, // more retries would sleep while holding a mutex; see forPubSub
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
		Dialer: func(ctx context.Context, _, addr string) (net.Conn, error) {
			return w.dial(ctx, proc, addr)
		},
	})
	opts := w.cfg.options
	opts.Logger = slog.New(logHandler{proc})
	opts.LogNames = true
	opts.ClientID = name // the default differs from run to run
	if w.cfg.guests {
		opts.Delegation = delegation.Service{Keys: delegationKeys(), Name: name}
	}
	opts.Observer = core.Observer{
		Acquired: func(ctx context.Context, e core.Event) {
			if op, ok := ctx.Value(opKey{}).(*op); ok {
				op.granted(e)
			}
		},
	}
	locks, err := core.New(proc.redis, opts)
	if err != nil {
		panic(err)
	}
	proc.locks = locks
	w.mu.Lock()
	w.processes = append(w.processes, proc)
	for _, l := range w.cfg.names {
		if l.kind == "semaphore" {
			w.oracle.declare(l.name, proc.permits(l))
		}
	}
	w.mu.Unlock()
	return proc
}

// permits returns how many permits the process declares that a semaphore has.
func (proc *process) permits(l lockName) int {
	rng := proc.world.stream("permits "+proc.name+" "+l.name, 0)
	if rng.IntN(4) == 0 {
		return 1 + rng.IntN(maxPermits)
	}
	return l.permits
}

// alive reports whether the process was not killed.
func (proc *process) alive() bool {
	proc.world.mu.Lock()
	defer proc.world.mu.Unlock()
	return !proc.dead
}

// abandon notes that the process ends without freeing its locks. The caller has the world's mutex.
func (proc *process) abandon() { proc.abandoned, proc.abandonedAt = true, proc.world.now() }

// close closes the clients of a process.
func (proc *process) close(ctx context.Context) error {
	proc.world.mu.Lock()
	proc.closing = true
	proc.world.mu.Unlock()
	err := proc.locks.Close(ctx)
	return errors.Join(err, proc.redis.Close())
}

// A logHandler adds core's log to the trace.
type logHandler struct{ proc *process }

func (h logHandler) Enabled(context.Context, slog.Level) bool { return true }
func (h logHandler) WithAttrs([]slog.Attr) slog.Handler       { return h }
func (h logHandler) WithGroup(string) slog.Handler            { return h }
func (h logHandler) Handle(_ context.Context, r slog.Record) error {
	text := strings.TrimPrefix(r.Message, "reqlock: ")
	r.Attrs(func(a slog.Attr) bool {
		if a.Key != "change" {
			text += fmt.Sprintf(" %s=%v", a.Key, a.Value)
		}
		return true
	})
	h.proc.world.note(h.proc.name, "log: %s", text)
	return nil
}

// A fleet is the processes of a world.
type fleet struct {
	world *world
	mu    sync.Mutex
	// processes has the running ones.
	processes []*process
	started   int
	replacing sync.WaitGroup
}

func newFleet(w *world) *fleet {
	f := &fleet{world: w}
	for range w.cfg.processes {
		f.start()
	}
	return f
}

// start adds a process with its callers.
func (f *fleet) start() {
	f.started++
	proc := f.world.newProcess(fmt.Sprintf("p%d", f.started))
	f.add(proc)
	for i := range f.world.cfg.callers {
		k := &caller{process: proc, world: f.world, name: fmt.Sprintf("%s.%d", proc.name, i+1)}
		k.rng = f.world.stream("caller "+k.name, 0)
		proc.work.Go(k.run)
	}
}

func (f *fleet) add(proc *process) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.processes = append(f.processes, proc)
}

func (f *fleet) running() []*process {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.processes)
}

// replace ends a process and starts another one. The caller has the world's mutex.
func (f *fleet) replace(proc *process, end func()) {
	proc.closing = true
	f.mu.Lock()
	f.processes = slices.DeleteFunc(f.processes, func(other *process) bool { return other == proc })
	f.mu.Unlock()
	f.replacing.Go(func() {
		end()
		proc.work.Wait()
	})
	f.replacing.Go(f.start)
}

// finish waits for all callers to finish.
func (f *fleet) finish() {
	w := f.world
	done := make(chan struct{})
	go func() {
		defer close(done)
		f.replacing.Wait()
		for _, proc := range f.running() {
			proc.work.Wait()
		}
	}()
	opts := w.cfg.options
	turns := time.Duration(w.cfg.processes*w.cfg.callers + 4)
	longest := turns*(8*w.cfg.meanHold+opts.PollInterval) + longestPoll(opts) + 4*opts.FairWaitTimeout + 4*opts.WatchdogTimeout + time.Minute
	for end := w.now() + longest; w.now() < end; {
		select {
		case <-done:
			return
		case <-time.After(time.Second):
			w.oracle.checkProgress()
		case <-w.oracle.stop:
			return
		}
	}
	w.mu.Lock()
	for p := range w.oracle.pending {
		w.oracle.violate(p.names[0], "%s still waits %s after the last fault", p, longest)
	}
	w.mu.Unlock()
	if !w.oracle.failed() {
		w.oracle.violate("", "a caller still works %s after the last fault", longest)
	}
}

// closeIdle closes all processes, which have no work. Each must be closed without an error and
// without a delay.
func (f *fleet) closeIdle() {
	o := f.world.oracle
	for _, proc := range f.running() {
		began := f.world.now()
		if err := proc.close(context.Background()); err != nil {
			o.violate("", "%s is idle and cannot be closed: %v", proc.name, err)
		}
		if took := f.world.now() - began; took > f.world.cfg.options.CommandTimeout {
			o.violate("", "closing %s, which is idle, took %s", proc.name, took)
		}
	}
	f.mu.Lock()
	f.processes = nil
	f.mu.Unlock()
}

// close ends the remaining processes, whatever their callers do.
func (f *fleet) close() {
	w := f.world
	w.mu.Lock()
	w.stopping = true
	w.mu.Unlock()
	for _, proc := range f.running() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
		_ = proc.close(ctx)
		cancel()
	}
	for _, proc := range f.running() { // the work of one may be in the client of another
		proc.work.Wait()
	}
	f.replacing.Wait()
	for _, proc := range f.running() { // started meanwhile
		_ = proc.close(context.Background())
		proc.work.Wait()
	}
}
