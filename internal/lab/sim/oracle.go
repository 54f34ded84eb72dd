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

// An oracle compares what leases report with what the servers hold. It checks that
//
//   - a lease whose Err is nil is held in Redis: its field is in the lock's hash, and a reader has
//     a time-out key as well. If a fault or ForceUnlock takes these keys away, each lease that was
//     granted or requested before may report the loss late, until its time is over;
//   - two leases of one process that exclude each other are never valid together, not even then;
//   - the hash of a lock has one holder, or only readers, or one family: a holder and its guests, and
//     their guests;
//   - a guest enters only while its host holds the lock, has its fencing token, and does not wait. It
//     is turned away only if its host has left or lost the lock;
//   - a permit is granted only if no more are in force then than were declared last; see permits.go;
//   - fencing tokens rise as long as no fault changes their counter;
//   - a lease is lost only after a fault;
//   - Release returns nil only after the field was deleted, and the marker of a Once;
//   - a Once is not granted while it has a record or another holder's marker;
//   - without faults, a call returns no error except that the lock is held, and no caller waits for
//     a free lock. The effects of a fault end when calm says so;
//   - a lock that its caller did not get, or could not release, is freed in the background soon
//     after the last fault;
//   - in the end all locks are free, no key but token counters lacks a TTL, Stats are zero, and no
//     goroutine runs.
//
// A fault may leave entries in Redis that core neither frees nor has to free; see leftover.
type oracle struct {
	world *world
	stop  chan struct{} // closed at the first violation

	mu         sync.Mutex
	violations []string
	// about are the locks of the violations.
	about []string

	// Guarded by the world's mutex.

	// pending are the calls of Acquire that have not returned.
	pending map[*op]struct{}
	// orphans are fields of locks that no caller holds.
	orphans map[entry]orphan
	// restored is what a rollback brought back.
	restored map[entry]struct{}

	// The same, by the name of the lock.
	claims    map[string][]*claim
	freeSince map[string]time.Duration
	// damagedUntil is when a fault or ForceUnlock last changed the holders.
	damagedUntil map[string]time.Duration
	// tokens were issued since tokensReset, when a fault last changed the token counter.
	tokens      map[string][]issuedToken
	tokensReset map[string]time.Duration
	// records were stored since recordsReset, when a fault last changed the record or marker.
	records      map[string]storedRecord
	recordsReset map[string]time.Duration
	// declared has the numbers of permits that a semaphore may have.
	declared map[string][]int
	// forever has the semaphores that SetPermits was called for.
	forever map[string]bool
	// granted has the permits of a semaphore that were in force when the last one was granted.
	granted map[string][]hold
	// invited has who may enter which hold as a guest.
	invited map[visit]struct{}
	// families has the families of all holds that had or were guests.
	families map[member]familyName
	// enoughSince has when so many permits became free, by name and number.
	enoughSince map[permitCount]time.Duration
}

type issuedToken struct {
	at    time.Duration
	token uint64
}

type storedRecord struct{ from, until time.Duration }

// A claim is a lease from its grant to its release.
type claim struct {
	op        *op
	lease     *core.Lease
	process   *process
	parts     []part
	grantedAt time.Duration
	// leaseTime is 0 if the watchdog renews the lease.
	leaseTime time.Duration
	// endsBy is when a lease with a leaseTime has ended for certain.
	endsBy time.Duration
	// released is true if the lease was released, or is about to be.
	released bool
	// token is the fencing token. 0: it has none.
	token uint64
	// marker is the TTL of the marker of a Once. 0: it has none.
	marker time.Duration
}

// A part is a lock that a claim holds, and its wire owner. That of a semaphore has permits.
type part struct {
	name, kind, owner string
	permits           int
}

func newOracle(w *world) *oracle {
	return &oracle{
		world:        w,
		stop:         make(chan struct{}),
		claims:       make(map[string][]*claim),
		pending:      make(map[*op]struct{}),
		damagedUntil: make(map[string]time.Duration),
		tokens:       make(map[string][]issuedToken),
		tokensReset:  make(map[string]time.Duration),
		records:      make(map[string]storedRecord),
		recordsReset: make(map[string]time.Duration),
		declared:     make(map[string][]int),
		forever:      make(map[string]bool),
		granted:      make(map[string][]hold),
		enoughSince:  make(map[permitCount]time.Duration),
		freeSince:    make(map[string]time.Duration),
		orphans:      make(map[entry]orphan),
		restored:     make(map[entry]struct{}),
	}
}

// violate reports a violation that is about a lock, or about none.
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

// damage notes that a fault changed or deleted a key. It excuses only what depends on that key. No
// invariant depends on a place in a queue. The caller has the world's mutex.
func (o *oracle) damage(key string) {
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
	case o.isCounter(key): // it is restored
	case key == name || isReadTimeout(key) || isTaken(key):
		o.damageUntil(name, now)
	}
	o.world.change(name)
}

// damageUntil notes that a lock may lose its holders until the given time.
func (o *oracle) damageUntil(name string, until time.Duration) {
	o.damagedUntil[name] = max(o.damagedUntil[name], until)
	o.world.change(name)
}

// damagedSince reports whether one of some locks was damaged since the given time.
func (o *oracle) damagedSince(names []string, since time.Duration) bool {
	return slices.ContainsFunc(names, func(name string) bool { return after(o.damagedUntil, name, since) })
}

// after reports whether a name has a time that is not before the given one.
func after(times map[string]time.Duration, name string, since time.Duration) bool {
	at, known := times[name]
	return known && at >= since
}

func isToken(key string) bool       { return strings.HasPrefix(key, "redisson_lock_token:") }
func isRecord(key string) bool      { return strings.HasSuffix(key, "}:record") }
func isReadTimeout(key string) bool { return strings.Contains(key, ":rwlock_timeout:") }

func isQueue(key string) bool {
	return strings.HasPrefix(key, "redisson_lock_queue:") || strings.HasPrefix(key, "redisson_lock_timeout:")
}

// calm reports whether no fault has had effects since the given time.
func (w *world) calm(since time.Duration) bool { return w.disturbedUntil <= since }

// inRedis reports whether the server has the field of a part. The field of a writer stands for its
// read side as well: it excludes all others, and the downgrade writes the read side anew. The
// caller has the world's mutex.
func (o *oracle) inRedis(p part) bool {
	n := o.world.nodeOf(p.name)
	n.tick()
	if p.kind == "semaphore" {
		return n.hasPermits(p)
	}
	_, writes := n.db.Field(p.name, p.owner+":write")
	if p.kind == "write" || p.kind == "read" && writes {
		return writes
	}
	_, found := n.db.Field(p.name, p.owner)
	if p.kind != "read" || !found {
		return found
	}
	for level := range 9 { // callers re-enter less often
		if n.db.Value(fmt.Sprintf("{%s}:%s:rwlock_timeout:%d", p.name, p.owner, level+1)) != "" {
			return true
		}
	}
	return false
}

// hasMarker reports whether the server has the marker of a Once that was granted to a part. A
// record replaces it.
func (o *oracle) hasMarker(p part) bool {
	n := o.world.nodeOf(p.name)
	n.tick()
	owner, found := n.db.Field("{"+p.name+"}:record", "marker")
	return found && owner == p.owner
}

// check compares the leases of some locks with the server. The caller does not have the world's
// mutex, because a lease has its own mutex.
func (o *oracle) check(names []string) {
	w := o.world
	for _, name := range names {
		w.mu.Lock()
		o.checkHash(name)
		var missing []*claim
		for _, c := range o.claims[name] {
			if c.released || c.process.dead || o.mayBeLate(c, name) {
				continue
			}
			if slices.ContainsFunc(c.parts, func(p part) bool { return p.name == name && !o.inRedis(p) }) {
				missing = append(missing, c)
			}
		}
		w.mu.Unlock()
		for _, c := range missing {
			if c.lease.Err() == nil && o.claimed(c) {
				o.violate(name, "%s has a valid lease of %s for another %s, but the server does not have it",
					c.op, name, c.lease.Remaining())
			}
		}
	}
}

// claimed reports whether a claim has not begun to be released.
func (o *oracle) claimed(c *claim) bool {
	o.world.mu.Lock()
	defer o.world.mu.Unlock()
	return !c.released
}

// mayBeLate reports whether a lease may be valid although Redis has lost it.
func (o *oracle) mayBeLate(c *claim, name string) bool {
	if !after(o.damagedUntil, name, c.op.began) {
		return false
	}
	if c.leaseTime > 0 {
		return o.world.now() <= c.endsBy
	}
	return o.world.now() <= o.damagedUntil[name]+o.world.cfg.options.WatchdogTimeout
}

// checkHash checks that the fields of a lock may be there together. It also notes since when the
// lock is free.
func (o *oracle) checkHash(name string) {
	n := o.world.nodeOf(name)
	n.tick()
	if o.world.kindOf(name) == "semaphore" {
		o.checkPermits(name)
		return
	}
	fields := n.db.Fields(name)
	if fields == nil {
		if _, known := o.freeSince[name]; !known {
			o.freeSince[name] = o.world.now()
		}
		return
	}
	delete(o.freeSince, name)
	if _, ok := n.expires(name); !ok {
		o.violate(name, "the key %s has no TTL", name)
	}
	mode, readWrite := n.db.Field(name, "mode")
	writes := slices.ContainsFunc(fields, func(f string) bool { return strings.HasSuffix(f, ":write") })
	wrong := false
	switch {
	case !readWrite:
		wrong = !o.oneFamily(name, fields)
	case mode == "write":
		wrong = !writes || !o.oneFamily(name, fields)
	default:
		wrong = writes
	}
	if wrong {
		o.violate(name, "the holders of %s exclude each other: %s", name, n.db.Describe(name))
	}
}

// claim registers a lease that was granted.
func (o *oracle) claim(c *claim) {
	w := o.world
	c.token, _ = c.lease.Token()
	w.mu.Lock()
	c.grantedAt = w.now()
	o.returned(c.op)
	for _, p := range c.parts {
		o.claims[p.name] = append(o.claims[p.name], c)
		w.change(p.name)
		o.checkRecord(p.name, c)
	}
	if c.op.invited != nil {
		o.checkGuest(c)
	}
	names := w.changed
	rivals := o.rivals(c)
	w.mu.Unlock()
	for _, other := range rivals {
		if c.lease.Err() == nil && other.lease.Err() == nil && o.claimed(other) {
			o.violate(c.parts[0].name, "%s was granted a lock while %s in the same process has a valid lease", c.op, other.op)
		}
	}
	o.checkToken(c)
	o.check(names)
}

// rivals returns the claims of the same process that a claim excludes. Their leases end before it
// is granted, whatever the server has lost. The grant of a guest ends none: its host may be a hold of
// another process.
func (o *oracle) rivals(c *claim) (all []*claim) {
	guest := o.isGuest(c)
	for _, p := range c.parts {
		for _, other := range o.claims[p.name] {
			if other == c || other.released || other.process != c.process || other.owns(p) {
				continue
			}
			if guest && o.mayBeLate(other, p.name) {
				continue
			}
			for _, q := range other.parts {
				if q.name == p.name && (p.kind != "read" || q.kind != "read") && p.kind != "semaphore" &&
					o.family(member{p.name, p.owner}) != o.family(member{q.name, q.owner}) {
					all = append(all, other)
				}
			}
		}
	}
	return all
}

// owns reports whether a claim has the wire owner of a part.
func (c *claim) owns(p part) bool {
	return slices.ContainsFunc(c.parts, func(q part) bool { return q.name == p.name && q.owner == p.owner })
}

// checkToken checks that a fencing token is greater than all that were granted before the call of
// Acquire.
func (o *oracle) checkToken(c *claim) {
	token := c.token
	if token == 0 || c.op.parent != nil {
		return
	}
	w := o.world
	w.mu.Lock()
	defer w.mu.Unlock()
	name := c.parts[0].name
	if o.isGuest(c) { // it has the token of its host; see checkGuest
		return
	}
	if after(o.tokensReset, name, c.op.began) {
		return
	}
	for _, other := range o.tokens[name] {
		if other.at < c.op.began && other.token >= token || other.token == token {
			o.violate(name, "%s was granted the fencing token %d after %d at %s", c.op, token, other.token, stamp(other.at))
		}
	}
	tokens := append(o.tokens[name], issuedToken{c.grantedAt, token})
	o.tokens[name] = tokens[max(0, len(tokens)-50):]
}

// setMarker notes that the grant of a Once stored a marker.
func (o *oracle) setMarker(c *claim, ttl time.Duration) {
	o.world.mu.Lock()
	defer o.world.mu.Unlock()
	if !after(o.recordsReset, c.parts[0].name, c.op.began) {
		c.marker = ttl
	}
}

// checkRecord checks that a Once is not granted while it has a record or a marker.
func (o *oracle) checkRecord(name string, c *claim) {
	if c.op.kind != "once" || c.op.parent != nil {
		return
	}
	if r, known := o.records[name]; known && r.from < c.op.began && c.grantedAt < r.until {
		o.violate(name, "%s was granted %s, which has a record from %s to %s", c.op, name, stamp(r.from), stamp(r.until))
	}
	for _, other := range o.claims[name] {
		until := other.op.began + minTTL(other.marker) // it was stored later
		if other != c && other.marker > 0 && !other.released && other.grantedAt < c.op.began && c.grantedAt < until {
			o.violate(name, "%s was granted %s, which has a marker of %s until %s", c.op, name, other.op, stamp(until))
		}
	}
}

// minTTL returns how long a key with the given TTL lives at least, if the server's clock is fast.
func minTTL(ttl time.Duration) time.Duration {
	return time.Duration(float64(ttl)*(1-maxClockDrift)) - 2*time.Millisecond
}

// checkLoss checks that a lease was lost for a reason.
func (o *oracle) checkLoss(c *claim, err error) {
	w := o.world
	w.mu.Lock()
	defer w.mu.Unlock()
	now, name := w.now(), c.parts[0].name
	if c.process.closing || !errors.Is(err, core.ErrLockLost) {
		return
	}
	if o.damagedSince(c.op.names, c.op.began) || o.expiredFor(c, now) {
		return
	}
	switch {
	case c.leaseTime > 0:
		if end := c.op.began + shortestLease(c.leaseTime); now < end && w.calm(c.op.began) {
			o.violate(name, "%s lost a lease of %s without a fault, %s early", c.op, c.leaseTime, end-now)
		}
	case w.calm(c.op.began):
		o.violate(name, "%s lost its lease without a fault", c.op)
	case w.calm(max(c.grantedAt, now-w.cfg.options.WatchdogTimeout)):
		o.violate(name, "%s lost its lease, but the last fault was more than a lease ago", c.op)
	}
}

// shortestLease returns how long a lease with a LeaseTime lasts at least. It ends before the lease
// in Redis, because clocks differ.
func shortestLease(leaseTime time.Duration) time.Duration {
	return leaseTime*97/100 - 5*time.Millisecond
}

// expiredFor reports whether a claim was lost because another lease of its owner has ended. If that
// was the last one, the lock expired with it while the release of this one was on its way.
func (o *oracle) expiredFor(c *claim, now time.Duration) bool {
	for _, p := range c.parts {
		for _, other := range o.claims[p.name] {
			if other == c || other.leaseTime == 0 || !c.released || !other.owns(p) {
				continue
			}
			if other.op.began+shortestLease(other.leaseTime) <= now {
				return true
			}
		}
	}
	return false
}

// beginRelease notes that a claim is released. ok is false if that was noted before. last reports
// whether no other lease of the same owner is left.
func (o *oracle) beginRelease(c *claim) (last, ok bool) {
	o.world.mu.Lock()
	defer o.world.mu.Unlock()
	if c.released {
		return false, false
	}
	c.released = true
	last = c.op.parent == nil
	for _, p := range c.parts {
		for _, other := range o.claims[p.name] {
			if other != c && !other.released && other.owns(p) {
				last = false
			}
		}
	}
	return last, true
}

// endRelease checks what Release returned, and forgets the claim. ttl is that of a record that was
// to be stored; 0: none.
func (o *oracle) endRelease(c *claim, last bool, ttl time.Duration, err error, began time.Duration) {
	w := o.world
	w.mu.Lock()
	defer w.mu.Unlock()
	name := c.parts[0].name
	if err == nil && last && !c.process.dead {
		for _, p := range c.parts {
			if !w.calm(c.op.began) {
				continue
			}
			if o.inRedis(p) && !o.damagedSince(c.op.names, c.op.began) {
				o.violate(p.name, "%s released %s, but the server still has its field %s", c.op, p.name, p.owner)
			}
			if o.hasMarker(p) && !after(o.recordsReset, p.name, c.op.began) {
				o.violate(p.name, "%s released %s, but the server still has its marker", c.op, p.name)
			}
		}
	}
	if err != nil && !errors.Is(err, core.ErrNotHeld) && w.calm(began) && !c.process.closing {
		o.violate(name, "%s could not release %s, although there was no fault: %v", c.op, name, err)
	}
	if ttl > 0 && err == nil && !after(o.recordsReset, name, began) {
		if until := began + minTTL(ttl); until > o.records[name].until {
			o.records[name] = storedRecord{w.now(), until}
		}
	}
	for _, p := range c.parts {
		isIt := func(other *claim) bool { return other == c }
		o.claims[p.name] = slices.DeleteFunc(slices.Clone(o.claims[p.name]), isIt)
	}
}

// checkNotGranted checks that an Acquire without a grant had a reason. A nil error means that there
// was a record.
func (o *oracle) checkNotGranted(p *op, err error) {
	w := o.world
	over := p.invited != nil && p.invited.host.lease.Err() != nil
	w.mu.Lock()
	defer w.mu.Unlock()
	o.returned(p)
	if err == nil || p.process.closing || !w.calm(p.began) {
		return
	}
	for _, reason := range []error{core.ErrNotAcquired, core.ErrUpgrade, context.Canceled, context.DeadlineExceeded} {
		if errors.Is(err, reason) {
			return
		}
	}
	if o.turnedAway(p, err, over) {
		return
	}
	// A damaged lock may be lost at once. So may the lease that a call re-enters.
	lost := p.parent != nil || o.damagedSince(p.names, p.began)
	// A lease may end before Acquire returns: that of a member of a MultiLock, while Acquire waits for
	// the next member, or one that lasts for only a few round trips.
	if p.leaseTime > 0 && w.now() >= p.began+shortestLease(p.leaseTime) {
		lost = lost || p.kind == "multi" || p.leaseTime < 100*w.cfg.latency
	}
	if lost && errors.Is(err, core.ErrNotHeld) {
		return
	}
	// SetPermits of others, or their declarations, leave fewer permits than the call takes.
	fewer := slices.ContainsFunc(o.declared[p.names[0]], func(n int) bool { return n < p.takes })
	if fewer && errors.Is(err, core.ErrInvalidOptions) {
		return
	}
	o.violate(p.names[0], "%s failed, although there was no fault: %v", p, err)
}

// checkProgress checks what must not last.
func (o *oracle) checkProgress() {
	o.world.mu.Lock()
	defer o.world.mu.Unlock()
	o.checkWaiters()
	o.checkOrphans()
}

// checkWaiters looks for callers that wait although the lock has been free for long.
func (o *oracle) checkWaiters() {
	w := o.world
	for p := range o.pending {
		if p.process.dead || len(p.names) > 1 || p.waits == 0 {
			continue
		}
		free, isFree := o.freeSince[p.names[0]]
		if w.kindOf(p.names[0]) == "semaphore" {
			free, isFree = o.enoughSince[permitCount{p.names[0], o.wants(p)}]
		}
		if isFree && w.now()-max(free, p.began, p.behind, w.faultUntil) > o.maxWait(w.kindOf(p.names[0])) {
			o.violate(p.names[0], "%s waits, although %s has been free since %s", p, p.names[0], stamp(free))
		}
	}
}

// longestPoll returns the longest time between two polls of a waiter, that of one that hears its
// channel. A message may have been lost nevertheless.
func longestPoll(opts core.Options) time.Duration { return 7 * opts.PollInterval }

// maxWait returns how long a caller may wait for a free lock of a kind: until its next poll. The
// waiters of a fair lock also wait for dead waiters to leave the queue.
func (o *oracle) maxWait(kind string) time.Duration {
	opts := o.world.cfg.options
	d := longestPoll(opts) + opts.PollInterval + 2*opts.CommandTimeout + 2*time.Second
	if kind == "fair" {
		d += opts.FairWaitTimeout + 20*time.Second
	}
	return d
}
