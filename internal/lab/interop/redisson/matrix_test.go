//go:build interop

package redisson

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/reqlock/reqlock/core"
)

// A direction says which side holds a lock and which acquires it next.
type direction struct {
	name string
	hand func(t *testing.T, topo *topology, cs clients, p pairing) time.Duration
}

var directions = []direction{
	{name: "JVM to Go", hand: fromJVM},
	{name: "Go to JVM", hand: fromGo},
}

// Each cell repeats the hand-over until half of the times, and at least minRounds, are within the
// bound. So a slow machine can make up for slow rounds. A waiter that is not woken takes seconds
// each time, so a cell ends after limit.
const (
	bound     = 200 * time.Millisecond
	minRounds = 5
	maxRounds = 50
	limit     = 20 * time.Second // of all times together
	// settling is longer than Redisson needs from its subscription until its asynchronous waiter
	// receives messages. A message before that is lost, and there is no way to observe when it is
	// ready.
	settling = 50 * time.Millisecond
)

// testHandover hands over every kind of lock in both directions and records how long that takes.
func (topo *topology) testHandover(t *testing.T, m *matrix) {
	m.ran = append(m.ran, topo)
	for _, p := range pairings {
		if topo.without(p.wanted) != "" {
			continue
		}
		for _, d := range directions {
			t.Run(p.name+", "+d.name, func(t *testing.T) {
				cs := topo.clients(t, func(o *core.Options) {
					if p.polled {
						o.PollInterval = 20 * time.Millisecond
					}
				})
				var took []time.Duration
				var spent time.Duration
				for len(took) < minRounds || median(took) > bound && len(took) < maxRounds {
					last := d.hand(t, topo, cs, p)
					took = append(took, last)
					if spent += last; spent > limit && len(took) >= minRounds {
						break
					}
				}
				m.times[cell{p.name, d.name, topo.name}] = median(took)
				if median(took) > bound {
					t.Errorf("handed over in %v: the median %v exceeds %v: waiters were not woken", took, median(took), bound)
				}
			})
		}
	}
}

// median returns the middle value, or the larger of the two in the middle.
func median(times []time.Duration) time.Duration {
	return slices.Sorted(slices.Values(times))[len(times)/2]
}

// fromJVM returns the time from the request to release on the JVM until we have the lock.
func fromJVM(t *testing.T, topo *topology, cs clients, p pairing) time.Duration {
	name, thread := newName("handover"), newName("holder")
	topo.peer.ask(t, thread, "lock", p.held.name, name, -1)

	got := make(chan time.Time, 1)
	go func() {
		lease, err := p.wanted.lock(cs, name).Acquire(context.Background(), core.AcquireOptions{WaitTime: patience})
		at := time.Now()
		if err == nil {
			err = lease.Release(context.Background())
		}
		if err != nil {
			t.Error(err)
		}
		got <- at
	}()
	if p.pause > 0 {
		// Until pauses have full length, plus a random part of one.
		<-time.After(2*p.pause + rand.N(p.pause))
	} else {
		await(t, "us to wait", func() bool {
			waiting := cs.sum(func(s core.Stats) int { return s.Waiting })
			return waiting > 0 && (p.polled || topo.listeners(t, name) > 0)
		})
	}

	began := time.Now()
	topo.peer.ask(t, thread, "unlock", p.held.name, name)
	return (<-got).Sub(began)
}

// fromGo returns the time from our release until the JVM reports that it has the lock. It tries
// again if Redisson cannot subscribe: it may lose a permit for a fiftieth of all channels for good
// (its issues 6047 and 7264).
func fromGo(t *testing.T, topo *topology, cs clients, p pairing) time.Duration {
	const tries = 5
	for range tries {
		name, thread := newName("handover"), newName("waiter")
		lease, err := p.held.lock(cs, name).Acquire(t.Context(), core.AcquireOptions{WaitTime: patience})
		if err != nil {
			t.Fatal(err)
		}
		got := topo.peer.send(t, thread, "lock", p.wanted.name, name, -1)
		if topo.awaitWaiter(t, name, thread, p, got) {
			return topo.release(t, name, thread, p, lease, got)
		}
		t.Log("the JVM could not subscribe:", got.err)
		if err := lease.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	t.Fatalf("the JVM could not subscribe %d times in a row", tries)
	return 0
}

// awaitWaiter waits until the JVM waits for a lock that we hold. It returns false if Redisson could
// not subscribe to the lock's channel.
func (topo *topology) awaitWaiter(t *testing.T, name, thread string, p pairing, got *reply) (waits bool) {
	defer func() {
		if t.Failed() {
			t.Log("the JVM's waiter:", topo.peer.ask(t, thread, "stack"))
		}
	}()
	await(t, "the JVM to wait", func() bool {
		select {
		case <-got.done:
			if got.err == nil || !strings.Contains(got.err.Error(), "RedisTimeoutException") {
				t.Fatalf("the JVM did not wait for %s, which we hold: %q, %v", name, got.value, got.err)
			}
			return true
		default:
		}
		waits = p.wanted.async && topo.listeners(t, name) > 0 ||
			!p.wanted.async && topo.peer.ask(t, thread, "waits") != "no"
		return waits
	})
	return waits
}

// release returns the time from our release until the JVM, which waits, reports that it has the
// lock. The JVM releases it again.
func (topo *topology) release(t *testing.T, name, thread string, p pairing, lease *core.Lease, got *reply) time.Duration {
	if p.wanted.async {
		<-time.After(settling)
	}

	began := time.Now()
	if err := lease.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := topo.peer.result(t, got); err != nil {
		t.Fatal(err)
	}
	topo.peer.ask(t, thread, "unlock", p.wanted.name, name)
	return got.at.Sub(began)
}

// A cell is a result of a matrix.
type cell struct{ pairing, direction, topology string }

// A matrix holds the results with one version of Redisson.
type matrix struct {
	version    version
	topologies []*topology
	ran        []*topology
	times      map[cell]time.Duration
}

// matrices has one matrix per tested version.
var matrices []*matrix

func newMatrix(v version, topologies []*topology) *matrix {
	m := &matrix{version: v, topologies: topologies, times: make(map[cell]time.Duration)}
	matrices = append(matrices, m)
	return m
}

// holes returns the cells without a time in the tested topologies.
func (m *matrix) holes() (holes []string) {
	for _, p := range pairings {
		for _, topo := range m.ran {
			if topo.without(p.wanted) != "" {
				continue
			}
			for _, d := range directions {
				if _, ok := m.times[cell{p.name, d.name, topo.name}]; !ok {
					holes = append(holes, fmt.Sprintf("%s, %s, %s", p.name, d.name, topo.name))
				}
			}
		}
	}
	return holes
}

// String returns a table with a row for each pairing and a column for each topology and direction.
func (m *matrix) String() string {
	if len(m.times) == 0 {
		return "" // only other tests ran
	}
	var text strings.Builder
	fmt.Fprintf(&text, "\nRelease on one side, acquired on the other; median of %d or more, in ms\n\n", minRounds)
	fmt.Fprintf(&text, "| %-20s |", "Redisson "+m.version.String())
	for _, topo := range m.topologies {
		for _, d := range directions {
			fmt.Fprintf(&text, " %-24s |", topo.name+", "+d.name)
		}
	}
	fmt.Fprintf(&text, "\n|%s|%s\n", strings.Repeat("-", 22), strings.Repeat(strings.Repeat("-", 25)+":|", len(m.topologies)*len(directions)))
	for _, p := range pairings {
		fmt.Fprintf(&text, "| %-20s |", p.name)
		for _, topo := range m.topologies {
			for _, d := range directions {
				value := cmp.Or(topo.without(p.wanted), "-")
				if took, ok := m.times[cell{p.name, d.name, topo.name}]; ok {
					value = fmt.Sprintf("%.1f", float64(took.Microseconds())/1000)
				}
				fmt.Fprintf(&text, " %24s |", value)
			}
		}
		text.WriteString("\n")
	}
	text.WriteString("\n")
	return text.String()
}
