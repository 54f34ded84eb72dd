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

// A direction is who holds a lock and who gets it then.
type direction struct {
	name string
	hand func(t *testing.T, topo *topology, cs clients, p pairing) time.Duration
}

var directions = []direction{
	{name: "JVM to Go", hand: fromJVM},
	{name: "Go to JVM", hand: fromGo},
}

// A lock is handed over in each cell until half of the times, of so many at least, took no longer than the bound. Where the
// machine was slow, later times make up for it; but a waiter that nobody wakes takes seconds each time, and it is of no use to
// go on for longer than the limit.
const (
	bound     = 200 * time.Millisecond
	minRounds = 5
	maxRounds = 50
	limit     = 20 * time.Second // of the times together
	// settling is more than Redisson needs from its subscription to the moment when its asynchronous waiter hears messages. One that
	// comes in between is lost, and nothing that can be seen from here tells when it is over.
	settling = 50 * time.Millisecond
)

// testHandover hands every kind of lock over, both ways, and notes how long that takes.
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
					t.Errorf("handed over in %v: the median %v is more than %v; nobody was woken", took, median(took), bound)
				}
			})
		}
	}
}

// median is the one in the middle; of an even number, the longer of the two.
func median(times []time.Duration) time.Duration {
	return slices.Sorted(slices.Values(times))[len(times)/2]
}

// fromJVM is how long it takes from the JVM's release, which is asked for, until we have the lock.
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
		<-time.After(2*p.pause + rand.N(p.pause)) // pauses have their full length by then, and this one began at any time
	} else {
		await(t, "we wait", func() bool {
			waiting := cs.sum(func(s core.Stats) int { return s.Waiting })
			return waiting > 0 && (p.polled || topo.listeners(t, name) > 0)
		})
	}

	began := time.Now()
	topo.peer.ask(t, thread, "unlock", p.held.name, name)
	return (<-got).Sub(began)
}

// fromGo is how long it takes from our release until the JVM tells us that it has the lock.
func fromGo(t *testing.T, topo *topology, cs clients, p pairing) time.Duration {
	name, thread := newName("handover"), newName("waiter")
	lease, err := p.held.lock(cs, name).Acquire(t.Context(), core.AcquireOptions{WaitTime: patience})
	if err != nil {
		t.Fatal(err)
	}
	got := topo.peer.send(t, thread, "lock", p.wanted.name, name, -1)
	await(t, "the JVM waits", func() bool {
		if p.wanted.async {
			return topo.listeners(t, name) > 0
		}
		return topo.peer.ask(t, thread, "waits") != "no"
	})
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

// A cell is one result of a matrix.
type cell struct{ pairing, direction, topology string }

// A matrix has the results with one version of Redisson.
type matrix struct {
	version    version
	topologies []*topology
	ran        []*topology
	times      map[cell]time.Duration
}

// matrices has one for each version that was tested.
var matrices []*matrix

func newMatrix(v version, topologies []*topology) *matrix {
	m := &matrix{version: v, topologies: topologies, times: make(map[cell]time.Duration)}
	matrices = append(matrices, m)
	return m
}

// holes lists the cells without a time, of the topologies that were tested.
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

// String is a table: a row for each pairing, a column for each topology and direction.
func (m *matrix) String() string {
	if len(m.times) == 0 {
		return "" // these were other tests
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
