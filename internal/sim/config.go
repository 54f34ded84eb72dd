package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/reqlock/reqlock/core"
)

// A config is what a world is like. It is drawn from the seed.
type config struct {
	length   time.Duration // until the faults end
	machines int
	workers  int // of each machine
	names    []lockName
	latency  time.Duration // of a packet, on average
	poolSize int
	options  core.Options
	pace     time.Duration // how long a lock is held, on average
	nodes    int
	rates    []float64 // of the servers' clocks
	faults   []fault
	gap      time.Duration // between two faults, on average
}

// A lockName is a lock of the world.
type lockName struct {
	name string
	kind string // "lock", "fair", "fenced", "rw", "once"
}

var lockKinds = []string{"lock", "fair", "fenced", "rw", "once"}

// maxClockDrift is how much faster or slower than its clients' a server's clock is at most. core allows for a hundredth.
const maxClockDrift = 0.008

func newConfig(rng *rand.Rand) config {
	pick := func(of ...time.Duration) time.Duration { return of[rng.IntN(len(of))] }
	c := config{
		machines: 2 + rng.IntN(3),
		workers:  1 + rng.IntN(6),
		latency:  pick(100*time.Microsecond, 2*time.Millisecond, 20*time.Millisecond, 50*time.Millisecond),
		poolSize: []int{1, 2, 3, 10}[rng.IntN(4)],
		nodes:    1,
	}
	for i := range 1 + rng.IntN(4) {
		kind := lockKinds[rng.IntN(len(lockKinds))]
		c.names = append(c.names, lockName{fmt.Sprintf("lock-%c", 'a'+i), kind})
	}
	c.options = core.Options{
		WatchdogTimeout: pick(30*time.Second, 10*time.Second, 3*time.Second, 3*time.Second),
		PollInterval:    pick(5*time.Second, 5*time.Second, time.Second),
		CommandTimeout:  pick(3*time.Second, 3*time.Second, time.Second),
		FairWaitTimeout: pick(300*time.Second, 60*time.Second, 20*time.Second),
	}
	c.pace = pick(20*time.Millisecond, time.Second, 5*time.Second, c.options.WatchdogTimeout)
	c.length = min(max(150*c.pace, 15*time.Second), 30*time.Minute)
	for range c.nodes {
		c.rates = append(c.rates, 1+(rng.Float64()*2-1)*maxClockDrift)
	}

	// Some worlds have one kind of fault, some all, and some none.
	all := slices.Clone(allFaults)
	rng.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	c.faults = all[:[]int{0, 1, 1, 2, 2, 3, 5, len(all)}[rng.IntN(8)]]
	if rng.IntN(3) == 0 && !slices.Contains(c.faults, flakyLines) { // where most defects show
		c.faults = append(slices.Clone(c.faults), flakyLines)
	}
	slices.Sort(c.faults)
	c.gap = min(max(time.Duration(float64(c.pace)*(1+9*rng.Float64())), 3*time.Second), c.length/8)
	return c
}

func (c config) String() string {
	var names, faults []string
	for _, n := range c.names {
		names = append(names, n.name+" ("+n.kind+")")
	}
	for _, f := range c.faults {
		faults = append(faults, string(f))
	}
	return fmt.Sprintf("%s of %d processes with %d callers each on %s; watchdog %s, poll %s, command time-out %s, fair wait %s; locks held for %s, latency %s, pool of %d, server clock ×%.4f; faults every %s: %s",
		c.length, c.machines, c.workers, strings.Join(names, ", "), c.options.WatchdogTimeout, c.options.PollInterval, c.options.CommandTimeout, c.options.FairWaitTimeout,
		c.pace, c.latency, c.poolSize, c.rates[0], c.gap.Round(time.Millisecond), strings.Join(faults, ", "))
}

// locker is the lock of a client; of a read/write lock the write side.
func (n lockName) locker(c *core.Client) core.Locker {
	switch n.kind {
	case "fair":
		return c.FairLock(n.name)
	case "fenced":
		return c.FencedLock(n.name)
	case "rw":
		return c.ReadWriteLock(n.name).Write()
	}
	return c.Lock(n.name) // also of a Once: its lock without the record
}
