package sim

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"
)

// A fault is something that goes wrong.
type fault string

const (
	flakyLines   fault = "flaky lines"      // requests and replies are lost, cut off, or arrive late
	cutLines     fault = "cut lines"        // all connections of a process break
	partitions   fault = "partitions"       // nothing passes between a process and a server for a while
	slowNetwork  fault = "slow network"     // for all
	lostMessages fault = "lost messages"    // of pub/sub
	pauses       fault = "server pauses"    // the server stands still, and the time of its keys goes on
	restarts     fault = "restarts"         // with all data
	dataLoss     fault = "loss of data"     // a restart without data
	halfLoss     fault = "loss of half"     // a restart with half of the keys
	rollbacks    fault = "rollback"         // a restart with the data of a moment before
	flushes      fault = "script flush"     // the server forgets the scripts
	refusals     fault = "refusals"         // the server answers with errors
	evictions    fault = "evictions"        // a key of a lock is deleted
	forces       fault = "force-unlock"     // a process takes a lock away
	freezes      fault = "frozen processes" // a process stops, and goes on
	closes       fault = "closed clients"   // a client is closed, and its process starts another
	kills        fault = "killed processes" // a process dies, and another starts
)

var allFaults = []fault{flakyLines, cutLines, partitions, slowNetwork, lostMessages, pauses, restarts, dataLoss, halfLoss, rollbacks,
	flushes, refusals, evictions, forces, freezes, closes, kills}

// A chaos brings faults about.
type chaos struct {
	world *world
	crew  *crew
	rng   *rand.Rand
}

func newChaos(w *world, c *crew) *chaos { return &chaos{w, c, w.stream("chaos", 0)} }

// run lets the world live for a time, with faults.
func (c *chaos) run(length time.Duration) {
	w := c.world
	for end := w.now() + length; w.now() < end && !w.oracle.failed(); {
		pause := min(time.Duration(c.rng.ExpFloat64()*float64(w.cfg.gap)), end-w.now())
		for pause > 0 { // in steps, to look for callers that nothing wakes
			step := min(pause, time.Second)
			time.Sleep(step)
			w.oracle.checkRest()
			pause -= step
		}
		if len(w.cfg.faults) > 0 && w.now() < end {
			w.faults++
			c.strike(w.cfg.faults[c.rng.IntN(len(w.cfg.faults))])
		}
	}
}

// span is how long a fault lasts: mostly short beside a lease, sometimes longer.
func (c *chaos) span() time.Duration {
	leases := 1.5 * c.rng.Float64() * c.rng.Float64() * c.rng.Float64()
	if c.rng.IntN(5) == 0 {
		leases = 0.5 + 1.5*c.rng.Float64()
	}
	return time.Duration(leases * float64(c.world.cfg.options.WatchdogTimeout))
}

// strike brings a fault about.
func (c *chaos) strike(f fault) {
	w := c.world
	machines := c.crew.living()
	m := machines[c.rng.IntN(len(machines))]
	span := c.span()
	w.mu.Lock()
	defer w.mu.Unlock()
	n := w.nodes[c.rng.IntN(len(w.nodes))]
	now := w.now()
	until := now + span
	switch f {
	case flakyLines:
		w.flakyUntil, w.flakyPart, w.flakyFor = until, []float64{0.05, 0.3, 1}[c.rng.IntN(3)], m
		if c.rng.IntN(2) == 0 {
			w.flakyFor = nil
		}
		w.note("FAULT", "the lines of %s are bad until %s", nameOfMachine(w.flakyFor), stamp(until))
	case cutLines:
		w.note("FAULT", "the lines of %s are cut", m.name)
		for _, other := range slices.Clone(n.conns) {
			if other.client == m {
				other.cut()
			}
		}
	case partitions:
		w.note("FAULT", "nothing passes between %s and %s until %s", m.name, n.addr, stamp(until))
		m.cutOff[n] = until
	case slowNetwork:
		w.slowUntil, w.slowness = until, 10<<c.rng.IntN(6)
		w.note("FAULT", "the network is slower by %d until %s", w.slowness, stamp(until))
	case lostMessages:
		w.deafUntil = until
		w.note("FAULT", "messages are lost until %s", stamp(until))
	case pauses:
		n.pausedUntil = max(n.pausedUntil, until)
		w.note("FAULT", "%s stands still until %s", n.addr, stamp(until))
	case restarts, dataLoss, halfLoss, rollbacks:
		c.restart(n, f, span)
		until += 2 * time.Second
	case flushes:
		w.note("FAULT", "%s forgets its scripts", n.addr)
		n.loaded = make(map[string]string)
	case refusals:
		all := []refusal{outOfMemory, readOnly, loading, busy, noPermission, noPublishing, cannotSave, masterDown, noScriptAllowed}
		n.refuses, n.refusesTill = all[c.rng.IntN(len(all))], until
		w.note("FAULT", "%s refuses with %s until %s", n.addr, n.refuses, stamp(until))
	case evictions:
		n.tick()
		keys := slices.DeleteFunc(n.store.sorted(), func(key string) bool { return isToken(key) && c.rng.IntN(4) > 0 })
		if len(keys) > 0 {
			key := keys[c.rng.IntN(len(keys))]
			w.note("FAULT", "the key %s is deleted", key)
			n.evict(key)
		}
	case forces:
		name := w.cfg.names[c.rng.IntN(len(w.cfg.names))]
		m.work.Go(func() { forceUnlock(m, name) })
	case freezes:
		m.frozenUntil = until
		w.note("FAULT", "%s stands still until %s", m.name, stamp(until))
	case closes:
		if len(machines) > 1 {
			w.note("FAULT", "%s is closed, with %s for its holders", m.name, span)
			c.crew.replace(m, func() {
				ctx, cancel := context.WithTimeout(context.Background(), span)
				defer cancel()
				began := w.now()
				_ = m.close(ctx)
				if took := w.now() - began; took > span+5*w.cfg.options.CommandTimeout+time.Second {
					w.oracle.violate("", "closing %s took %s, with %s for its holders", m.name, took, span)
				}
				w.mu.Lock()
				if w.outageTill > began { // what it could not free ends by itself
					m.abandoned, m.abandonedAt = true, w.now()
				}
				w.mu.Unlock()
			})
		}
	case kills:
		w.note("FAULT", "%s dies", m.name)
		m.dead, m.abandoned, m.abandonedAt = true, true, now
		for _, other := range slices.Clone(n.conns) {
			if other.client == m {
				n.drop(other)
			}
		}
		c.crew.replace(m, func() {
			ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
			defer cancel()
			_ = m.close(ctx)
		})
	}
	w.unrest(until)
	if f != closes && f != forces && f != evictions && f != flushes {
		w.outageTill = w.uneasyTill
	}
}

// unrest notes until when a fault lasts. Its consequences last longer: connections have to be made again, and what was given up
// is tried again after pauses of up to PollInterval.
func (w *world) unrest(until time.Duration) {
	w.faultTill = max(w.faultTill, until)
	w.uneasyTill = max(w.uneasyTill, until+2*w.cfg.options.CommandTimeout+w.cfg.options.PollInterval+5*time.Second)
}

// restart ends a server and brings it back.
func (c *chaos) restart(n *node, f fault, span time.Duration) {
	w := c.world
	var snapshot map[string]*value
	crash := w.now()
	if f == rollbacks { // to what it was before the crash
		snapshot = n.store.clone()
		crash += time.Duration(c.rng.Int64N(int64(time.Second)))
	}
	downFor := time.Duration(c.rng.Int64N(int64(span) + 1))
	loads := time.Duration(0)
	if c.rng.IntN(2) == 0 {
		loads = span - downFor
	}
	lucky := c.rng.Uint64()
	w.at(crash, func() {
		w.note("FAULT", "%s crashes", n.addr)
		n.crash()
	})
	w.at(crash+downFor, func() {
		data := n.store.keys
		switch f {
		case dataLoss:
			data = make(map[string]*value)
		case halfLoss:
			data = n.store.clone()
			for i, key := range sortedKeys(data) {
				if lucky>>(i%64)&1 == 0 {
					delete(data, key)
				}
			}
		case rollbacks:
			data = snapshot
		}
		w.note("FAULT", "%s is back after %s: %s, %d keys, loads for %s", n.addr, f, downFor, len(data), loads)
		n.restart(data, loads)
	})
}

// heal ends all faults.
func (c *chaos) heal() {
	w := c.world
	w.mu.Lock()
	var back time.Duration
	now := w.now()
	w.slowUntil, w.flakyUntil, w.deafUntil = 0, 0, 0
	for _, n := range w.nodes {
		n.pausedUntil, n.refusesTill = min(n.pausedUntil, now), 0
	}
	for _, m := range w.machines {
		m.frozenUntil = min(m.frozenUntil, now)
		clear(m.cutOff)
	}
	for _, c := range w.lines {
		c.flush()
	}
	back = w.uneasyTill - now
	w.mu.Unlock()
	time.Sleep(back) // restarts run their course
}

func nameOfMachine(m *machine) string {
	if m == nil {
		return "all"
	}
	return m.name
}
