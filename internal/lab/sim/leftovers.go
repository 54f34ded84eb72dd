package sim

import (
	"slices"
	"strings"
	"time"
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
	return strings.TrimSuffix(e.element, ":write")
}

// restore notes which entries of a key a rollback brings back. The caller has the world's mutex.
func (o *oracle) restore(key string, now, older *value) {
	for _, element := range older.elements() {
		if !slices.Contains(now.elements(), element) {
			o.restored[entry{key, element}] = struct{}{}
		}
	}
}

// forgetRestored forgets what a rollback brought back and Redis no longer has.
func (o *oracle) forgetRestored() {
	for e := range o.restored {
		n := o.world.nodeOf(nameOf(e.key))
		n.tick()
		if !slices.Contains(n.store.get(e.key).elements(), e.element) {
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
		n := w.nodeOf(l.name)
		n.tick()
		v := n.store.get(l.name)
		if v == nil {
			continue
		}
		for _, f := range v.fields {
			e := entry{l.name, f.name}
			if f.name == "mode" || o.owned(e) {
				continue
			}
			found, known := o.orphans[e]
			if !known {
				found.since = now
			}
			switch expires := n.timeOf(v.expires); {
			case !o.leftover(e):
				if now-max(found.since, w.faultUntil) > o.cleanupTime(e) && !o.deadReader(l, f.name) {
					o.violate(l.name, "no caller has held %s as %s since %s, but the server still has it",
						l.name, f.name, stamp(found.since))
				}
			case found.until == 0 || o.mayProlong(e, v):
				found.until = expires
			case expires > found.until+time.Millisecond:
				o.violate(l.name, "no caller holds %s as %s, but its lease was prolonged from %s to %s",
					l.name, f.name, stamp(found.until), stamp(expires))
			}
			orphans[e] = found
		}
	}
	o.orphans = orphans
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
		if p.process == o.world.processOf(ownerOf(e)) && slices.Contains(p.names, e.key) {
			return d + longestPoll(opts)
		}
	}
	return d
}

// owned reports whether a process that runs holds a lock as an owner, or is about to.
func (o *oracle) owned(e entry) bool {
	owner := ownerOf(e)
	isIt := func(p part) bool { return p.owner == owner }
	for _, c := range o.claims[e.key] {
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

// mayProlong reports whether the lease of a leftover may be prolonged: by readers, who share a
// hash; by a command that a closed process sent before; or by a process that repeats its acquire
// and finds that a rollback has granted it.
func (o *oracle) mayProlong(e entry, v *value) bool {
	w := o.world
	proc := w.processOf(ownerOf(e))
	if proc.abandoned && !proc.dead && w.now() <= max(proc.abandonedAt, w.faultUntil)+w.cfg.options.CommandTimeout {
		return true
	}
	_, restored := o.restored[e]
	mode, _ := v.field("mode")
	return (restored || mode == "read") && (!w.stopping || o.inUse(e.key))
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
		for _, key := range n.store.sorted() {
			v := n.store.get(key)
			if isToken(key) || isRecord(key) || strings.HasSuffix(key, ":absent") {
				continue
			}
			for _, element := range v.elements() {
				if v.kind == hashValue && element == "mode" || o.leftover(entry{key, element}) {
					continue
				}
				if v.kind == listValue || v.kind == zsetValue {
					o.violate(nameOf(key), "the queue %s has a place of %s, which does not wait: %v%v",
						key, element, v.list, v.members)
				} else {
					o.violate(nameOf(key), "all work is done, but the key %s is left for %d ms: %v",
						key, v.expires-n.store.now, v.fields)
				}
				break
			}
		}
	}
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
	if v := n.store.get(l.name); v != nil {
		longest += n.timeOf(v.expires) - w.now()
	}
	return longest
}

// checkEmpty checks that all remaining keys expire, and that no client is subscribed.
func (o *oracle) checkEmpty() {
	w := o.world
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, n := range w.nodes {
		n.tick()
		for _, key := range n.store.sorted() {
			if v := n.store.get(key); v.expires == 0 && !isToken(key) {
				o.violate(nameOf(key), "the key %s will never expire: %v%v%v", key, v.fields, v.list, v.members)
			}
		}
		for _, channel := range sortedKeys(n.subs) {
			o.violate("", "%s is still subscribed to %s", n.subs[channel][0].name, channel)
		}
	}
}
