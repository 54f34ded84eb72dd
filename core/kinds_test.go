package core

import (
	"maps"
	"slices"
	"testing"

	"github.com/reqlock/reqlock/core/internal/kinds"
)

// A lockKind is a kind of lock.
type lockKind struct {
	lock   func(c *Client, name string) *Lock
	rival  func(c *Client, name string) *Lock // has to wait while lock is held, and while rival is
	shared bool                               // lock may have several holders
}

// lockKinds is every kind of lock. A test of what all kinds share runs for each of them.
var lockKinds = map[string]lockKind{
	"lock":         {lock: (*Client).Lock, rival: (*Client).Lock},
	"fenced":       {lock: (*Client).FencedLock, rival: (*Client).FencedLock},
	"fair":         {lock: (*Client).FairLock, rival: (*Client).FairLock},
	"write":        {lock: writeSide, rival: writeSide},
	"fenced-fair":  {lock: fencedFairLock, rival: fencedFairLock},
	"fenced-write": {lock: fencedWriteSide, rival: fencedWriteSide},
	"read":         {lock: readSide, rival: writeSide, shared: true},
}

// excludingKinds are lockKinds and a semaphore, which keeps others out like a lock. A test that
// neither enters a lock again nor looks at its hash runs for each of them.
var excludingKinds = func() map[string]lockKind {
	all := maps.Clone(lockKinds)
	all["semaphore"] = lockKind{lock: onePermit, rival: onePermit}
	return all
}()

// lockKinds must not miss a kind.
func TestLockKinds(t *testing.T) {
	t.Parallel()
	c := newRedis(t).newLocks(t)
	var tested []*kinds.Kind
	for _, kind := range lockKinds {
		tested = append(tested, kind.lock(c, "a").kind)
	}
	for _, k := range kinds.All() {
		if k.Record == nil && !k.Counted && !slices.Contains(tested, k) { // a Once is no Lock
			t.Errorf("no test runs for the kind %q, fenced: %v: add it to lockKinds", k.Name, k.Fenced())
		}
	}
}

// onePermit returns a semaphore with one permit.
func onePermit(c *Client, name string) *Lock { return &c.Semaphore(name, 1).lock }

func readSide(c *Client, name string) *Lock  { return c.ReadWriteLock(name).Read() }
func writeSide(c *Client, name string) *Lock { return c.ReadWriteLock(name).Write() }

func fencedFairLock(c *Client, name string) *Lock  { return c.FairLock(name).Fenced() }
func fencedWriteSide(c *Client, name string) *Lock { return writeSide(c, name).Fenced() }

// eachLockKind runs a test for every kind of lock.
func eachLockKind(t *testing.T, test func(t *testing.T, kind lockKind)) { eachOf(t, lockKinds, test) }

// eachOf runs a test for every kind of some.
func eachOf(t *testing.T, some map[string]lockKind, test func(t *testing.T, kind lockKind)) {
	for name, kind := range some {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, kind)
		})
	}
}

// eachExclusiveKind runs a test for every kind of lock that has one holder.
func eachExclusiveKind(t *testing.T, test func(t *testing.T, lock func(c *Client, name string) *Lock)) {
	for name, kind := range lockKinds {
		if kind.shared {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, kind.lock)
		})
	}
}
