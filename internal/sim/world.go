package sim

import (
	"context"
	cryptorand "crypto/rand"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	"github.com/reqlock/reqlock/core"
)

// A world is one simulation: servers, a network, processes that use locks, faults, and an oracle that knows the truth. All of it
// follows from a seed.
type world struct {
	cfg    config
	seed   uint64
	start  time.Time
	ended  chan struct{}
	sooner chan struct{} // there is an event that is due before the one that run sleeps for
	oracle *oracle
	trace  *trace

	mu       sync.Mutex
	queue    events
	seq      uint64
	nodes    []*node
	machines []*machine // all there ever were
	conns    int
	lines    []*conn  // that were ever made
	changed  []string // names whose keys were written, or have expired, since the last check

	// Faults that are going on.
	slowUntil  time.Duration
	slowness   int
	flakyUntil time.Duration
	flakyPart  float64
	flakyFor   *machine // nil: all
	deafUntil  time.Duration
	faultTill  time.Duration // until when a fault lasts
	uneasyTill time.Duration // until when a fault may have consequences; see unrest
	outageTill time.Duration // the same, of faults for which a command may fail

	stopping   bool // no new work
	operations int
	faults     int
}

// A machine is a process that uses locks, with a Redis client of its own.
type machine struct {
	world *world
	name  string
	locks *core.Client
	redis redis.UniversalClient
	work  sync.WaitGroup

	// Guarded by the world's mutex.
	frozenUntil time.Duration
	cutOff      map[*node]time.Duration
	dead        bool // nothing passes between it and the servers any more
	closing     bool
	abandoned   bool // it died, or was closed when it may not have reached Redis
	abandonedAt time.Duration
}

// now is the time of the simulation.
func (w *world) now() time.Duration { return time.Since(w.start) }

// stream is a source of random numbers of its own for each part of the world, so that one part does not change what another draws.
func (w *world) stream(label string, n uint64) *rand.Rand {
	h := fnv.New64a()
	_, _ = io.WriteString(h, label)
	return rand.New(rand.NewPCG(w.seed, h.Sum64()^n*0x9e3779b97f4a7c15))
}

func (w *world) node(string) *node { return w.nodes[0] }

// nodeOf is the server that has a lock.
func (w *world) nodeOf(string) *node { return w.nodes[0] }

// straggle is the longest that a packet may be under way while others pass. core takes it that a command that it has given up
// arrives no later than CommandTimeout after Redis has answered another.
func (w *world) straggle() time.Duration { return w.cfg.options.CommandTimeout * 9 / 10 }

// flaky draws whether a packet meets with a mishap.
func (w *world) flaky(c *conn) bool {
	return w.flakyUntil > w.now() && (w.flakyFor == nil || w.flakyFor == c.client) && c.rng.Float64() < w.flakyPart
}

// losesMessages draws whether a message does not reach a subscriber.
func (w *world) losesMessages(c *conn) bool {
	return w.deafUntil > w.now() && c.rng.IntN(2) == 0
}

// touch notes that a key was written. If it will expire, it is looked at then.
func (w *world) touch(key string) {
	name := nameOf(key)
	w.change(name)
	n := w.nodeOf(name)
	if v := n.store.keys[key]; v != nil && v.expires != 0 {
		w.at(n.timeOf(v.expires)+time.Microsecond, func() { w.change(name) })
	}
}

// change has the oracle look at a name.
func (w *world) change(name string) {
	for _, known := range w.changed {
		if known == name {
			return
		}
	}
	w.changed = append(w.changed, name)
}

// machineOf is the process of a wire owner, which begins with the name of its client.
func (w *world) machineOf(owner string) *machine {
	client, _, _ := strings.Cut(owner, ".")
	for _, m := range w.machines {
		if m.name == client {
			return m
		}
	}
	return nil
}

// nameOf is the lock that a key belongs to.
func nameOf(key string) string {
	_, rest, found := strings.Cut(key, "{")
	if !found {
		return key
	}
	name, _, _ := strings.Cut(rest, "}")
	return name
}

// newMachine starts a process.
func (w *world) newMachine(name string) *machine {
	m := &machine{world: w, name: name, cutOff: make(map[*node]time.Duration)}
	m.redis = redis.NewClient(&redis.Options{
		Addr:                     w.nodes[0].addr,
		Protocol:                 2,
		PoolSize:                 w.cfg.poolSize,
		DisableIdentity:          true,
		DialerRetries:            1, // more would sleep with a mutex held; see forPubSub
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
		Dialer: func(ctx context.Context, _, addr string) (net.Conn, error) {
			return w.dial(ctx, m, addr)
		},
	})
	opts := w.cfg.options
	opts.Logger = slog.New(logHandler{m})
	opts.LogNames = true
	opts.ClientID = m.name // not that of this process, which differs from run to run
	opts.Observer = core.Observer{
		Acquired: func(ctx context.Context, e core.Event) {
			if op, ok := ctx.Value(opKey{}).(*op); ok {
				op.granted(e)
			}
		},
	}
	locks, err := core.New(m.redis, opts)
	if err != nil {
		panic(err)
	}
	m.locks = locks
	w.mu.Lock()
	w.machines = append(w.machines, m)
	w.mu.Unlock()
	return m
}

// alive reports whether the process has not been killed.
func (m *machine) alive() bool {
	m.world.mu.Lock()
	defer m.world.mu.Unlock()
	return !m.dead
}

// A logHandler puts core's log into the trace.
type logHandler struct{ m *machine }

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
	h.m.world.note(h.m.name, "log: %s", text)
	return nil
}

// A Result is what a simulation has shown.
type Result struct {
	Seed       uint64
	Violations []string
	Trace      func(w io.Writer)
	Simulated  time.Duration
	Operations int // calls of Acquire
	Commands   int // that servers have executed
	Faults     int
	Digest     uint64 // of the whole trace: that of another run of the seed is the same if the runs were
}

// Run simulates the world of a seed. It must be called in a bubble of testing/synctest, which the world's goroutines have all left
// when it returns.
func Run(seed uint64) Result {
	w := &world{
		seed:   seed,
		start:  time.Now(),
		ended:  make(chan struct{}),
		sooner: make(chan struct{}, 1),
		trace:  new(trace),
	}
	w.oracle = newOracle(w)
	w.cfg = newConfig(w.stream("config", 0))
	ids := w.stream("ids", 0)
	defer func(system io.Reader) { cryptorand.Reader = system }(cryptorand.Reader)
	cryptorand.Reader = randReader{ids} // for the ids of clients
	w.note("world", "%s", w.cfg)
	for i := range w.cfg.nodes {
		w.nodes = append(w.nodes, newNode(w, fmt.Sprintf("redis-%d:6379", i), w.cfg.rates[i]))
	}

	var loop sync.WaitGroup
	loop.Go(w.run)
	w.live()
	close(w.ended)
	loop.Wait()

	r := Result{
		Seed:       seed,
		Violations: w.oracle.violations,
		Trace:      func(to io.Writer) { w.trace.print(to, w.oracle.about) },
		Simulated:  w.now(),
		Operations: w.operations,
		Faults:     w.faults,
		Digest:     w.trace.digest(),
	}
	for _, n := range w.nodes {
		r.Commands += n.executed
		n.scripts.state.Close()
	}
	return r
}

type randReader struct{ rng *rand.Rand }

func (r randReader) Read(b []byte) (int, error) {
	for i := range b {
		b[i] = byte(r.rng.Uint32())
	}
	return len(b), nil
}

// live runs the world from its beginning to a quiet end.
func (w *world) live() {
	crew := newCrew(w)
	chaos := newChaos(w, crew)
	chaos.run(w.cfg.length)
	w.oracle.enough(func() {
		w.mu.Lock()
		w.stopping = true
		w.mu.Unlock()
		chaos.heal()
		w.note("world", "no faults from now on, and no new work")
		crew.finish()
		w.settle(crew)
	})
	crew.close()
}

// settle checks that nothing is left when all work is done.
func (w *world) settle(crew *crew) {
	o, opts := w.oracle, w.cfg.options
	// What core frees in the background is free once strays have had their time.
	// A subscription on a dead line is gone after three pings, each after twice PollInterval.
	time.Sleep(3*opts.CommandTimeout + 7*opts.PollInterval + 3*time.Second)
	for _, m := range crew.living() {
		if s := m.locks.Stats(); s != (core.Stats{}) {
			o.violate("", "%s is idle, and its Stats are %+v", m.name, s)
		}
	}
	o.checkFree()

	// A fresh process gets every lock.
	last := w.newMachine("last")
	for _, name := range w.cfg.names {
		patience := o.longestWait(name)
		lease, err := name.locker(last.locks).Acquire(context.Background(), core.AcquireOptions{WaitTime: patience, LeaseTime: time.Minute})
		if err != nil {
			o.violate(name.name, "the last process did not get %s within %s: %v", name.name, patience, err)
			continue
		}
		if err := lease.Release(context.Background()); err != nil {
			o.violate(name.name, "the last process could not release %s: %v", name.name, err)
		}
	}
	crew.machines = append(crew.machines, last)
	crew.closeAll(func(m *machine, err error) {
		if err != nil {
			o.violate("", "%s is idle and cannot be closed: %v", m.name, err)
		}
	})
	time.Sleep(time.Second)
	o.checkEmpty()
}

// closeMachine ends a process in order.
func (m *machine) close(ctx context.Context) error {
	m.world.mu.Lock()
	m.closing = true
	m.world.mu.Unlock()
	err := m.locks.Close(ctx)
	return errors.Join(err, m.redis.Close())
}

// Deterministic is set in binaries that were built with the changed runtime of package replay, in which a seed gives the same run
// every time.
var Deterministic = false
