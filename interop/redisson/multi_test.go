//go:build interop

package redisson

import (
	"testing"
)

// testMulti looks at the members of what either side holds as a multi lock.
func (topo *topology) testMulti(t *testing.T) {
	name, holder, other := newName("several"), newName("holder"), newName("other")
	locks := topo.locks(t)
	wantMembers := func(want bool) {
		t.Helper()
		for _, member := range membersOf(name) {
			topo.peer.want(t, want, other, "isLocked", plain.name, member)
			if locked, err := locks.Lock(member).IsLocked(t.Context()); locked != want || err != nil {
				t.Errorf("IsLocked of %s: %v, %v; want %v", member, locked, err, want)
			}
		}
	}

	topo.peer.ask(t, holder, "lock", multi.name, name, lease.Milliseconds())
	wantMembers(true)
	topo.peer.ask(t, holder, "unlock", multi.name, name)
	wantMembers(false)

	l := mustAcquire(t, t.Context(), multi.lock(locks, name))
	wantMembers(true)
	topo.peer.want(t, false, other, "tryLock", multi.name, name, 0, -1)
	mustRelease(t, l)
	wantMembers(false)
}
