package core

import "testing"

// A lockKind is a kind of lock.
type lockKind struct {
	lock  func(c *Client, name string) *Lock
	rival func(c *Client, name string) *Lock // has to wait while lock is held, and while rival is
}

// lockKinds is every kind of lock.
var lockKinds = map[string]lockKind{
	"lock":   {(*Client).Lock, (*Client).Lock},
	"fenced": {(*Client).FencedLock, (*Client).FencedLock},
	"fair":   {(*Client).FairLock, (*Client).FairLock},
	"write":  {writeSide, writeSide},
	"read":   {readSide, writeSide},
}

func readSide(c *Client, name string) *Lock  { return c.ReadWriteLock(name).Read() }
func writeSide(c *Client, name string) *Lock { return c.ReadWriteLock(name).Write() }

// eachLockKind runs a test for every kind of lock.
func eachLockKind(t *testing.T, test func(t *testing.T, kind lockKind)) {
	for name, kind := range lockKinds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, kind)
		})
	}
}

// family is every kind of lock that is held alone. What holds for one holds for all.
var family = map[string]func(c *Client, name string) *Lock{
	"lock":   (*Client).Lock,
	"fenced": (*Client).FencedLock,
	"fair":   (*Client).FairLock,
	"write":  func(c *Client, name string) *Lock { return c.ReadWriteLock(name).Write() },
}

// each runs a test for every kind that is held alone.
func eachKind(t *testing.T, test func(t *testing.T, lock func(c *Client, name string) *Lock)) {
	for name, lock := range family {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, lock)
		})
	}
}
