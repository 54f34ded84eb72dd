//go:build interop

package redisson

import (
	"testing"
	"time"

	"github.com/reqlock/reqlock/core"
)

// testNameMapper hands over locks whose names both sides map.
func (topo *topology) testNameMapper(t *testing.T) {
	const prefix = "mapped:"
	mapped := *topo
	mapped.peer = topo.newPeer(t, func(o *peerOptions) { o.prefix = prefix })
	cs := mapped.clients(t, func(o *core.Options) {
		o.NameMapper = func(name string) string { return prefix + name }
	})
	for _, p := range pairings {
		switch {
		case topo.without(p.wanted) != "" || p.polled:
			continue
		case p.wanted.name == fair.name && topo.version.before(fairNameMapper):
			t.Run(p.name, func(t *testing.T) { mapped.testTwoQueues(t, cs, prefix) })
			continue
		}
		t.Run(p.name, func(t *testing.T) {
			for _, d := range directions {
				if took := d.hand(t, &mapped, cs, p); took > limit {
					t.Errorf("%s in %v: no message woke the waiter", d.name, took)
				}
			}
		})
	}
}

// testTwoQueues: each side has its own queue, because Redisson does not map the queue's name. The
// lock still excludes.
func (topo *topology) testTwoQueues(t *testing.T, cs clients, prefix string) {
	name, thread := newName("queues"), newName("waiter")
	holder, err := fair.lock(cs, name).Acquire(t.Context(), core.AcquireOptions{LeaseTime: 10 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	topo.peer.want(t, true, thread, "isLocked", fair.name, name)
	theirs := topo.peer.send(t, thread, "lock", fair.name, name, lease.Milliseconds())
	topo.awaitQueue(t, name, 1)
	list, _ := queue(prefix + name)
	if n := topo.rdbs[0].LLen(t.Context(), list).Val(); n != 0 {
		t.Errorf("%d wait in our queue, want 0", n)
	}
	if _, err := topo.peer.result(t, theirs); err != nil {
		t.Fatal(err)
	}
	if holder.Err() == nil {
		t.Error("the JVM acquired the lock beside us")
	}
	topo.peer.ask(t, thread, "unlock", fair.name, name)
}
