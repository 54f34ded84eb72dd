package sim

import (
	"context"
	cryptorand "crypto/rand"
	"fmt"
	"hash/fnv"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/reqlock/reqlock/core"
)

// A world is one simulation: servers, a network, processes that use locks, faults, and an oracle.
// The seed determines all of it.
type world struct {
	cfg    config
	seed   uint64
	start  time.Time
	ended  chan struct{}
	sooner chan struct{} // an event is due before the one that run sleeps for
	oracle *oracle
	trace  *trace

	mu    sync.Mutex
	queue events
	seq   uint64
	nodes []*node
	// processes and conns include ended ones.
	processes []*process
	conns     []*conn
	dials     int
	changed   []string // locks whose keys were written or expired since the last check

	// Faults.
	slowUntil  time.Duration
	slowFactor int
	flakyUntil time.Duration
	flakyRate  float64
	// flakyProcess is nil if all are flaky.
	flakyProcess      *process
	dropMessagesUntil time.Duration
	// faultUntil is when the last fault ends.
	faultUntil time.Duration
	// disturbedUntil is when its effects end. See disturb.
	disturbedUntil time.Duration
	// outageUntil is when the effects of faults end that make commands fail.
	outageUntil time.Duration

	stopping   bool // callers begin no new work
	operations int
	faults     int
	guests     int
}

// now returns the time since the start of the simulation.
func (w *world) now() time.Duration { return time.Since(w.start) }

// stream returns a source of random numbers for one part of the world, so that no part changes what
// another one draws. The labels also determine the worlds of the seeds in testdata.
func (w *world) stream(label string, n uint64) *rand.Rand {
	h := fnv.New64a()
	_, _ = io.WriteString(h, label)
	return rand.New(rand.NewPCG(w.seed, h.Sum64()^n*0x9e3779b97f4a7c15))
}

func (w *world) node(string) *node { return w.nodes[0] }

// kindOf returns the kind of a lock. A call of Acquire may be for one of its sides, or for several
// locks.
func (w *world) kindOf(name string) string {
	i := slices.IndexFunc(w.cfg.names, func(l lockName) bool { return l.name == name })
	return w.cfg.names[i].kind
}

// nodeOf returns the server of a lock.
func (w *world) nodeOf(string) *node { return w.nodes[0] }

// maxDelay bounds the delay of a packet on its own connection. core assumes that a command it gave
// up arrives at most CommandTimeout after Redis has answered another one.
func (w *world) maxDelay() time.Duration { return w.cfg.options.CommandTimeout * 9 / 10 }

// flaky draws whether the network disrupts a packet.
func (w *world) flaky(c *conn) bool {
	return w.flakyUntil > w.now() && (w.flakyProcess == nil || w.flakyProcess == c.client) && c.rng.Float64() < w.flakyRate
}

// dropsMessage draws whether a subscriber misses a message.
func (w *world) dropsMessage(c *conn) bool {
	return w.dropMessagesUntil > w.now() && c.rng.IntN(2) == 0
}

// written notes that a key was written. If it has a TTL, the lock changes again when it expires, and so
// it does when a permit expires.
func (w *world) written(key string) {
	name := nameOf(key)
	w.change(name)
	n := w.nodeOf(name)
	if at, ok := n.expires(key); ok {
		w.at(at+time.Microsecond, func() { w.change(name) })
	}
	if isTaken(key) {
		n.changed = append(n.changed, name)
		for _, p := range n.permits(name) {
			w.at(p.until+time.Microsecond, func() { w.change(name) })
		}
	}
}

// change makes the oracle check a lock.
func (w *world) change(name string) {
	if !slices.Contains(w.changed, name) {
		w.changed = append(w.changed, name)
	}
}

// processOf returns the process of a wire owner, which begins with the name of the process.
func (w *world) processOf(owner string) *process {
	name, _, _ := strings.Cut(owner, ".")
	for _, proc := range w.processes {
		if proc.name == name {
			return proc
		}
	}
	return nil
}

// nameOf returns the lock that a key belongs to.
func nameOf(key string) string {
	_, rest, found := strings.Cut(key, "{")
	if !found {
		return key
	}
	name, _, _ := strings.Cut(rest, "}")
	return name
}

// A Result is the outcome of a simulation.
type Result struct {
	Seed       uint64
	Violations []string
	Trace      func(w io.Writer)
	Simulated  time.Duration
	// Operations counts calls of Acquire.
	Operations int
	// Guests counts those of them that entered as a guest.
	Guests int
	// Commands counts what servers executed.
	Commands int
	Faults   int
	// Digest identifies the trace. Equal runs have equal digests.
	Digest uint64
}

// Run simulates the world of a seed. It must be called in a testing/synctest bubble. When it
// returns, the world's goroutines have ended.
func Run(seed uint64) Result {
	w := &world{
		seed:   seed,
		start:  time.Now(),
		ended:  make(chan struct{}),
		sooner: make(chan struct{}, 1),
		trace:  new(trace),
	}
	w.oracle = newOracle(w)
	w.cfg = newConfig(w.stream("config", 0), w.stream("semaphores", 0))
	if hasGuests(seed) {
		w.haveGuests(w.stream("guests", 0))
	}
	ids := w.stream("ids", 0)
	defer func(system io.Reader) { cryptorand.Reader = system }(cryptorand.Reader)
	cryptorand.Reader = &randReader{rng: ids} // It is read for the IDs of clients and for tokens.
	w.note("world", "%s", w.cfg)
	for i := range w.cfg.nodes {
		w.nodes = append(w.nodes, newNode(w, fmt.Sprintf("redis-%d:6379", i), w.cfg.clockRates[i]))
	}

	var loop sync.WaitGroup
	loop.Go(w.run)
	w.live()
	close(w.ended)
	loop.Wait()
	time.Sleep(redialPause)

	r := Result{
		Seed:       seed,
		Violations: w.oracle.violations,
		Trace:      func(to io.Writer) { w.trace.print(to, w.oracle.about) },
		Simulated:  w.now(),
		Operations: w.operations,
		Guests:     w.guests,
		Faults:     w.faults,
		Digest:     w.trace.digest(),
	}
	for _, n := range w.nodes {
		r.Commands += n.executed
		n.scripts.Close()
	}
	return r
}

// redialPause is a little longer than a goroutine of go-redis sleeps after it has failed to dial in
// the background. Then it finds out that its client is closed.
const redialPause = 1100 * time.Millisecond

type randReader struct {
	mu  sync.Mutex
	rng *rand.Rand
}

func (r *randReader) Read(b []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range b {
		b[i] = byte(r.rng.Uint32())
	}
	return len(b), nil
}

// live runs the world until nothing is left in it.
func (w *world) live() {
	f := newFleet(w)
	i := newInjector(w, f)
	i.run(w.cfg.length)
	if !w.oracle.failed() {
		w.mu.Lock()
		w.stopping = true
		w.mu.Unlock()
		i.endFaults()
		w.note("world", "all faults have ended, and callers finish")
		f.finish()
		w.settle(f)
	}
	f.close()
}

// settle checks that the world is empty after all callers have finished.
func (w *world) settle(f *fleet) {
	o, opts := w.oracle, w.cfg.options
	// Background cleanups wait for strays. A subscription on a dead connection ends within three
	// times PollInterval, or three seconds.
	time.Sleep(3*opts.CommandTimeout + 4*opts.PollInterval + 6*time.Second)
	for _, proc := range f.running() {
		if s := proc.locks.Stats(); s != (core.Stats{}) {
			o.violate("", "%s is idle, but its Stats are %+v", proc.name, s)
		}
	}
	o.checkFree()
	f.add(w.acquireAll())
	f.closeIdle()
	time.Sleep(time.Second)
	o.checkEmpty()
}

// acquireAll checks that a new process can acquire every lock.
func (w *world) acquireAll() *process {
	last := w.newProcess("last")
	for _, l := range w.cfg.names {
		longest := w.oracle.longestWait(l)
		opts := core.AcquireOptions{WaitTime: longest, LeaseTime: time.Minute}
		lease, err := l.locker(last).Acquire(context.Background(), opts)
		if err != nil {
			w.oracle.violate(l.name, "a new process could not acquire %s within %s: %v", l.name, longest, err)
		} else if err := lease.Release(context.Background()); err != nil {
			w.oracle.violate(l.name, "a new process could not release %s: %v", l.name, err)
		}
	}
	return last
}

// Deterministic is set in test binaries that the command run builds. In them, a seed gives the same
// run every time.
var Deterministic = false
