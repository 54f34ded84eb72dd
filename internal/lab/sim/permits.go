package sim

import (
	"slices"
	"strconv"
	"strings"
)

// A permitCount is a number of permits of a semaphore.
type permitCount struct {
	name   string
	number int
}

func isTaken(key string) bool        { return strings.HasSuffix(key, "}:timeout") }
func takenKey(name string) string    { return "{" + name + "}:timeout" }
func declaredKey(name string) string { return "{" + name + "}:permits" }

// isCounter reports whether a key has a number of permits. It holds nothing, and is restored.
func (o *oracle) isCounter(key string) bool {
	name := nameOf(key)
	return o.world.kindOf(name) == "semaphore" && (key == name || key == declaredKey(name))
}

// permitID returns the id of an owner's n-th permit, from 1.
func permitID(owner string, n int) string {
	if n == 1 {
		return owner
	}
	return owner + ":" + strconv.Itoa(n)
}

// permitOwner returns the owner of a permit. It has one colon.
func permitOwner(id string) string {
	client, rest, _ := strings.Cut(id, ":")
	hold, _, _ := strings.Cut(rest, ":")
	return client + ":" + hold
}

// permits returns the permits of a semaphore that are in force.
func (n *node) permits(name string) (all []hold) {
	key := takenKey(name)
	for _, id := range n.db.Elements(key) {
		if !n.expired(key, id) {
			score, _ := n.db.Score(key, id)
			all = append(all, hold{entry{key, id}, n.timeOf(int64(score))})
		}
	}
	return all
}

// expired reports whether a permit has expired.
func (n *node) expired(key, id string) bool {
	score, _ := n.db.Score(key, id)
	return int64(score) <= n.db.Now
}

// hasPermits reports whether all permits of a part are in force.
func (n *node) hasPermits(p part) bool {
	for i := range p.permits {
		if n.expired(takenKey(p.name), permitID(p.owner, i+1)) {
			return false
		}
	}
	return true
}

// declare notes that a semaphore may have a number of permits from now on.
func (o *oracle) declare(name string, permits int) {
	if !slices.Contains(o.declared[name], permits) {
		o.declared[name] = append(o.declared[name], permits)
	}
}

// most returns the largest number of permits that a semaphore may have.
func (o *oracle) most(name string) int { return slices.Max(o.declared[name]) }

// checkGrants checks a semaphore after a script that has written its permits. If there are more of them than
// before, no more may be in force than were declared last.
func (o *oracle) checkGrants(name string) {
	before := o.granted[name]
	more := false
	for _, p := range o.noteGrants(name) {
		more = more || !slices.ContainsFunc(before, func(q hold) bool { return q.element == p.element })
	}
	n := o.world.nodeOf(name)
	number, _, known := strings.Cut(n.db.Value(declaredKey(name)), " ")
	permits, err := strconv.Atoi(number)
	if !known || err != nil { // a fault has taken it
		permits = o.most(name)
	}
	if taken := len(o.granted[name]); more && (taken > permits || taken > o.most(name)) {
		o.violate(name, "%d permits of %s are in force, and there are %d: %s", taken, name, permits, n.db.Describe(takenKey(name)))
	}
}

// noteGrants notes which permits of a semaphore are in force.
func (o *oracle) noteGrants(name string) []hold {
	o.granted[name] = o.world.nodeOf(name).permits(name)
	return o.granted[name]
}

// checkPermits checks that the keys of a semaphore expire, and notes since when how many permits are
// free. Nothing is known of them while the number is missing.
func (o *oracle) checkPermits(name string) {
	n := o.world.nodeOf(name)
	for _, key := range []string{name, takenKey(name), declaredKey(name)} {
		if n.db.TTL(key) == -1 && !o.forever[name] {
			o.violate(name, "the key %s has no TTL", key)
		}
	}
	free, err := strconv.Atoi(n.db.Value(name))
	if err != nil {
		free = 0
	}
	free += len(n.db.Elements(takenKey(name))) - len(n.permits(name)) // those that have expired are free
	for number := range maxPermits {
		enough := permitCount{name, number + 1}
		if free < enough.number {
			delete(o.enoughSince, enough)
		} else if _, known := o.enoughSince[enough]; !known {
			o.enoughSince[enough] = o.world.now()
		}
	}
}

// wants returns how many permits must be free for a call to go on. Those of its process that are ahead
// of it may want more.
func (o *oracle) wants(p *op) (most int) {
	for other := range o.pending {
		if other.process == p.process && slices.Contains(other.names, p.names[0]) {
			most = max(most, other.takes)
		}
	}
	return most
}

// returned notes that a call has returned. The callers of its process that want fewer permits may have
// waited behind it.
func (o *oracle) returned(p *op) {
	delete(o.pending, p)
	for other := range o.pending {
		if other.process == p.process && other.takes < p.takes && slices.Contains(other.names, p.names[0]) {
			other.behind = o.world.now()
		}
	}
}

// checkTotals checks that no permit is lost in the end: as many are free or taken as were declared, if
// all declare the same number.
func (o *oracle) checkTotals() {
	for _, l := range o.world.cfg.names {
		name, numbers, n := l.name, o.declared[l.name], o.world.nodeOf(l.name)
		free, _ := strconv.Atoi(n.db.Value(name))
		if total := free + len(n.db.Elements(takenKey(name))); len(numbers) == 1 && total != numbers[0] {
			o.violate(name, "%s has %d permits, want %d", name, total, numbers[0])
		}
	}
}
