//go:build interop

package redisson

import (
	"bytes"
	"errors"
	"testing"

	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/delegation"
)

// testGuests: the JVM waits until the holder and its guest have left, in any order, and is woken
// then. If it frees the lock by force, both have lost it.
func (topo *topology) testGuests(t *testing.T) {
	topo.everyKind(t, func(t *testing.T, k kind) {
		if k.name == spin.name { // it is a plain lock here
			return
		}
		a, b := topo.service(t, "a"), topo.service(t, "b")
		for _, first := range []string{"the holder", "the guest"} {
			name, thread := newName("guests"), newName("thread")
			host, guest := topo.enter(t, k, a, b, name)
			if first == "the guest" {
				host, guest = guest, host
			}
			mustRelease(t, host)
			if k.shared { // the JVM would share it
				topo.wantLocked(t, k, inspectable(t, k, b, name), thread)
				mustRelease(t, guest)
			} else {
				got := topo.peer.send(t, thread, "lock", k.name, name, lease.Milliseconds())
				if !topo.awaitWaiter(t, name, thread, pairing{wanted: k}, got) {
					t.Fatal("the JVM could not subscribe")
				}
				mustRelease(t, guest)
				if _, err := topo.peer.result(t, got); err != nil {
					t.Fatal(err)
				}
				topo.peer.ask(t, thread, "unlock", k.name, name)
			}
			topo.wantFree(t, k, inspectable(t, k, b, name), thread)
		}

		name, thread := newName("guests"), newName("thread")
		host, guest := topo.enter(t, k, a, b, name)
		topo.peer.want(t, true, thread, "forceUnlock", k.name, name)
		for what, l := range map[string]*core.Lease{"the holder": host, "the guest": guest} {
			if err := l.Release(t.Context()); !errors.Is(err, core.ErrLockLost) {
				t.Errorf("%s after the JVM forced the lock: %v, want ErrLockLost", what, err)
			}
		}
		topo.wantFree(t, k, inspectable(t, k, b, name), thread)
	})
}

// service returns the clients of a service that delegates.
func (topo *topology) service(t *testing.T, name string) clients {
	t.Helper()
	keys, err := delegation.NewKeys(bytes.Repeat([]byte("k"), 32))
	if err != nil {
		t.Fatal(err)
	}
	return topo.clients(t, func(o *core.Options) { o.Delegation = delegation.Service{Keys: keys, Name: name} })
}

// testPermitGuests: a holder and its guest use one permit, which the JVM gets, woken, when both have
// left, in any order.
func (topo *topology) testPermitGuests(t *testing.T) {
	for _, first := range []string{"the holder", "the guest"} {
		s := topo.share(t, 1)
		a, b := topo.service(t, "a")[0].Semaphore(s.name, 0), topo.service(t, "b")[0].Semaphore(s.name, 0)
		host := mustAcquire(t, t.Context(), a)
		token, err := host.Delegate("b")
		if err != nil {
			t.Fatal(err)
		}
		guest := mustAcquire(t, core.WithDelegation(t.Context(), token), b)
		if first == "the guest" {
			host, guest = guest, host
		}
		got := s.jvmWait(t, 1)
		mustRelease(t, host)
		if id := s.jvm(t, "tryAcquire", 0, lease.Milliseconds(), 1); id != "" {
			t.Errorf("the JVM got permit %s when %s had left", id, first)
		}
		mustRelease(t, guest)
		s.jvm(t, "release", s.jvmWoken(t, got))
	}
}

// enter makes a client hold a lock, and another one its guest.
func (topo *topology) enter(t *testing.T, k kind, a, b clients, name string) (host, guest *core.Lease) {
	t.Helper()
	host = mustAcquire(t, t.Context(), k.lock(a, name))
	token, err := host.Delegate("b")
	if err != nil {
		t.Fatal(err)
	}
	return host, mustAcquire(t, core.WithDelegation(t.Context(), token), k.lock(b, name))
}
