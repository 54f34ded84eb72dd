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

// A caller acquires locks, one after another.
type caller struct {
	process *process
	world   *world
	name    string
	rng     *rand.Rand
	count   int
}

// An op is one call of Acquire, and the lease that it returns.
type op struct {
	name      string
	process   *process
	kind      string
	names     []string
	waits     time.Duration
	leaseTime time.Duration
	began     time.Duration
	// takes is how many permits of each semaphore it takes.
	takes int
	// behind is until when it may have waited for one of its process that takes more.
	behind time.Duration
	// parent is the operation that this one re-enters.
	parent *op
	// invited is the hold that it may enter as a guest; nil: none.
	invited *invitation

	mu    sync.Mutex
	parts []part
}

func (p *op) String() string { return p.name }

type opKey struct{}

// granted handles the Observer's Acquired event.
func (p *op) granted(e core.Event) {
	p.mu.Lock()
	defer p.mu.Unlock()
	// A MultiLock may have acquired and released the lock before.
	others := slices.DeleteFunc(p.parts, func(other part) bool { return other.name == e.Name && other.kind == e.Kind })
	p.parts = append(others, part{e.Name, e.Kind, e.Owner, p.takes})
}

// held returns the locks that the call was granted so far.
func (p *op) held() []part {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.parts)
}

// working reports whether the caller should go on.
func (k *caller) working() bool {
	if k.world.oracle.failed() {
		return false
	}
	k.world.mu.Lock()
	defer k.world.mu.Unlock()
	return !k.world.stopping && !k.process.closing && !k.process.dead
}

func (k *caller) chance(probability float64) bool { return k.rng.Float64() < probability }

// duration draws a time. On average it is the given multiple of the mean hold.
func (k *caller) duration(factor float64) time.Duration {
	return time.Duration(min(k.rng.ExpFloat64(), 4) * factor * float64(k.world.cfg.meanHold))
}

func (k *caller) run() {
	for k.working() {
		k.sleep(k.duration(1))
		if k.working() {
			k.lockOnce()
		}
	}
}

// sleep returns early after a violation.
func (k *caller) sleep(d time.Duration) {
	select {
	case <-time.After(d):
	case <-k.world.oracle.stop:
	}
}

// maxLeaseFactor bounds a LeaseTime, as a multiple of the mean hold.
const maxLeaseFactor = 6

// lockOnce acquires a lock, holds it for a while, and releases it.
func (k *caller) lockOnce() {
	w := k.world
	name := w.cfg.names[k.rng.IntN(len(w.cfg.names))]
	p := k.newOp(nil)
	locks := k.process.locks
	var locker core.Locker
	var once *core.Once
	var semaphore *core.Semaphore
	var marker time.Duration
	finite := false
	switch {
	case len(w.cfg.names) > 1 && k.chance(0.15):
		p.kind = "multi"
		var all []core.Locker
		for _, n := range w.cfg.names {
			if k.chance(0.7) || len(all) == 0 {
				all, p.names = append(all, n.locker(k.process)), append(p.names, n.name)
			}
		}
		locker = core.MultiLock(all...)
	case name.kind == "rw" && k.chance(0.6):
		p.kind, p.names = "read", []string{name.name}
		locker = locks.ReadWriteLock(name.name).Read()
	case name.kind == "rw":
		p.kind, p.names = "write", []string{name.name}
		locker = name.locker(k.process)
	case name.kind == "once":
		p.kind, p.names = "once", []string{name.name}
		once = locks.Once(name.name)
		if k.chance(0.5) {
			marker = k.recordTTL()
			once = once.WithMarker([]byte("marker"), marker)
		}
	case name.kind == "semaphore" && k.chance(0.04):
		k.setPermits(name)
		return
	case name.kind == "semaphore":
		p.kind, p.names = "semaphore", []string{name.name}
		declares := k.process.permits(name)
		if k.chance(0.3) {
			p.takes = 1 + k.rng.IntN(declares)
		} else if k.chance(0.1) {
			declares = 0
		}
		finite = p.takes > 1 || declares == 0 // there may never be as many permits
		semaphore = locks.Semaphore(name.name, declares)
		locker = semaphore
	default:
		p.kind, p.names = name.kind, []string{name.name}
		locker = name.locker(k.process)
	}
	opts := core.AcquireOptions{}
	switch k.rng.IntN(5) {
	case 0:
	case 1, 2:
		opts.WaitTime = k.duration(3)
	default:
		opts.WaitTime = core.WaitForever
	}
	if finite && opts.WaitTime == core.WaitForever {
		opts.WaitTime = k.duration(3)
	}
	if k.chance(0.4) {
		opts.LeaseTime = max(k.minLease(), time.Duration(k.rng.Float64()*maxLeaseFactor*float64(w.cfg.meanHold)))
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if k.chance(0.15) {
		ctx, cancel = context.WithTimeout(ctx, k.duration(1.5))
		defer cancel()
	}
	g := k.acquire(ctx, p, opts, func(ctx context.Context) (*core.Lease, *core.OnceLease, []byte, error) {
		if once != nil {
			lease, record, err := once.Acquire(ctx, opts)
			if lease == nil {
				return nil, nil, record, err
			}
			return lease.Lease, lease, record, err
		}
		if p.takes > 1 {
			lease, err := semaphore.AcquireN(ctx, p.takes, opts)
			return lease, nil, nil, err
		}
		lease, err := locker.Acquire(ctx, opts)
		return lease, nil, nil, err
	})
	if g == nil {
		return
	}
	w.oracle.setMarker(g.claim, marker)
	k.hold(g, k.duration(1))
	k.release(g)
}

// minLease is the shortest LeaseTime that outlasts a round trip.
func (k *caller) minLease() time.Duration { return 10*time.Millisecond + 20*k.world.cfg.latency }

func (k *caller) recordTTL() time.Duration { return max(time.Millisecond, k.duration(3)) }

func (k *caller) newOp(parent *op) *op {
	k.count++
	return &op{name: fmt.Sprintf("%s/%d", k.name, k.count), process: k.process, parent: parent, takes: 1}
}

// A grant is a claim. That of a Once has its lease as well.
type grant struct {
	*claim
	once *core.OnceLease
}

// An acquireFunc calls Acquire. The lease of a Once comes twice.
type acquireFunc func(context.Context) (lease *core.Lease, once *core.OnceLease, record []byte, err error)

// acquire calls Acquire and checks the outcome. It returns nil if the lock was not granted.
func (k *caller) acquire(ctx context.Context, p *op, opts core.AcquireOptions, call acquireFunc) *grant {
	w, o := k.world, k.world.oracle
	names := strings.Join(p.names, "+")
	w.mu.Lock()
	p.began, p.waits, p.leaseTime = w.now(), opts.WaitTime, opts.LeaseTime
	o.pending[p] = struct{}{}
	w.operations++
	w.mu.Unlock()
	waits := opts.WaitTime.String()
	if opts.WaitTime == core.WaitForever {
		waits = "forever"
	}
	w.note(p.name, "Acquire %s (%s), WaitTime %s, LeaseTime %s", names, p.kind, waits, opts.LeaseTime)
	lease, once, record, err := call(context.WithValue(ctx, opKey{}, p))
	k.checkTime(ctx, p, opts, err)
	if lease == nil {
		w.note(p.name, "Acquire %s: record %q, error %v", names, record, err)
		o.checkNotGranted(p, err)
		return nil
	}
	c := &claim{op: p, lease: lease, process: k.process, parts: p.held(), leaseTime: opts.LeaseTime}
	c.endsBy = w.now() + opts.LeaseTime
	w.note(p.name, "acquired %v", c.parts)
	if p.invited != nil { // a guest has what its host has
		p.kind = c.parts[0].kind
	}
	if len(c.parts) < len(p.names) {
		panic("sim: the Observer missed a lock that " + p.name + " acquired")
	}
	o.claim(c)
	return &grant{c, once}
}

const (
	// confirmTime is how long core asks a server once more before it counts as silent.
	confirmTime = 100 * time.Millisecond
	// lastAnswer is how long core waits for the attempt that it makes when WaitTime is over. The
	// attempt before may have been answered late.
	lastAnswer = 500 * time.Millisecond
)

// checkTime checks that Acquire returned in time.
func (k *caller) checkTime(ctx context.Context, p *op, opts core.AcquireOptions, err error) {
	w := k.world
	took := w.now() - p.began
	if p.kind == "multi" || !k.process.alive() { // a MultiLock releases before it returns
		return
	}
	if p.visits() {
		opts.WaitTime = 0
	}
	if deadline, ok := ctx.Deadline(); ok {
		if late := w.now() - max(deadline.Sub(w.start), p.began); late > time.Millisecond {
			w.oracle.violate(p.names[0], "%s returned %s after the end of its context: %v", p, late, err)
		}
	}
	commands := time.Duration(1)
	if p.parent != nil { // it may follow another call's command, and the one that restores its count
		commands = 3
	}
	if p.kind == "once" { // it looks for a record after its own process has refused it
		commands++
	}
	longest := opts.WaitTime + commands*w.cfg.options.CommandTimeout + confirmTime + time.Millisecond
	if opts.WaitTime > 0 {
		longest += lastAnswer
	}
	if opts.WaitTime >= 0 && took > longest+longest/100 {
		w.oracle.violate(p.names[0], "%s has a WaitTime of %s and took %s: %v", p, opts.WaitTime, took, err)
	}
}

// hold keeps a lock for some time and uses it now and then.
func (k *caller) hold(g *grant, d time.Duration) {
	w := k.world
	end := w.now() + d
	for w.now() < end && g.lease.Err() == nil && !w.oracle.failed() {
		pause := min(k.duration(0.5), end-w.now())
		select {
		case <-time.After(pause):
		case <-g.lease.Done():
		case <-w.oracle.stop:
		}
		if w.now() >= end || g.lease.Err() != nil {
			break
		}
		if w.cfg.guests && k.chance(0.4) {
			k.invite(g)
		}
		switch k.rng.IntN(6) {
		case 0:
			k.reenter(g, (end-w.now())/2)
		case 1:
			k.extend(g)
		case 2:
			k.checkIsHeld(g)
		}
	}
	if err := g.lease.Err(); err != nil {
		k.checkLost(g, err)
	}
}

// checkLost checks that a loss has a reason, and that the whole lease reports it.
func (k *caller) checkLost(g *grant, err error) {
	w := k.world
	w.note(g.op.name, "lost %s: %v", strings.Join(g.op.names, "+"), err)
	w.oracle.checkLoss(g.claim, err)
	select {
	case <-g.lease.Done():
	default:
		w.oracle.violate(g.op.names[0], "%s: Err is %v, but Done is open", g.op, err)
	}
	// Err is set just before the context ends, so the goroutine that ends it may still be on its way.
	// Virtual time passes only after it has done so.
	select {
	case <-g.lease.Context().Done():
	case <-time.After(1):
		w.oracle.violate(g.op.names[0], "%s: Err is %v, but Context has not ended", g.op, err)
	}
}

// reenter acquires a lock that is held already. A reader enters the read side, a writer either.
func (k *caller) reenter(g *grant, d time.Duration) {
	if g.op.kind == "multi" || g.op.kind == "once" || g.op.kind == "semaphore" || g.op.parent != nil && g.op.parent.parent != nil {
		return
	}
	p := k.newOp(g.op)
	p.kind, p.names, p.invited = g.op.kind, g.op.names, g.op.invited
	locks := k.process.locks
	var locker core.Locker
	switch {
	case p.kind == "write" && k.chance(0.5), p.kind == "read":
		p.kind = "read"
		locker = locks.ReadWriteLock(p.names[0]).Read()
	case p.kind == "write":
		locker = locks.ReadWriteLock(p.names[0]).Write()
	default:
		locker = lockName{name: p.names[0], kind: p.kind}.locker(k.process)
	}
	opts := core.AcquireOptions{WaitTime: k.duration(1)}
	if k.chance(0.3) {
		opts.LeaseTime = max(k.minLease(), k.duration(1))
	}
	inner := k.acquire(g.lease.Context(), p, opts,
		func(ctx context.Context) (*core.Lease, *core.OnceLease, []byte, error) {
			lease, err := locker.Acquire(ctx, opts)
			return lease, nil, nil, err
		})
	if inner == nil {
		return
	}
	if p.kind == "read" && g.op.kind == "write" && k.chance(0.3) { // a downgrade
		k.release(g)
	}
	k.hold(inner, d)
	k.release(inner)
}

// extend extends a lease that has a LeaseTime.
func (k *caller) extend(g *grant) {
	w := k.world
	if g.leaseTime == 0 || g.op.kind == "multi" {
		return
	}
	began := w.now()
	d := max(k.minLease(), k.duration(2))
	w.mu.Lock() // the new lease may begin before Extend returns
	before := g.endsBy
	g.endsBy = max(g.endsBy, began+d+w.cfg.options.CommandTimeout)
	w.mu.Unlock()
	err := g.lease.Extend(context.Background(), d)
	w.note(g.op.name, "Extend %s by %s: %v", strings.Join(g.op.names, "+"), d, err)
	w.mu.Lock()
	if err == nil {
		g.endsBy = max(before, w.now()+d)
	}
	bad := err != nil && !errors.Is(err, core.ErrNotHeld) && w.calm(began) && !k.process.closing
	w.mu.Unlock()
	if bad {
		w.oracle.violate(g.op.names[0], "%s could not extend its lease, although there was no fault: %v", g.op, err)
	}
}

// checkIsHeld checks that IsHeld returns true. A semaphore has counts instead.
func (k *caller) checkIsHeld(g *grant) {
	w := k.world
	if g.op.kind == "multi" || g.op.kind == "once" {
		return
	}
	if g.op.kind == "semaphore" {
		k.checkCounts(g)
		return
	}
	var l *core.Lock
	switch g.op.kind {
	case "read":
		l = k.process.locks.ReadWriteLock(g.op.names[0]).Read()
	case "write":
		l = k.process.locks.ReadWriteLock(g.op.names[0]).Write()
	default:
		l = lockName{name: g.op.names[0], kind: g.op.kind}.locker(k.process).(*core.Lock)
	}
	began := w.now()
	held, err := l.IsHeld(g.lease.Context())
	if err != nil || held || g.lease.Err() != nil {
		return
	}
	w.mu.Lock()
	wrong := !w.oracle.damagedSince(g.op.names, g.op.began) && w.calm(began) && !g.released && g.leaseTime == 0
	w.mu.Unlock()
	if wrong {
		w.oracle.violate(g.op.names[0], "%s holds %s, but IsHeld returned false", g.op, g.op.names[0])
	}
}

// release releases a lock, unless that was done before, and checks the outcome.
func (k *caller) release(g *grant) {
	w, o := k.world, k.world.oracle
	if g.leaseTime > 0 && g.op.parent == nil && k.chance(0.1) {
		k.letExpire(g)
	}
	last, ok := o.beginRelease(g.claim)
	if !ok {
		return
	}
	if err := g.lease.Err(); err != nil {
		o.checkLoss(g.claim, err)
	}
	began := w.now()
	record := time.Duration(0)
	if g.once != nil && k.chance(0.6) {
		record = k.recordTTL()
	}
	var err error
	if record > 0 {
		err = g.once.ReleaseWith(context.Background(), []byte(g.op.name), record)
		w.note(g.op.name, "Release %s with a record for %s: %v", strings.Join(g.op.names, "+"), record, err)
	} else {
		err = g.lease.Release(context.Background())
		w.note(g.op.name, "Release %s: %v", strings.Join(g.op.names, "+"), err)
	}
	took := w.now() - began
	o.endRelease(g.claim, last, record, err, began)
	if errors.Is(err, core.ErrLockLost) {
		o.checkLoss(g.claim, err)
	}
	// A renewal may be under way, and then a change for another lease of the owner.
	if longest := 3*w.cfg.options.CommandTimeout + time.Second; took > longest && g.op.kind != "multi" {
		o.violate(g.op.names[0], "%s took %s to release %s", g.op, took, g.op.names[0])
	}
}

// letExpire waits for a lease to end by itself.
func (k *caller) letExpire(g *grant) {
	w := k.world
	select {
	case <-g.lease.Done():
	case <-w.oracle.stop:
	case <-time.After(g.leaseTime + time.Second):
		w.mu.Lock()
		overdue := w.now() - g.endsBy
		w.mu.Unlock()
		if overdue > time.Second {
			w.oracle.violate(g.op.names[0], "%s has a lease that should have ended %s ago", g.op, overdue)
		}
	}
}

// setPermits calls SetPermits.
func (k *caller) setPermits(name lockName) {
	w, n := k.world, 1+k.rng.IntN(maxPermits)
	w.mu.Lock()
	began := w.now()
	w.oracle.declare(name.name, n)
	w.oracle.forever[name.name] = true
	w.mu.Unlock()
	err := k.process.locks.Semaphore(name.name, 0).SetPermits(context.Background(), n)
	w.note(k.name, "SetPermits %s to %d: %v", name.name, n, err)
	w.mu.Lock()
	bad := err != nil && w.calm(began) && !k.process.closing
	w.mu.Unlock()
	if bad {
		w.oracle.violate(name.name, "%s could not set permits, although there was no fault: %v", k.name, err)
	}
}

// checkCounts checks that the holder of permits is among those that are taken.
func (k *caller) checkCounts(g *grant) {
	w, name := k.world, g.op.names[0]
	s := k.process.locks.Semaphore(name, 0)
	began := w.now()
	free, err := s.Available(context.Background())
	permits, err2 := s.Permits(context.Background())
	w.note(g.op.name, "%s: %d of %d permits are free, %v", name, free, permits, errors.Join(err, err2))
	w.mu.Lock()
	wrong := w.calm(began) && !k.process.closing && (err != nil || err2 != nil || permits < 0 || free > w.oracle.most(name))
	w.mu.Unlock()
	if wrong {
		w.oracle.violate(name, "%s counts %d free permits of %d: %v, %v", g.op, free, permits, err, err2)
	}
}

// forcePermits calls ForceUnlock for an owner of permits.
func forcePermits(proc *process, name string) {
	w := proc.world
	w.mu.Lock()
	all := w.nodeOf(name).permits(name)
	w.oracle.damageUntil(name, w.now()+3*w.cfg.options.CommandTimeout)
	w.mu.Unlock()
	if len(all) == 0 {
		return
	}
	owner := ownerOf(all[0].entry)
	had, err := proc.locks.Semaphore(name, 0).ForceUnlock(context.Background(), owner)
	w.note(proc.name, "ForceUnlock %s of %s: %t, %v", name, owner, had, err)
}

// forceUnlock calls ForceUnlock.
func forceUnlock(proc *process, name lockName) {
	w := proc.world
	if name.kind == "semaphore" {
		forcePermits(proc, name.name)
		return
	}
	var l *core.Lock
	if name.kind == "rw" && name.name[len(name.name)-1]%2 == 0 {
		l = proc.locks.ReadWriteLock(name.name).Read()
	} else {
		l = name.locker(proc).(*core.Lock)
	}
	w.mu.Lock()
	// Its command may be a stray.
	w.oracle.damageUntil(name.name, w.now()+3*w.cfg.options.CommandTimeout)
	w.mu.Unlock()
	held, err := l.ForceUnlock(context.Background())
	w.note(proc.name, "ForceUnlock %s: %t, %v", name.name, held, err)
}
