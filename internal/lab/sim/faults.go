package sim

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/reqlock/reqlock/internal/lab/memredis"
)

// A fault is a kind of failure.
type fault string

const (
	flakyNetwork   fault = "flaky network"         // Requests and replies are lost, cut off or delayed.
	cutConnections fault = "cut connections"       // All connections of a process break.
	partitions     fault = "partitions"            // No packet passes between a process and the server.
	slowNetwork    fault = "slow network"          // Packets of all processes are slow.
	lostMessages   fault = "lost messages"         // Messages of pub/sub are lost.
	pauses         fault = "server pauses"         // The server stops, but its clock goes on.
	restarts       fault = "restarts"              // The server restarts with all data.
	dataLoss       fault = "loss of data"          // The server restarts without data.
	halfLoss       fault = "loss of half the keys" // The server restarts with half of its data.
	rollbacks      fault = "rollbacks"             // The server restarts with older data.
	flushes        fault = "script flushes"        // The server forgets the scripts.
	refusals       fault = "refusals"              // The server answers with errors.
	evictions      fault = "evictions"             // A key of a lock is deleted.
	forces         fault = "force-unlocks"         // A process calls ForceUnlock.
	freezes        fault = "frozen processes"      // A process stops, and resumes.
	closes         fault = "closed clients"        // A client is closed, and a new process starts.
	kills          fault = "killed processes"      // A process dies, and a new one starts.
)

var allFaults = []fault{
	flakyNetwork, cutConnections, partitions, slowNetwork, lostMessages, pauses, restarts, dataLoss,
	halfLoss, rollbacks, flushes, refusals, evictions, forces, freezes, closes, kills,
}

// An injector causes faults.
type injector struct {
	world *world
	fleet *fleet
	rng   *rand.Rand
}

func newInjector(w *world, f *fleet) *injector { return &injector{w, f, w.stream("chaos", 0)} }

// run causes faults for the given time.
func (i *injector) run(length time.Duration) {
	w := i.world
	for end := w.now() + length; w.now() < end && !w.oracle.failed(); {
		pause := min(time.Duration(i.rng.ExpFloat64()*float64(w.cfg.faultInterval)), end-w.now())
		for pause > 0 { // in steps, because some invariants are checked only now and then
			step := min(pause, time.Second)
			time.Sleep(step)
			w.oracle.checkProgress()
			pause -= step
		}
		if len(w.cfg.faults) > 0 && w.now() < end {
			w.faults++
			i.inject(w.cfg.faults[i.rng.IntN(len(w.cfg.faults))])
		}
	}
}

// duration draws how long a fault lasts: mostly less than a lease, sometimes longer.
func (i *injector) duration() time.Duration {
	leases := 1.5 * i.rng.Float64() * i.rng.Float64() * i.rng.Float64()
	if i.rng.IntN(5) == 0 {
		leases = 0.5 + 1.5*i.rng.Float64()
	}
	return time.Duration(leases * float64(i.world.cfg.options.WatchdogTimeout))
}

// inject causes a fault.
func (i *injector) inject(f fault) {
	w := i.world
	running := i.fleet.running()
	proc := running[i.rng.IntN(len(running))]
	length := i.duration()
	w.mu.Lock()
	defer w.mu.Unlock()
	n := w.nodes[i.rng.IntN(len(w.nodes))]
	now := w.now()
	until := now + length
	switch f {
	case flakyNetwork:
		w.flakyUntil, w.flakyRate, w.flakyProcess = until, []float64{0.05, 0.3, 1}[i.rng.IntN(3)], proc
		name := proc.name
		if i.rng.IntN(2) == 0 {
			w.flakyProcess, name = nil, "all processes"
		}
		w.note("FAULT", "the network of %s is flaky until %s", name, stamp(until))
	case cutConnections:
		w.note("FAULT", "all connections of %s are cut", proc.name)
		for _, c := range slices.Clone(n.conns) {
			if c.client == proc {
				c.cut()
			}
		}
	case partitions:
		// It must not end earlier than one before: the packets that are held back know its end.
		proc.cutOff[n] = max(proc.cutOff[n], until)
		w.note("FAULT", "no packet passes between %s and %s until %s", proc.name, n.addr, stamp(proc.cutOff[n]))
	case slowNetwork:
		w.slowUntil, w.slowFactor = until, 10<<i.rng.IntN(6)
		w.note("FAULT", "the network is %d times slower until %s", w.slowFactor, stamp(until))
	case lostMessages:
		w.dropMessagesUntil = until
		w.note("FAULT", "messages are lost until %s", stamp(until))
	case pauses:
		n.pausedUntil = max(n.pausedUntil, until)
		w.note("FAULT", "%s is paused until %s", n.addr, stamp(n.pausedUntil))
	case restarts, dataLoss, halfLoss, rollbacks:
		i.restart(n, f, length)
		until += 2 * time.Second
	case flushes:
		w.note("FAULT", "%s forgets its scripts", n.addr)
		n.loaded = make(map[string]string)
	case refusals:
		all := []refusal{
			outOfMemory, readOnly, loading, busy, noPermission, noPublishing, cannotSave, masterDown, noScriptAllowed,
		}
		n.refuses, n.refusesUntil = all[i.rng.IntN(len(all))], until
		w.note("FAULT", "%s answers %s until %s", n.addr, n.refuses, stamp(until))
	case evictions:
		n.tick()
		keys := slices.DeleteFunc(n.db.Keys(), func(key string) bool { return isToken(key) && i.rng.IntN(4) > 0 })
		if len(keys) > 0 {
			key := keys[i.rng.IntN(len(keys))]
			w.note("FAULT", "the key %s is deleted", key)
			n.evict(key)
		}
	case forces:
		name := w.cfg.names[i.rng.IntN(len(w.cfg.names))]
		proc.work.Go(func() { forceUnlock(proc, name) })
	case freezes:
		proc.frozenUntil = max(proc.frozenUntil, until)
		w.note("FAULT", "%s is frozen until %s", proc.name, stamp(proc.frozenUntil))
	case closes:
		if len(running) > 1 {
			w.note("FAULT", "%s is closed, and its holders have %s to finish", proc.name, length)
			i.fleet.replace(proc, func() { i.close(proc, length) })
		}
	case kills:
		w.note("FAULT", "%s dies", proc.name)
		proc.dead = true
		proc.abandon()
		for _, c := range slices.Clone(n.conns) {
			if c.client == proc {
				n.drop(c)
			}
		}
		i.fleet.replace(proc, func() {
			ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
			defer cancel()
			_ = proc.close(ctx)
		})
	}
	w.disturb(until)
	if f != closes && f != forces && f != evictions && f != flushes {
		w.outageUntil = w.disturbedUntil
	}
}

// disturb notes that a fault lasts until the given time. Its effects last longer: connections are
// opened again, and commands that were given up are retried after up to PollInterval.
func (w *world) disturb(until time.Duration) {
	effects := 2*w.cfg.options.CommandTimeout + w.cfg.options.PollInterval + 5*time.Second
	w.faultUntil = max(w.faultUntil, until)
	w.disturbedUntil = max(w.disturbedUntil, until+effects)
}

// close closes the client of a process, whose holders get some time to finish.
func (i *injector) close(proc *process, grace time.Duration) {
	w := i.world
	ctx, cancel := context.WithTimeout(context.Background(), grace)
	defer cancel()
	began := w.now()
	_ = proc.close(ctx)
	if took := w.now() - began; took > grace+5*w.cfg.options.CommandTimeout+time.Second {
		w.oracle.violate("", "closing %s took %s, although its holders had %s to finish", proc.name, took, grace)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.outageUntil > began {
		proc.abandon()
	}
}

// restart crashes a server and starts it again.
func (i *injector) restart(n *node, f fault, length time.Duration) {
	w := i.world
	var snapshot *memredis.DB
	crash, taken := w.now(), w.now()
	if f == rollbacks { // loses what it writes until the crash
		snapshot = n.db.Clone()
		crash += time.Duration(i.rng.Int64N(int64(time.Second)))
	}
	downFor := time.Duration(i.rng.Int64N(int64(length) + 1))
	loads := time.Duration(0)
	if i.rng.IntN(2) == 0 {
		loads = length - downFor
	}
	kept := i.rng.Uint64() // a bit for each key
	w.at(crash, func() {
		w.note("FAULT", "%s crashes", n.addr)
		n.crash()
	})
	w.at(crash+downFor, func() {
		data := n.db.Clone()
		switch f {
		case dataLoss, halfLoss:
			for j, key := range data.Keys() {
				if f == dataLoss || kept>>(j%64)&1 == 0 {
					data.Delete(key)
				}
			}
		case rollbacks:
			if n.restarted <= taken { // else it has lost what it wrote after the snapshot already
				data = snapshot
			}
		}
		n.restarted = w.now()
		w.note("FAULT", "%s restarts after %s (%s) with %d keys, and loads them for %s", n.addr, downFor, f, len(data.Keys()), loads)
		n.restart(data, loads)
	})
}

// endFaults ends all faults, and waits until their effects are over.
func (i *injector) endFaults() {
	w := i.world
	w.mu.Lock()
	now := w.now()
	w.slowUntil, w.flakyUntil, w.dropMessagesUntil = 0, 0, 0
	for _, n := range w.nodes {
		n.pausedUntil, n.refusesUntil = min(n.pausedUntil, now), 0
	}
	for _, proc := range w.processes {
		proc.frozenUntil = min(proc.frozenUntil, now)
		clear(proc.cutOff)
	}
	for _, c := range w.conns {
		c.flush()
	}
	wait := w.disturbedUntil - now
	w.mu.Unlock()
	time.Sleep(wait) // restarts finish meanwhile
}
