package sim

import (
	"slices"
	"strings"
	"time"

	"github.com/reqlock/reqlock/internal/lab/memredis"
)

// An entry is a field of a hash, a place in a queue, or a whole string, whose element is empty.
type entry struct{ key, element string }

// An orphan is a field of a lock that no caller holds.
type orphan struct {
	since time.Duration
	// until is when a leftover expires.
	until time.Duration
}

// leftover reports whether a fault may have left an entry in Redis, without a caller and without a
// cleanup: the owner's process died or could not reach Redis when it was closed, or a rollback
// brought the entry back. A hold ends with its lease. A place in a queue ends when its deadline has
// passed and another caller looks at the queue.
func (o *oracle) leftover(e entry) bool {
	if _, restored := o.restored[e]; restored {
		return true
	}
	proc := o.world.processOf(ownerOf(e))
	return proc != nil && proc.abandoned
}

// ownerOf returns the wire owner in an entry.
func ownerOf(e entry) string {
	if isReadTimeout(e.key) {
		_, rest, _ := strings.Cut(e.key, "}:")
		owner, _, _ := strings.Cut(rest, ":rwlock_timeout:")
		return owner
	}
	if isTaken(e.key) {
		return permitOwner(e.element)
	}
	return strings.TrimSuffix(e.element, ":write")
}

// restore notes which entries of a key a rollback brings back. The caller has the world's mutex.
func (o *oracle) restore(key string, now, older []string) {
	for _, element := range older {
		if !slices.Contains(now, element) {
			o.restored[entry{key, element}] = struct{}{}
		}
	}
}

// forgetRestored forgets what a rollback brought back and Redis no longer has.
func (o *oracle) forgetRestored() {
	for e := range o.restored {
		n := o.world.nodeOf(nameOf(e.key))
		n.tick()
		if !slices.Contains(n.db.Elements(e.key), e.element) {
			delete(o.restored, e)
		}
	}
}

// checkOrphans looks for fields that no caller holds. Leftovers expire; the others are freed soon.
func (o *oracle) checkOrphans() {
	w := o.world
	now := w.now()
	o.forgetRestored()
	orphans := make(map[entry]orphan, len(o.orphans))
	for _, l := range w.cfg.names {
		for _, h := range o.holds(l) {
			e, f, expires := h.entry, h.element, h.until
			if o.owned(e) {
				continue
			}
			found, known := o.orphans[e]
			if !known {
				found.since = now
			}
			switch {
			case !o.leftover(e):
				if now-max(found.since, w.faultUntil) > o.cleanupTime(e) && !o.deadReader(l, f) {
					o.violate(l.name, "no caller has held %s as %s since %s, but the server still has it",
						l.name, f, stamp(found.since))
				}
			case found.until == 0 || o.mayProlong(e):
				found.until = expires
			case expires > found.until+time.Millisecond:
				o.violate(l.name, "no caller holds %s as %s, but its lease was prolonged from %s to %s",
					l.name, f, stamp(found.until), stamp(expires))
			}
			orphans[e] = found
		}
	}
	o.orphans = orphans
}

// A hold is a field of a lock, or a permit, and when it expires.
type hold struct {
	entry
	until time.Duration
}

// holds returns what Redis has of the holders of a lock.
func (o *oracle) holds(l lockName) (all []hold) {
	n := o.world.nodeOf(l.name)
	n.tick()
	if l.kind == "semaphore" {
		return n.permits(l.name)
	}
	expires, _ := n.expires(l.name)
	for _, f := range n.db.Fields(l.name) {
		if f != "mode" {
			all = append(all, hold{entry{l.name, f}, expires})
		}
	}
	return all
}

// deadReader reports whether a field is that of a reader whose time-out keys have expired. Its
// cleanup may have been given up then. It keeps no writer out, because the next reader that leaves
// removes it.
func (o *oracle) deadReader(l lockName, field string) bool {
	return l.kind == "rw" && !strings.HasSuffix(field, ":write") && !o.inRedis(part{name: l.name, kind: "read", owner: field})
}

// cleanupTime returns how long it takes to free a hold after a fault. The hold of a command that
// was given up is freed when Redis answers again, and once more a CommandTimeout later. A waiter
// may ask again instead, with its next poll. A waiter for a fair lock asks with the same owner.
func (o *oracle) cleanupTime(e entry) time.Duration {
	opts := o.world.cfg.options
	d := 2*opts.CommandTimeout + 2*time.Second
	for p := range o.pending {
		if p.process == o.world.processOf(ownerOf(e)) && slices.Contains(p.names, nameOf(e.key)) {
			return d + longestPoll(opts)
		}
	}
	return d
}

// owned reports whether a process that runs holds a lock as an owner, or is about to.
func (o *oracle) owned(e entry) bool {
	owner := ownerOf(e)
	isIt := func(p part) bool { return p.owner == owner }
	for _, c := range o.claims[nameOf(e.key)] {
		if !c.process.dead && slices.ContainsFunc(c.parts, isIt) {
			return true
		}
	}
	for p := range o.pending {
		if !p.process.dead && slices.ContainsFunc(p.held(), isIt) {
			return true
		}
	}
	return false
}

// mayProlong reports whether the lease of a leftover may be prolonged: by readers, and by guests, who
// share a hash; by a command that a closed process sent before; or by a process that repeats its
// acquire and finds that a rollback has granted it.
func (o *oracle) mayProlong(e entry) bool {
	w := o.world
	proc := w.processOf(ownerOf(e))
	if proc.abandoned && !proc.dead && w.now() <= max(proc.abandonedAt, w.faultUntil)+w.cfg.options.CommandTimeout {
		return true
	}
	_, restored := o.restored[e]
	mode, _ := w.nodeOf(e.key).db.Field(e.key, "mode")
	return o.hasGuests(e) || (restored || mode == "read") && (!w.stopping || o.inUse(nameOf(e.key)))
}

// inUse reports whether a lock has a holder or a waiter.
func (o *oracle) inUse(name string) bool {
	for p := range o.pending {
		if slices.Contains(p.names, name) {
			return true
		}
	}
	return len(o.claims[name]) > 0
}

// checkFree checks that no lock is held and that no queue has a place, except for leftovers.
func (o *oracle) checkFree() {
	w := o.world
	w.mu.Lock()
	defer w.mu.Unlock()
	o.checkOrphans()
	for _, n := range w.nodes {
		n.tick()
		for _, key := range n.db.Keys() {
			if isToken(key) || isRecord(key) || strings.HasSuffix(key, ":absent") || o.isCounter(key) {
				continue
			}
			for _, element := range n.db.Elements(key) {
				if element == "mode" || isTaken(key) && n.expired(key, element) || o.leftover(entry{key, element}) ||
					isQueue(key) && o.expiredInAFault(n, key, element) {
					continue
				}
				if isQueue(key) {
					o.violate(nameOf(key), "the queue %s has a place of %s, which does not wait: %s", key, element, n.db.Describe(key))
				} else {
					o.violate(nameOf(key), "all work is done, but the key %s is left: %s", key, n.db.Describe(key))
				}
				break
			}
		}
	}
}

// expiredInAFault reports whether the deadline of a place in a queue passed before Redis could be told
// that its waiter had left. The next caller drops it.
func (o *oracle) expiredInAFault(n *node, key, owner string) bool {
	deadline, ok := n.db.Score(strings.Replace(key, "_queue:", "_timeout:", 1), owner)
	return ok && n.timeOf(int64(deadline)) < o.world.faultUntil
}

// longestWait returns how long the last caller waits for a lock at most. Leftovers keep it waiting
// until they expire.
func (o *oracle) longestWait(l lockName) time.Duration {
	w := o.world
	w.mu.Lock()
	defer w.mu.Unlock()
	n := w.nodeOf(l.name)
	n.tick()
	longest := o.maxWait(l.kind)
	last := w.now()
	for _, h := range o.holds(l) {
		last = max(last, h.until)
	}
	longest += last - w.now()
	return longest
}

// checkEmpty checks that all remaining keys expire, and that no client is subscribed.
func (o *oracle) checkEmpty() {
	w := o.world
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, n := range w.nodes {
		n.tick()
		for _, key := range n.db.Keys() {
			if n.db.TTL(key) == memredis.NoTTL && !isToken(key) && !o.forever[nameOf(key)] {
				o.violate(nameOf(key), "the key %s will never expire: %s", key, n.db.Describe(key))
			}
		}
		o.checkTotals()
		for _, channel := range sortedKeys(n.subs) {
			o.violate("", "%s is still subscribed to %s", n.subs[channel][0].name, channel)
		}
	}
}
