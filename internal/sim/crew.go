package sim

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/reqlock/reqlock/core"
)

// A crew is the processes of a world, and the callers in them.
type crew struct {
	world    *world
	mu       sync.Mutex
	machines []*machine // those that live
	started  int
	leaving  sync.WaitGroup // of machines
}

func newCrew(w *world) *crew {
	c := &crew{world: w}
	for range w.cfg.machines {
		c.start()
	}
	return c
}

// start adds a process with its callers.
func (c *crew) start() {
	c.started++
	m := c.world.newMachine(fmt.Sprintf("p%d", c.started))
	c.mu.Lock()
	c.machines = append(c.machines, m)
	c.mu.Unlock()
	for i := range c.world.cfg.workers {
		k := &caller{machine: m, world: c.world, name: fmt.Sprintf("%s.%d", m.name, i+1)}
		k.rng = c.world.stream("caller "+k.name, 0)
		m.work.Go(k.run)
	}
}

func (c *crew) living() []*machine {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.machines)
}

// replace ends a process, and starts another in its place. The caller has the world's mutex.
func (c *crew) replace(m *machine, end func()) {
	m.closing = true
	c.mu.Lock()
	c.machines = slices.DeleteFunc(c.machines, func(other *machine) bool { return other == m })
	c.mu.Unlock()
	c.leaving.Go(func() {
		end()
		m.work.Wait()
	})
	c.leaving.Go(c.start)
}

// finish waits until all callers have done their work.
func (c *crew) finish() {
	w := c.world
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.leaving.Wait()
		for _, m := range c.living() {
			m.work.Wait()
		}
	}()
	opts := w.cfg.options
	patience := time.Duration(w.cfg.machines*w.cfg.workers+4)*(8*w.cfg.pace+opts.PollInterval) + 4*opts.FairWaitTimeout + 4*opts.WatchdogTimeout + time.Minute
	for end := w.now() + patience; w.now() < end; {
		select {
		case <-done:
			return
		case <-time.After(time.Second):
			w.oracle.checkRest()
		case <-w.oracle.stop:
			return
		}
	}
	w.mu.Lock()
	for p := range w.oracle.pending {
		w.oracle.violate(p.names[0], "%s still waits %s after the last fault", p, patience)
	}
	w.mu.Unlock()
	if !w.oracle.failed() {
		w.oracle.violate("", "callers are still at work %s after the last fault", patience)
	}
}

// closeAll closes all clients.
func (c *crew) closeAll(told func(*machine, error)) {
	for _, m := range c.living() {
		began := c.world.now()
		err := m.close(context.Background())
		told(m, err)
		if took := c.world.now() - began; took > c.world.cfg.options.CommandTimeout {
			c.world.oracle.violate("", "closing %s, which is idle, took %s", m.name, took)
		}
	}
	c.mu.Lock()
	c.machines = nil
	c.mu.Unlock()
}

// close ends what is left, whatever state it is in.
func (c *crew) close() {
	w := c.world
	w.mu.Lock()
	w.stopping = true
	w.mu.Unlock()
	for _, m := range c.living() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
		_ = m.close(ctx)
		cancel()
		m.work.Wait()
	}
	c.leaving.Wait()
	for _, m := range c.living() { // started meanwhile
		_ = m.close(context.Background())
		m.work.Wait()
	}
}

// A caller takes locks, one after another.
type caller struct {
	machine *machine
	world   *world
	name    string
	rng     *rand.Rand
	count   int
}

// An op is a call of Acquire and what follows from it.
type op struct {
	name    string
	machine *machine
	kind    string
	names   []string
	waits   time.Duration
	began   time.Duration
	parent  *op

	mu    sync.Mutex
	parts []part
}

func (p *op) String() string { return p.name }

type opKey struct{}

// granted takes what the Observer tells of a lock that the call has got.
func (p *op) granted(e core.Event) {
	p.mu.Lock()
	defer p.mu.Unlock()
	kept := slices.DeleteFunc(p.parts, func(other part) bool { return other.name == e.Name && other.kind == e.Kind }) // an earlier try of a MultiLock
	p.parts = append(kept, part{e.Name, e.Kind, e.Owner})
}

// held is what the call has got so far.
func (p *op) held() []part {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.parts)
}

func (k *caller) working() bool {
	if k.world.oracle.failed() {
		return false
	}
	k.world.mu.Lock()
	defer k.world.mu.Unlock()
	return !k.world.stopping && !k.machine.closing && !k.machine.dead
}

func (k *caller) chance(part float64) bool { return k.rng.Float64() < part }

// span is a random time, on average some paces.
func (k *caller) span(paces float64) time.Duration {
	return time.Duration(min(k.rng.ExpFloat64(), 4) * paces * float64(k.world.cfg.pace))
}

func (k *caller) run() {
	for k.working() {
		k.sleep(k.span(1))
		if k.working() {
			k.turn()
		}
	}
}

// sleep returns early when the world ends.
func (k *caller) sleep(d time.Duration) {
	select {
	case <-time.After(d):
	case <-k.world.oracle.stop:
	}
}

// maxLeasePaces is how long a LeaseTime is at most, in paces.
const maxLeasePaces = 6

// turn takes a lock, holds it for a while, and releases it.
func (k *caller) turn() {
	w := k.world
	name := w.cfg.names[k.rng.IntN(len(w.cfg.names))]
	p := k.newOp(nil)
	locks := k.machine.locks
	var locker core.Locker
	var once *core.Once
	var marker time.Duration
	switch {
	case len(w.cfg.names) > 1 && k.chance(0.15):
		p.kind = "multi"
		var all []core.Locker
		for _, n := range w.cfg.names {
			if k.chance(0.7) || len(all) == 0 {
				all, p.names = append(all, n.locker(locks)), append(p.names, n.name)
			}
		}
		locker = core.MultiLock(all...)
	case name.kind == "rw" && k.chance(0.6):
		p.kind, p.names = "read", []string{name.name}
		locker = locks.ReadWriteLock(name.name).Read()
	case name.kind == "rw":
		p.kind, p.names = "write", []string{name.name}
		locker = name.locker(locks)
	case name.kind == "once":
		p.kind, p.names = "once", []string{name.name}
		once = locks.Once(name.name)
		if k.chance(0.5) {
			marker = k.recordTime()
			once = once.WithMarker([]byte("marker"), marker)
		}
	default:
		p.kind, p.names = name.kind, []string{name.name}
		locker = name.locker(locks)
	}
	opts := core.AcquireOptions{}
	switch k.rng.IntN(5) {
	case 0:
	case 1, 2:
		opts.WaitTime = k.span(3)
	default:
		opts.WaitTime = core.WaitForever
	}
	if k.chance(0.4) {
		opts.LeaseTime = max(k.leastLease(), time.Duration(k.rng.Float64()*maxLeasePaces*float64(w.cfg.pace)))
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if k.chance(0.15) {
		ctx, cancel = context.WithTimeout(ctx, k.span(1.5))
		defer cancel()
	}
	c, err := k.acquire(ctx, p, opts, func(ctx context.Context) (*core.Lease, *core.OnceLease, []byte, error) {
		if once != nil {
			lease, record, err := once.Acquire(ctx, opts)
			if lease == nil {
				return nil, nil, record, err
			}
			return lease.Lease, lease, record, err
		}
		lease, err := locker.Acquire(ctx, opts)
		return lease, nil, nil, err
	})
	if err != nil || c == nil {
		return
	}
	w.mu.Lock()
	if reset, was := w.oracle.recordsReset[p.names[0]]; !was || reset < p.began {
		c.marker = marker
	}
	w.mu.Unlock()
	k.hold(c, k.span(1))
	k.release(c)
}

// leastLease is what a lease must have to outlast the way to the server and back.
func (k *caller) leastLease() time.Duration { return 10*time.Millisecond + 20*k.world.cfg.latency }

// recordTime is for how long a record lives.
func (k *caller) recordTime() time.Duration { return max(time.Millisecond, k.span(3)) }

func (k *caller) newOp(parent *op) *op {
	k.count++
	return &op{name: fmt.Sprintf("%s/%d", k.name, k.count), machine: k.machine, parent: parent}
}

// A grant is a claim with the lease of a Once, if it is one.
type grant struct {
	*claim
	once *core.OnceLease
}

// acquire calls Acquire and checks how it ends. Both results are nil where there was a record.
func (k *caller) acquire(ctx context.Context, p *op, opts core.AcquireOptions, call func(context.Context) (*core.Lease, *core.OnceLease, []byte, error)) (*grant, error) {
	w, o := k.world, k.world.oracle
	w.mu.Lock()
	p.began, p.waits = w.now(), opts.WaitTime
	o.pending[p] = struct{}{}
	w.operations++
	w.mu.Unlock()
	w.note(p.name, "Acquire %s of %s, waits %s, lease %s", p.kind, strings.Join(p.names, "+"), opts.WaitTime, opts.LeaseTime)
	lease, once, record, err := call(context.WithValue(ctx, opKey{}, p))
	k.checkTime(ctx, p, opts, err)
	if lease == nil {
		w.note(p.name, "Acquire %s: %q, %v", strings.Join(p.names, "+"), record, err)
		if err == nil {
			w.mu.Lock()
			delete(o.pending, p)
			w.mu.Unlock()
			return nil, nil
		}
		o.checkRefused(p, err)
		return nil, err
	}
	c := &claim{op: p, lease: lease, machine: k.machine, parts: p.held(), fixed: opts.LeaseTime}
	c.ends = w.now() + opts.LeaseTime
	w.note(p.name, "has the lock of %v", c.parts)
	if len(c.parts) < len(p.names) {
		panic("sim: the Observer was not told of all that " + p.name + " got")
	}
	o.claim(c)
	return &grant{c, once}, nil
}

// checkTime checks that a call did not take longer than it may.
func (k *caller) checkTime(ctx context.Context, p *op, opts core.AcquireOptions, err error) {
	w := k.world
	took := w.now() - p.began
	if p.kind == "multi" || !k.machine.alive() {
		return // gives back what it has got
	}
	if deadline, ok := ctx.Deadline(); ok {
		if late := w.now() - max(deadline.Sub(w.start), p.began); late > time.Millisecond {
			w.oracle.violate(p.names[0], "%s returned %s after its context had ended: %v", p, late, err)
		}
	}
	commands := time.Duration(1)
	if p.parent != nil { // after that of another call, and perhaps with one that takes it back
		commands = 3
	}
	if longest := opts.WaitTime + commands*w.cfg.options.CommandTimeout + time.Millisecond; opts.WaitTime >= 0 && took > longest+longest/100 {
		w.oracle.violate(p.names[0], "%s was to wait %s, and took %s: %v", p, opts.WaitTime, took, err)
	}
}

// hold keeps a lock for a time, and does something with it now and then.
func (k *caller) hold(c *grant, d time.Duration) {
	w := k.world
	end := w.now() + d
	for w.now() < end && c.lease.Err() == nil && !w.oracle.failed() {
		pause := min(k.span(0.5), end-w.now())
		select {
		case <-time.After(pause):
		case <-c.lease.Done():
		case <-w.oracle.stop:
		}
		if w.now() >= end || c.lease.Err() != nil {
			break
		}
		switch k.rng.IntN(6) {
		case 0:
			k.reenter(c, (end-w.now())/2)
		case 1:
			k.extend(c)
		case 2:
			k.look(c)
		}
	}
	if err := c.lease.Err(); err != nil {
		k.sawLoss(c, err)
	}
}

// sawLoss checks that a loss has a reason, and that everything tells of it.
func (k *caller) sawLoss(c *grant, err error) {
	w := k.world
	w.note(c.op.name, "finds %s lost: %v", strings.Join(c.op.names, "+"), err)
	w.oracle.checkLoss(c.claim, err)
	select {
	case <-c.lease.Done():
	default:
		w.oracle.violate(c.op.names[0], "%s: Err is %v, and Done is open", c.op, err)
	}
	if ctx := c.lease.Context(); ctx.Err() == nil {
		w.oracle.violate(c.op.names[0], "%s: Err is %v, and Context goes on", c.op, err)
	}
}

// reenter enters a lock again, of a read/write lock either side.
func (k *caller) reenter(c *grant, d time.Duration) {
	if c.op.kind == "multi" || c.op.kind == "once" || c.op.parent != nil && c.op.parent.parent != nil {
		return
	}
	p := k.newOp(c.op)
	p.kind, p.names = c.op.kind, c.op.names
	locks := k.machine.locks
	var locker core.Locker
	switch {
	case p.kind == "write" && k.chance(0.5), p.kind == "read":
		p.kind = "read"
		locker = locks.ReadWriteLock(p.names[0]).Read()
	case p.kind == "write":
		locker = locks.ReadWriteLock(p.names[0]).Write()
	default:
		locker = lockName{p.names[0], p.kind}.locker(locks)
	}
	opts := core.AcquireOptions{WaitTime: k.span(1)}
	if k.chance(0.3) {
		opts.LeaseTime = max(k.leastLease(), k.span(1))
	}
	again, err := k.acquire(c.lease.Context(), p, opts, func(ctx context.Context) (*core.Lease, *core.OnceLease, []byte, error) {
		lease, err := locker.Acquire(ctx, opts)
		return lease, nil, nil, err
	})
	if err != nil || again == nil {
		return
	}
	if p.kind == "read" && c.op.kind == "write" && k.chance(0.3) { // a downgrade
		k.release(c)
	}
	k.hold(again, d)
	k.release(again)
}

func (k *caller) extend(c *grant) {
	w := k.world
	if c.fixed == 0 || c.op.kind == "multi" {
		return
	}
	began := w.now()
	d := max(k.leastLease(), k.span(2))
	w.mu.Lock() // it may be good from before Extend returns
	before := c.ends
	c.ends = max(c.ends, began+d+w.cfg.options.CommandTimeout)
	w.mu.Unlock()
	err := c.lease.Extend(context.Background(), d)
	w.note(c.op.name, "Extend %s by %s: %v", strings.Join(c.op.names, "+"), d, err)
	w.mu.Lock()
	if err == nil {
		c.ends = max(before, w.now()+d)
	}
	bad := err != nil && !errors.Is(err, core.ErrNotHeld) && w.calm(began) && !k.machine.dead && !k.machine.closing
	w.mu.Unlock()
	if bad {
		w.oracle.violate(c.op.names[0], "%s could not extend its lease in a world at rest: %v", c.op, err)
	}
}

// look asks the server about the lock.
func (k *caller) look(c *grant) {
	w := k.world
	if c.op.kind == "multi" || c.op.kind == "once" {
		return
	}
	var l *core.Lock
	switch c.op.kind {
	case "read":
		l = k.machine.locks.ReadWriteLock(c.op.names[0]).Read()
	case "write":
		l = k.machine.locks.ReadWriteLock(c.op.names[0]).Write()
	default:
		l = lockName{c.op.names[0], c.op.kind}.locker(k.machine.locks).(*core.Lock)
	}
	began := w.now()
	held, err := l.IsHeld(c.lease.Context())
	if err != nil || held || c.lease.Err() != nil {
		return
	}
	w.mu.Lock()
	wrong := !w.oracle.disturbedSince(c.claim) && w.calm(began) && !c.released && c.fixed == 0
	w.mu.Unlock()
	if wrong {
		w.oracle.violate(c.op.names[0], "%s holds %s, and IsHeld says that it does not", c.op, c.op.names[0])
	}
}

// release gives a lock back, if it has not been given back already.
func (k *caller) release(c *grant) {
	w, o := k.world, k.world.oracle
	if c.fixed > 0 && c.op.parent == nil && k.chance(0.1) { // it forgets to
		select {
		case <-c.lease.Done():
		case <-time.After(c.fixed + time.Second):
			w.mu.Lock()
			overdue := w.now() - c.ends
			w.mu.Unlock()
			if overdue > time.Second {
				o.violate(c.op.names[0], "%s has a lease that should have ended %s ago", c.op, overdue)
			}
		case <-o.stop:
		}
	}
	w.mu.Lock()
	if c.released {
		w.mu.Unlock()
		return
	}
	c.released = true
	began := w.now()
	last := true
	for _, p := range c.parts {
		for _, other := range o.claims[p.name] {
			if other != c.claim && !other.released && slices.ContainsFunc(other.parts, func(q part) bool { return q.owner == p.owner }) {
				last = false
			}
		}
	}
	w.mu.Unlock()
	if err := c.lease.Err(); err != nil {
		o.checkLoss(c.claim, err)
	}
	record := time.Duration(0)
	if c.once != nil && k.chance(0.6) {
		record = k.recordTime()
	}
	var err error
	if record > 0 {
		err = c.once.ReleaseWith(context.Background(), []byte(c.op.name), record)
	} else {
		err = c.lease.Release(context.Background())
	}
	w.note(c.op.name, "Release %s (record for %s): %v", strings.Join(c.op.names, "+"), record, err)
	o.checkReleased(c.claim, last && c.op.parent == nil, err, began)
	w.mu.Lock()
	o.drop(c.claim)
	if reset, was := o.recordsReset[c.parts[0].name]; record > 0 && err == nil && (!was || reset < began) {
		until := began + leastTTL(record)
		if old := o.records[c.parts[0].name]; until > old.until {
			o.records[c.parts[0].name] = recordLeft{w.now(), until}
		}
	}
	took := w.now() - began
	w.mu.Unlock()
	if errors.Is(err, core.ErrLockLost) {
		o.checkLoss(c.claim, err)
	}
	if longest := 2*w.cfg.options.CommandTimeout + time.Second; took > longest && c.op.kind != "multi" {
		o.violate(c.op.names[0], "%s took %s to release %s", c.op, took, c.op.names[0])
	}
}

// forceUnlock takes a lock away from its holders.
func forceUnlock(m *machine, name lockName) {
	w := m.world
	var l *core.Lock
	if name.kind == "rw" && name.name[len(name.name)-1]%2 == 0 {
		l = m.locks.ReadWriteLock(name.name).Read()
	} else {
		l = name.locker(m.locks).(*core.Lock)
	}
	w.mu.Lock()
	w.oracle.disturbUntil(name.name, w.now()+3*w.cfg.options.CommandTimeout) // also where it is a stray
	w.mu.Unlock()
	held, err := l.ForceUnlock(context.Background())
	w.note(m.name, "ForceUnlock %s: %t, %v", name.name, held, err)
}
