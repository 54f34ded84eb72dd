//go:build interop

package redisson

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/reqlock/reqlock/core"
)

// A direction is who holds a lock and who gets it then.
type direction struct {
	name string
	hand func(t *testing.T, topo *topology, locks *core.Client, p pairing) time.Duration
}

var directions = []direction{
	{"JVM to Go", fromJVM},
	{"Go to JVM", fromGo},
}

const (
	rounds = 5
	// bound is what the median of a cell may be. It is far above what is measured, and far below what a waiter sleeps that
	// was not woken.
	bound = time.Second
)

// testHandover hands every kind of lock over, both ways.
func (topo *topology) testHandover(t *testing.T) {
	for _, p := range pairings {
		locks := topo.locks(t, func(o *core.Options) {
			if p.polled {
				o.PollInterval = 20 * time.Millisecond
			}
		})
		for _, d := range directions {
			t.Run(p.name+", "+d.name, func(t *testing.T) {
				took := make([]time.Duration, rounds)
				for i := range took {
					took[i] = d.hand(t, topo, locks, p)
				}
				slices.Sort(took)
				median := took[rounds/2]
				if median > bound {
					t.Errorf("handed over in %v; nobody was woken", took)
				}
				results.set(p.name, d.name, topo.name, median)
			})
		}
	}
}

// fromJVM is how long it takes from the JVM's release, which is asked for, until we have the lock.
func fromJVM(t *testing.T, topo *topology, locks *core.Client, p pairing) time.Duration {
	name, thread := newName("handover"), newName("holder")
	topo.peer.ask(t, thread, "lock", p.held.name, name, -1)

	got := make(chan time.Time, 1)
	go func() {
		lease, err := p.wanted.lock(locks, name).Acquire(context.Background(), core.AcquireOptions{WaitTime: patience})
		at := time.Now()
		if err == nil {
			err = lease.Release(context.Background())
		}
		if err != nil {
			t.Error(err)
		}
		got <- at
	}()
	await(t, "we wait", func() bool {
		return locks.Stats().Waiting > 0 && (p.polled || topo.listeners(t, name) > 0)
	})

	began := time.Now()
	topo.peer.ask(t, thread, "unlock", p.held.name, name)
	return (<-got).Sub(began)
}

// fromGo is how long it takes from our release until the JVM tells us that it has the lock.
func fromGo(t *testing.T, topo *topology, locks *core.Client, p pairing) time.Duration {
	name, thread := newName("handover"), newName("waiter")
	lease, err := p.held.lock(locks, name).Acquire(t.Context(), core.AcquireOptions{})
	if err != nil {
		t.Fatal(err)
	}
	got := topo.peer.send(t, thread, "lock", p.wanted.name, name, -1)
	await(t, "the JVM waits", func() bool {
		if p.wanted.async {
			return topo.listeners(t, name) > 0
		}
		return topo.peer.ask(t, thread, "parked") == "true"
	})

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

// A cell is one result of the matrix.
type cell struct{ pairing, direction, topology string }

// A matrix are the results so far.
type matrix struct {
	mu    sync.Mutex
	times map[cell]time.Duration
}

var results = matrix{times: make(map[cell]time.Duration)}

func (m *matrix) set(pairing, direction, topology string, took time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.times[cell{pairing, direction, topology}] = took
}

func (m *matrix) holes() (holes []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, p := range pairings {
		for _, topo := range topologies {
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
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.times) == 0 {
		return "" // these were other tests
	}
	var text strings.Builder
	fmt.Fprintf(&text, "\nRelease on one side, acquired on the other; median of %d, in ms\n\n", rounds)
	fmt.Fprintf(&text, "| %-20s |", "kind")
	for _, topo := range topologies {
		for _, d := range directions {
			fmt.Fprintf(&text, " %-24s |", topo.name+", "+d.name)
		}
	}
	fmt.Fprintf(&text, "\n|%s|%s\n", strings.Repeat("-", 22), strings.Repeat(strings.Repeat("-", 25)+":|", len(topologies)*len(directions)))
	for _, p := range pairings {
		fmt.Fprintf(&text, "| %-20s |", p.name)
		for _, topo := range topologies {
			for _, d := range directions {
				value := "-"
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
