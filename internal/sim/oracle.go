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
	claims       map[string][]*claim      // leases, by the names they hold
	pending      map[*op]struct{}         // callers of Acquire
	disturbed    map[string]disturbance   // locks whose holds a fault changed, by name
	tokens       map[string][]tokenGiven  // since tokensReset, by name
	tokensReset  map[string]time.Duration // when a fault last changed the token counter, by name
	records      map[string]recordLeft    // since recordsReset, by name
	recordsReset map[string]time.Duration // when a fault last changed the record or marker, by name
	freeSince    map[string]time.Duration
	orphans      map[entry]orphan   // fields of locks that no caller holds
	restored     map[entry]struct{} // what a rollback brought back
}

// A disturbance is the time within which a fault took holds of a lock away, or may have.
type disturbance struct{ from, until time.Duration }

// An entry is a field of a hash, a place in a queue, or a whole string, whose element is empty.
type entry struct{ key, element string }

// An orphan is a field in the hash of a lock that no caller holds.
type orphan struct {
	since time.Duration
	until time.Duration // a leftover's: when it expires
}

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
	marker   time.Duration // a Once's: how long its marker lives from the grant on; 0: none
}

// A part is a lock that a claim holds, with its field in Redis.
type part struct{ name, kind, owner string }

func newOracle(w *world) *oracle {
	return &oracle{
		world:        w,
		stop:         make(chan struct{}),
		claims:       make(map[string][]*claim),
		pending:      make(map[*op]struct{}),
		disturbed:    make(map[string]disturbance),
		tokens:       make(map[string][]tokenGiven),
		tokensReset:  make(map[string]time.Duration),
		records:      make(map[string]recordLeft),
		recordsReset: make(map[string]time.Duration),
		freeSince:    make(map[string]time.Duration),
		orphans:      make(map[entry]orphan),
		restored:     make(map[entry]struct{}),
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

// disturb notes that a fault changed a key. The caller has the world's mutex.
func (o *oracle) disturb(key string) {
	name, now := nameOf(key), o.world.now()
	switch {
	case isToken(key):
		delete(o.tokens, name)
		o.tokensReset[name] = now
	case isRecord(key):
		delete(o.records, name)
		o.recordsReset[name] = now
		for _, c := range o.claims[name] {
			c.marker = 0
		}
	case key == name || isReadTimeout(key):
		o.disturbUntil(name, now)
	}
	o.world.change(name) // no promise depends on a place in a queue
}

// disturbUntil notes that a fault may take holds of a lock away until some time.
func (o *oracle) disturbUntil(name string, until time.Duration) {
	now := o.world.now()
	d, known := o.disturbed[name]
	if !known || d.until < now {
		d.from = now
	}
	d.until = max(d.until, until)
	o.disturbed[name] = d
	o.world.change(name)
}

// restore notes what a restart with older data brings back. The caller has the world's mutex.
func (o *oracle) restore(key string, now, older *value) {
	for _, element := range older.elements() {
		if !slices.Contains(now.elements(), element) {
			o.restored[entry{key, element}] = struct{}{}
		}
	}
}

func isToken(key string) bool       { return strings.HasPrefix(key, "redisson_lock_token:") }
func isRecord(key string) bool      { return strings.HasSuffix(key, "}:record") }
func isReadTimeout(key string) bool { return strings.Contains(key, ":rwlock_timeout:") }

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
	if wrong {
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
	if reset, was := o.tokensReset[name]; was && reset >= c.op.began {
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
		stands := other.op.began + leastTTL(other.marker) // the grant came later
		if other != c && other.marker > 0 && !other.released && other.got < c.op.began && c.got < stands {
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

// leastTTL is how long a key with a TTL lives at least, by a server whose clock may be fast.
func leastTTL(ttl time.Duration) time.Duration {
	return time.Duration(float64(ttl)*(1-maxClockDrift)) - 2*time.Millisecond
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

// checkOrphans looks for fields that no caller holds. A command that was given up at the end of a
// fault is cleaned up after when Redis answers, a CommandTimeout later, and once more after another.
func (o *oracle) checkOrphans() {
	w := o.world
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.now()
	o.pruneRestored()
	known := make(map[entry]orphan, len(o.orphans))
	for _, name := range w.cfg.names {
		n := w.nodeOf(name.name)
		n.tick()
		v := n.store.get(name.name)
		if v == nil {
			continue
		}
		for _, f := range v.fields {
			e := entry{name.name, f.name}
			owner := strings.TrimSuffix(f.name, ":write")
			if f.name == "mode" || o.owned(name.name, owner) {
				continue
			}
			seen, old := o.orphans[e]
			if !old {
				seen.since = now
			}
			switch expires := n.timeOf(v.expires); {
			case !o.leftover(e, owner):
				if now-max(seen.since, w.faultTill) > 2*w.cfg.options.CommandTimeout+2*time.Second {
					o.violate(name.name, "no caller has held %s as %s since %s, and the server has it still", name.name, f.name, stamp(seen.since))
				}
			case seen.until == 0 || o.mayProlong(e, owner, v):
				seen.until = expires
			case expires > seen.until+time.Millisecond:
				o.violate(name.name, "a fault left %s in %s until %s, and now it lasts until %s", f.name, name.name, stamp(seen.until), stamp(expires))
			}
			known[e] = seen
		}
	}
	o.orphans = known
}

// pruneRestored forgets what a rollback brought back once it is gone again.
func (o *oracle) pruneRestored() {
	for e := range o.restored {
		n := o.world.nodeOf(nameOf(e.key))
		n.tick()
		if !slices.Contains(n.store.get(e.key).elements(), e.element) {
			delete(o.restored, e)
		}
	}
}

// leftover reports whether Redis may have something of an owner without a caller, and without a
// clean-up of core: its process died or could not reach Redis when it was closed, or a rollback
// brought it back. A hold ends with its lease. A place in a queue ends when its deadline has passed
// and another caller looks at it.
func (o *oracle) leftover(e entry, owner string) bool {
	if _, is := o.restored[e]; is {
		return true
	}
	m := o.world.machineOf(owner)
	return m != nil && m.abandoned
}

// mayProlong reports whether the lease of a leftover may become longer. Readers prolong the hash
// for each other. A closed process may have sent a command that is still on its way. A process may
// repeat its acquire, and find that a rollback has granted it.
func (o *oracle) mayProlong(e entry, owner string, v *value) bool {
	w := o.world
	if m := w.machineOf(owner); !m.dead && m.abandoned && w.now() <= max(m.abandonedAt, w.faultTill)+w.cfg.options.CommandTimeout {
		return true
	}
	_, restored := o.restored[e]
	mode, _ := v.field("mode")
	return (restored || mode == "read") && (!w.stopping || o.used(e.key))
}

// used reports whether a lock has callers.
func (o *oracle) used(name string) bool {
	for p := range o.pending {
		if slices.Contains(p.names, name) {
			return true
		}
	}
	return len(o.claims[name]) > 0
}

// owned reports whether a living process holds a lock as an owner, or is about to.
func (o *oracle) owned(name, owner string) bool {
	for _, c := range o.claims[name] {
		if !c.machine.dead && slices.ContainsFunc(c.parts, func(p part) bool { return p.owner == owner }) {
			return true
		}
	}
	for p := range o.pending {
		if !p.machine.dead && slices.ContainsFunc(p.held(), func(p part) bool { return p.owner == owner }) {
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

// longestWait is how long the last caller waits for a lock at most: until leftovers have expired.
func (o *oracle) longestWait(n lockName) time.Duration {
	w := o.world
	w.mu.Lock()
	defer w.mu.Unlock()
	node := w.nodeOf(n.name)
	node.tick()
	longest := o.patience(n.kind)
	if v := node.store.get(n.name); v != nil {
		longest += node.timeOf(v.expires) - w.now()
	}
	return longest
}

// checkFree checks that no lock is held, and that no queue has a place, except what a fault left.
func (o *oracle) checkFree() {
	w := o.world
	o.checkOrphans()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, n := range w.nodes {
		n.tick()
		for _, key := range n.store.sorted() {
			v := n.store.get(key)
			if isToken(key) || isRecord(key) || strings.HasSuffix(key, ":absent") {
				continue
			}
			for _, element := range v.elements() {
				if v.kind == hashValue && element == "mode" || o.leftover(entry{key, element}, ownerOf(key, element)) {
					continue
				}
				if v.kind == listValue || v.kind == zsetValue {
					o.violate(nameOf(key), "the queue %s has a place of %s, which does not wait: %v%v", key, element, v.list, v.members)
				} else {
					o.violate(nameOf(key), "the key %s is left, for %d ms more, when all work is done: %v", key, v.expires-n.store.now, v.fields)
				}
				break
			}
		}
	}
}

// ownerOf is the wire owner that an element of a key belongs to.
func ownerOf(key, element string) string {
	if isReadTimeout(key) {
		_, rest, _ := strings.Cut(key, "}:")
		owner, _, _ := strings.Cut(rest, ":rwlock_timeout:")
		return owner
	}
	return strings.TrimSuffix(element, ":write")
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
