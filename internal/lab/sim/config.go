package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/reqlock/reqlock/core"
)

// A config describes a world. It is drawn from the seed.
type config struct {
	// length is how long there are faults.
	length    time.Duration
	processes int
	// callers is how many each process has.
	callers int
	names   []lockName
	// guests says that callers delegate their leases to each other.
	guests bool
	// latency is how long a packet takes, on average.
	latency  time.Duration
	poolSize int
	options  core.Options
	// meanHold is how long a caller holds a lock, on average.
	meanHold time.Duration
	nodes    int
	// clockRates has the rate of each server's clock.
	clockRates []float64
	faults     []fault
	// faultInterval is the time between two faults, on average.
	faultInterval time.Duration
}

// A lockName is one lock of the world.
type lockName struct {
	name string
	kind string // one of lockKinds
	// permits is how many a semaphore has, as most processes declare it.
	permits int
}

// lockKinds has semaphores last: they are drawn apart, so that the seeds of older worlds keep them.
var lockKinds = []string{"lock", "fair", "fenced", "rw", "once", "semaphore"}

// maxPermits bounds the permits of a semaphore.
const maxPermits = 3

// maxClockDrift bounds how much faster or slower a server's clock is than that of its clients. core
// allows for 1%.
const maxClockDrift = 0.008

// newConfig draws a config from rng, and its semaphores from permits.
func newConfig(rng, permits *rand.Rand) config {
	pick := func(of ...time.Duration) time.Duration { return of[rng.IntN(len(of))] }
	c := config{
		processes: 2 + rng.IntN(3),
		callers:   1 + rng.IntN(6),
		latency:   pick(100*time.Microsecond, 2*time.Millisecond, 20*time.Millisecond, 50*time.Millisecond),
		poolSize:  []int{1, 2, 3, 10}[rng.IntN(4)],
		nodes:     1,
	}
	for i := range 1 + rng.IntN(4) {
		kind := lockKinds[rng.IntN(len(lockKinds)-1)]
		c.names = append(c.names, lockName{name: fmt.Sprintf("lock-%c", 'a'+i), kind: kind})
	}
	if permits.IntN(3) == 0 {
		for i := range c.names {
			if permits.IntN(2) == 0 {
				c.names[i].kind, c.names[i].permits = "semaphore", 1+permits.IntN(maxPermits)
			}
		}
	}
	c.options = core.Options{
		WatchdogTimeout: pick(30*time.Second, 10*time.Second, 3*time.Second, 3*time.Second),
		PollInterval:    pick(5*time.Second, 5*time.Second, time.Second),
		CommandTimeout:  pick(3*time.Second, 3*time.Second, time.Second),
		FairWaitTimeout: pick(300*time.Second, 60*time.Second, 20*time.Second),
	}
	// The first command of a process needs a dozen packets, one after another if the pool has one
	// connection. A renewal waits for those of other callers before it.
	c.latency = min(c.latency, c.options.CommandTimeout/50, c.options.WatchdogTimeout/150)
	c.meanHold = pick(20*time.Millisecond, time.Second, 5*time.Second, c.options.WatchdogTimeout)
	c.length = min(max(150*c.meanHold, 15*time.Second), 30*time.Minute)
	for range c.nodes {
		c.clockRates = append(c.clockRates, 1+(rng.Float64()*2-1)*maxClockDrift)
	}

	// Some worlds have one kind of fault, some have all, and some have none.
	all := slices.Clone(allFaults)
	rng.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	c.faults = all[:[]int{0, 1, 1, 2, 2, 3, 5, len(all)}[rng.IntN(8)]]
	if rng.IntN(3) == 0 && !slices.Contains(c.faults, flakyNetwork) { // it reveals most defects
		c.faults = append(slices.Clone(c.faults), flakyNetwork)
	}
	slices.Sort(c.faults)
	c.faultInterval = min(max(time.Duration(float64(c.meanHold)*(1+9*rng.Float64())), 3*time.Second), c.length/8)
	return c
}

func (c config) String() string {
	var names, faults []string
	for _, n := range c.names {
		name := n.name + " (" + n.kind + ")"
		if n.permits > 0 {
			name = fmt.Sprintf("%s (semaphore of %d)", n.name, n.permits)
		}
		names = append(names, name)
	}
	for _, f := range c.faults {
		faults = append(faults, string(f))
	}
	if faults == nil {
		faults = []string{"none"}
	}
	if c.guests {
		names = append(names, "with guests")
	}
	o := c.options
	return fmt.Sprintf("%s with %d processes of %d callers each; locks: %s; WatchdogTimeout %s, PollInterval %s, "+
		"CommandTimeout %s, FairWaitTimeout %s; mean hold %s, latency %s, pool size %d, server clock ×%.4f; "+
		"a fault every %s: %s",
		c.length, c.processes, c.callers, strings.Join(names, ", "), o.WatchdogTimeout, o.PollInterval,
		o.CommandTimeout, o.FairWaitTimeout, c.meanHold, c.latency, c.poolSize, c.clockRates[0],
		c.faultInterval.Round(time.Millisecond), strings.Join(faults, ", "))
}

// locker returns the lock of a process. For a read/write lock it is the write side, and for a Once
// the plain lock under its records.
func (n lockName) locker(proc *process) core.Locker {
	c := proc.locks
	switch n.kind {
	case "semaphore":
		return c.Semaphore(n.name, proc.permits(n))
	case "fair":
		return c.FairLock(n.name)
	case "fenced":
		return c.FencedLock(n.name)
	case "rw":
		return c.ReadWriteLock(n.name).Write()
	}
	return c.Lock(n.name)
}
