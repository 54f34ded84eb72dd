package sim

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/reqlock/reqlock/core"
)

// An oracle knows the truth, which is what the servers have, and compares it with what leases say.
//
// It holds that
//
//   - a lease whose Err is nil is held: its field is in the lock's hash, and of a reader a time-out key as well. Where a fault
//     has disturbed the keys of the lock (a deletion, a restart with other data, a ForceUnlock), the leases that were acquired
//     or being acquired by then may err for as long as that lease lasts: WatchdogTimeout, or LeaseTime;
//   - two leases of one process that exclude each other are never good together, not even then;
//   - the hash of a lock has one holder, or readers only;
//   - fencing tokens rise, while the counter is not disturbed;
//   - a lease is lost only after a fault;
//   - Release returns nil only once the field is gone;
//   - a Once is not granted while a record or a marker stands;
//   - in a world at rest calls return no errors but those of a lock that is held, and no caller waits for a lock that is free.
//     After a fault the world is at rest again when its consequences must be over; see unrest;
//   - what a caller does not get, or a release does not reach, is freed in the background: soon after a fault no field is left that
//     nobody holds;
//   - in the end all locks are free, no key is left but counters of tokens, Stats are zero, and no goroutine runs.
type oracle struct {
	world *world
	stop  chan struct{} // closed at the first violation

	mu         sync.Mutex
	violations []string
	about      []string // the locks that the violations are about

	// Guarded by the world's mutex.
	claims    map[string][]*claim     // leases, by the names they hold
	pending   map[*op]struct{}        // callers of Acquire
	disturbed map[string]disturbance  // by name
	tokens    map[string][]tokenGiven // by name
	records   map[string]recordLeft   // by name
	freeSince map[string]time.Duration
	orphans   map[string]time.Duration // fields of locks that nobody holds, since when
	hereafter time.Duration            // until when Redis may have locks of the dead, and such that a rollback has brought back
}

// A disturbance is the time within which a fault took keys of a lock away, or may have.
type disturbance struct{ from, until time.Duration }

type tokenGiven struct {
	at    time.Duration
	token uint64
}

type recordLeft struct{ from, until time.Duration }

// A claim is a lease that was granted and not released yet.
type claim struct {
	op       *op
	lease    *core.Lease
	machine  *machine
	parts    []part
	got      time.Duration
	fixed    time.Duration // LeaseTime; 0: the watchdog's
	ends     time.Duration // with LeaseTime: it cannot be good after that
	released bool          // its release has begun
	marked   bool          // a Once with a marker
}

// A part is a lock that a claim holds, with its field in Redis.
type part struct{ name, kind, owner string }

func newOracle(w *world) *oracle {
	return &oracle{
		world:     w,
		stop:      make(chan struct{}),
		claims:    make(map[string][]*claim),
		pending:   make(map[*op]struct{}),
		disturbed: make(map[string]disturbance),
		tokens:    make(map[string][]tokenGiven),
		records:   make(map[string]recordLeft),
		freeSince: make(map[string]time.Duration),
		orphans:   make(map[string]time.Duration),
	}
}

// violate notes that something is wrong with a lock.
func (o *oracle) violate(name, format string, args ...any) {
	text := stamp(o.world.now()) + " " + fmt.Sprintf(format, args...)
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.violations) > 20 {
		return
	}
	if len(o.violations) == 0 {
		close(o.stop)
	}
	o.violations = append(o.violations, text)
	if name != "" {
		o.about = append(o.about, name)
	}
	o.world.note("VIOLATION", "%s", text)
}

func (o *oracle) failed() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.violations) > 0
}

// enough runs the end of the world, unless something is wrong already.
func (o *oracle) enough(end func()) {
	if !o.failed() {
		end()
	}
}

// disturb notes that a fault has changed a key. The caller has the world's mutex.
func (o *oracle) disturb(key string) { o.disturbUntil(nameOf(key), o.world.now()) }

func (o *oracle) disturbUntil(name string, until time.Duration) {
	w := o.world
	d, known := o.disturbed[name]
	if !known || d.until < w.now() {
		d.from = w.now()
	}
	d.until = max(d.until, until)
	o.disturbed[name] = d
	delete(o.tokens, name)
	delete(o.records, name)
	for _, c := range o.claims[name] {
		c.marked = false
	}
	w.change(name)
}

func isToken(key string) bool { return strings.HasPrefix(key, "redisson_lock_token") }

// held reports whether a server has what a claim is for. The caller has the world's mutex.
func (o *oracle) held(p part) bool {
	n := o.world.nodeOf(p.name)
	n.tick()
	v := n.store.get(p.name)
	if p.kind == "write" {
		_, held := v.field(p.owner + ":write")
		return held
	}
	count, held := v.field(p.owner)
	if p.kind != "read" || !held {
		return held
	}
	for i := range max(len(count), 1) * 9 {
		if n.store.get("{"+p.name+"}:"+p.owner+":rwlock_timeout:"+itoa(i+1)) != nil {
			return true
		}
	}
	return false
}

// check compares leases of some names with the truth. The caller does not have the world's mutex.
func (o *oracle) check(names []string) {
	w := o.world
	for _, name := range names {
		w.mu.Lock()
		o.checkHash(name)
		now := w.now()
		var doubtful []*claim
		for _, c := range o.claims[name] {
			if c.released || c.machine.dead {
				continue
			}
			for _, p := range c.parts {
				if p.name == name && !o.held(p) {
					doubtful = append(doubtful, c)
				}
			}
		}
		d := o.disturbed[name]
		w.mu.Unlock()
		for _, c := range doubtful {
			if c.excused(d, now, w.cfg.options.WatchdogTimeout) || c.lease.Err() != nil {
				continue
			}
			if held := o.stillClaimed(c); held {
				o.violate(name, "%s believes to hold %s, which the server does not have; it says that %s are left", c.op, name, c.lease.Remaining())
			}
		}
	}
}

// stillClaimed reports whether no release of a claim has begun.
func (o *oracle) stillClaimed(c *claim) bool {
	o.world.mu.Lock()
	defer o.world.mu.Unlock()
	return !c.released
}

// excused reports whether a claim may err because of a disturbance.
func (c *claim) excused(d disturbance, now, watchdog time.Duration) bool {
	if d.until < c.op.began || d == (disturbance{}) {
		return false
	}
	if c.fixed > 0 {
		return now <= c.ends
	}
	return now <= d.until+watchdog
}

// checkHash checks that a lock's hash excludes whom it should, and notes since when the lock is free.
func (o *oracle) checkHash(name string) {
	w := o.world
	n := w.nodeOf(name)
	n.tick()
	v := n.store.get(name)
	if v == nil {
		if _, known := o.freeSince[name]; !known {
			o.freeSince[name] = w.now()
		}
		return
	}
	delete(o.freeSince, name)
	if v.expires == 0 {
		o.violate(name, "the key %s has no time to live", name)
	}
	mode, sided := v.field("mode")
	holders := len(v.fields)
	if sided {
		holders--
	}
	writers := 0
	for _, f := range v.fields {
		if owner, isWriter := strings.CutSuffix(f.name, ":write"); isWriter {
			writers++
			holders--
			if _, reads := v.field(owner); reads && mode == "write" {
				holders--
			}
		}
	}
	wrong := false
	switch {
	case !sided:
		wrong = len(v.fields) > 1
	case mode == "write":
		wrong = writers != 1 || holders != 0
	default:
		wrong = writers != 0
	}
	if d := o.disturbed[name]; wrong && d == (disturbance{}) {
		o.violate(name, "the hash of %s has holders that exclude each other: %v", name, v.fields)
	}
}

// claim registers a lease.
func (o *oracle) claim(c *claim) {
	w := o.world
	w.mu.Lock()
	c.got = w.now()
	delete(o.pending, c.op)
	for _, p := range c.parts {
		o.claims[p.name] = append(o.claims[p.name], c)
		w.change(p.name)
		o.checkRecord(p.name, c)
	}
	names := w.changed
	rivals := o.rivals(c)
	w.mu.Unlock()
	for _, other := range rivals {
		if c.lease.Err() == nil && other.lease.Err() == nil && o.stillClaimed(other) {
			o.violate(c.parts[0].name, "%s got what %s of the same process believes to hold", c.op, other.op)
		}
	}
	o.checkToken(c)
	o.check(names)
}

// rivals are the claims of the same process that a claim excludes. They have ended before it is granted, whatever the server has lost.
func (o *oracle) rivals(c *claim) (all []*claim) {
	for _, p := range c.parts {
		for _, other := range o.claims[p.name] {
			if other == c || other.released || other.machine != c.machine || other.owns(p) {
				continue
			}
			for _, q := range other.parts {
				if q.name == p.name && (p.kind != "read" || q.kind != "read") {
					all = append(all, other)
				}
			}
		}
	}
	return all
}

// checkToken checks that a fencing token is greater than all that were given before it was asked for.
func (o *oracle) checkToken(c *claim) {
	token, fenced := c.lease.Token()
	if !fenced || c.op.parent != nil {
		return
	}
	w := o.world
	w.mu.Lock()
	defer w.mu.Unlock()
	name := c.parts[0].name
	if d := o.disturbed[name]; d != (disturbance{}) && d.until >= c.op.began {
		return
	}
	for _, other := range o.tokens[name] {
		if other.at < c.op.began && other.token >= token || other.token == token {
			o.violate(name, "%s got the fencing token %d, and %d was given at %s", c.op, token, other.token, stamp(other.at))
		}
	}
	given := append(o.tokens[name], tokenGiven{c.got, token})
	o.tokens[name] = given[max(0, len(given)-50):]
}

// checkRecord checks that a Once is not granted beside a record.
func (o *oracle) checkRecord(name string, c *claim) {
	if c.op.kind != "once" || c.op.parent != nil {
		return
	}
	if r, left := o.records[name]; left && r.from < c.op.began && c.got < r.until {
		o.violate(name, "%s got the lock of %s although a record was left at %s that lives until %s", c.op, name, stamp(r.from), stamp(r.until))
	}
	for _, other := range o.claims[name] {
		if other != c && other.marked && !other.released && other.got < c.op.began {
			o.violate(name, "%s got the lock of %s although the marker of %s stands", c.op, name, other.op)
		}
	}
}

// drop forgets a claim.
func (o *oracle) drop(c *claim) {
	for _, p := range c.parts {
		all := o.claims[p.name]
		for i := range all {
			if all[i] == c {
				o.claims[p.name] = append(all[:i:i], all[i+1:]...)
				break
			}
		}
	}
}

// disturbedSince reports whether keys of a claim's locks were disturbed since it was asked for.
func (o *oracle) disturbedSince(c *claim) bool {
	for _, p := range c.parts {
		if d, known := o.disturbed[p.name]; known && d.until >= c.op.began {
			return true
		}
	}
	return false
}

// calm reports whether no fault has had consequences since some time.
func (w *world) calm(since time.Duration) bool { return w.uneasyTill <= since }

// checkLoss checks that a lease that was lost has a reason. It is called when its holder sees that.
func (o *oracle) checkLoss(c *claim, err error) {
	w := o.world
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.now()
	if c.machine.dead || c.machine.closing || !errors.Is(err, core.ErrLockLost) || o.disturbedSince(c) || o.outlived(c, now) {
		return
	}
	switch {
	case c.fixed > 0:
		if least := c.op.began + c.fixed*97/100 - 5*time.Millisecond; now < least && w.calm(c.op.began) {
			o.violate(c.parts[0].name, "%s lost its lease of %s, %s before its end and without a fault", c.op, c.fixed, least-now)
		}
	case w.calm(c.op.began):
		o.violate(c.parts[0].name, "%s lost its lease without a fault", c.op)
	case w.calm(max(c.got, now-w.cfg.options.WatchdogTimeout)):
		o.violate(c.parts[0].name, "%s lost its lease, and the last fault is longer ago than a lease lasts", c.op)
	}
}

// outlived reports whether another lease of the same owner has ended with its LeaseTime. If it was the last one, the lock went with
// it, while the release of this one was under way.
func (o *oracle) outlived(c *claim, now time.Duration) bool {
	for _, p := range c.parts {
		for _, other := range o.claims[p.name] {
			if other != c && other.fixed > 0 && c.released && other.op.began+other.fixed*97/100 <= now+5*time.Millisecond && other.owns(p) {
				return true
			}
		}
	}
	return false
}

func (c *claim) owns(p part) bool {
	return slices.ContainsFunc(c.parts, func(q part) bool { return q.name == p.name && q.owner == p.owner })
}

// checkReleased checks what Release has returned.
func (o *oracle) checkReleased(c *claim, last bool, err error, began time.Duration) {
	w := o.world
	w.mu.Lock()
	defer w.mu.Unlock()
	name := c.parts[0].name
	if c.machine.dead {
		return
	}
	if err == nil && last {
		for _, p := range c.parts {
			if o.held(p) && w.calm(c.op.began) && !o.disturbedSince(c) {
				o.violate(p.name, "%s released %s, and the server still has its field %s", c.op, p.name, p.owner)
			}
		}
	}
	if err != nil && !errors.Is(err, core.ErrNotHeld) && w.calm(began) && !c.machine.closing {
		o.violate(name, "%s could not release %s in a world at rest: %v", c.op, name, err)
	}
}

// checkRefused checks that an Acquire that failed had a reason.
func (o *oracle) checkRefused(p *op, err error) {
	w := o.world
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(o.pending, p)
	switch {
	case p.machine.dead, p.machine.closing, !w.calm(p.began):
	case errors.Is(err, core.ErrNotAcquired), errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded), errors.Is(err, core.ErrUpgrade):
	case errors.Is(err, core.ErrNotHeld) && o.disturbedName(p): // it was granted, and taken away
	case errors.Is(err, core.ErrNotHeld) && p.parent != nil: // what it was to enter
	default:
		o.violate(p.names[0], "%s failed in a world at rest: %v", p, err)
	}
}

func (o *oracle) disturbedName(p *op) bool {
	for _, name := range p.names {
		if d, known := o.disturbed[name]; known && d.until >= p.began {
			return true
		}
	}
	return false
}

// checkRest looks for what should not last while the world is at rest.
func (o *oracle) checkRest() {
	o.checkWaiters()
	o.checkOrphans()
}

// checkWaiters looks for callers that wait for a lock that has been free for long.
func (o *oracle) checkWaiters() {
	w := o.world
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.now()
	for p := range o.pending {
		if p.machine.dead || len(p.names) > 1 || p.waits == 0 {
			continue
		}
		free, isFree := o.freeSince[p.names[0]]
		if !isFree {
			continue
		}
		since := max(free, p.began, w.faultTill)
		if waited := now - since; waited > o.patience(p.kind) {
			o.violate(p.names[0], "%s waits, and %s has been free since %s", p, p.names[0], stamp(free))
		}
	}
}

// checkOrphans looks for fields that nobody holds. A command that was given up at the end of a fault is cleaned up after when Redis
// answers, a CommandTimeout later, and once more after another.
func (o *oracle) checkOrphans() {
	w := o.world
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.now()
	known := make(map[string]time.Duration, len(o.orphans))
	for _, name := range w.cfg.names {
		n := w.nodeOf(name.name)
		n.tick()
		v := n.store.get(name.name)
		if v == nil {
			continue
		}
		for _, f := range v.fields {
			owner := strings.TrimSuffix(f.name, ":write")
			if f.name == "mode" || o.owned(name.name, owner) {
				continue
			}
			since, old := o.orphans[name.name+" "+owner]
			if !old {
				since = now
			}
			known[name.name+" "+owner] = since
			if left := now - max(since, w.faultTill, o.hereafter); left > 2*w.cfg.options.CommandTimeout+2*time.Second {
				o.violate(name.name, "nobody has held %s as %s since %s, and the server has it still", name.name, owner, stamp(since))
			}
		}
	}
	o.orphans = known
}

// owned reports whether somebody holds a lock as an owner, is about to, or has died with it.
func (o *oracle) owned(name, owner string) bool {
	for _, c := range o.claims[name] {
		if slices.ContainsFunc(c.parts, func(p part) bool { return p.owner == owner }) {
			return true
		}
	}
	for p := range o.pending {
		if slices.ContainsFunc(p.held(), func(p part) bool { return p.owner == owner }) {
			return true
		}
	}
	return false
}

// patience is how long a caller may wait for a lock that is free: until it polls, and for a fair lock until those who are dead have
// left the queue.
func (o *oracle) patience(kind string) time.Duration {
	opts := o.world.cfg.options
	d := 2*opts.PollInterval + 2*opts.CommandTimeout + 2*time.Second
	if kind == "fair" {
		d += opts.FairWaitTimeout + 20*time.Second
	}
	return d
}

// longestLease is how long Redis has a lock at most after the last command for it.
func (o *oracle) longestLease() time.Duration {
	return 2*max(o.world.cfg.options.WatchdogTimeout, maxLeasePaces*o.world.cfg.pace) + time.Second
}

// longestWait is how long the last caller waits for a lock at most.
func (o *oracle) longestWait(n lockName) time.Duration {
	o.world.mu.Lock()
	defer o.world.mu.Unlock()
	return o.patience(n.kind) + max(0, o.hereafter-o.world.now())
}

// checkFree checks that no lock is held, and that nobody stands in a queue.
func (o *oracle) checkFree() {
	w := o.world
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.now() < o.hereafter {
		return
	}
	for _, n := range w.nodes {
		n.tick()
		for _, key := range n.store.sorted() {
			v := n.store.get(key)
			switch {
			case isToken(key), strings.HasSuffix(key, ":record"), strings.HasSuffix(key, ":absent"):
			case v.kind == listValue || v.kind == zsetValue:
				if !w.killed() {
					o.violate(nameOf(key), "the queue %s has members when nobody waits: %v %v", key, v.list, v.members)
				}
			default:
				o.violate(nameOf(key), "the key %s is left, for %d ms more, when all work is done: %v", key, v.expires-n.store.now, v.fields)
			}
		}
	}
}

// killed reports whether a process has died, which may have left its place in a queue.
func (w *world) killed() bool {
	for _, m := range w.machines {
		if m.dead {
			return true
		}
	}
	return false
}

// checkEmpty checks that every key that is left will end, and that nobody listens.
func (o *oracle) checkEmpty() {
	w := o.world
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, n := range w.nodes {
		n.tick()
		for _, key := range n.store.sorted() {
			if v := n.store.get(key); v.expires == 0 && !isToken(key) {
				o.violate(nameOf(key), "the key %s is left for ever: %v%v%v", key, v.fields, v.list, v.members)
			}
		}
		for _, channel := range sortedKeys(n.subs) {
			o.violate("", "%s still listens to %s", n.subs[channel][0].name, channel)
		}
	}
}
