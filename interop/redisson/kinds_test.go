//go:build interop

package redisson

import "github.com/reqlock/reqlock/core"

// A kind of lock, by the name that the JVM side gives it, and what it is on ours.
type kind struct {
	name      string
	lock      func(c *core.Client, name string) core.Locker
	shared    bool // it has many holders
	forgiving bool // Redisson does not mind the unlock of one that is free
}

var (
	plain = kind{name: "lock", lock: func(c *core.Client, name string) core.Locker { return c.Lock(name) }}

	// spin is a lock that only Redisson has: it is ours on the wire, but its release is not announced.
	spin = kind{name: "spin", lock: plain.lock}
)

// one are the kinds with one lock behind them, which can be looked into.
var one = []kind{plain, spin}

// A pairing is a row of the matrix: what somebody holds, and what somebody else waits for.
type pairing struct {
	name         string
	held, wanted kind
	polled       bool // a release is not announced, so our waiter has to ask
}

var pairings = []pairing{
	{name: "lock", held: plain, wanted: plain},
	{name: "spin", held: spin, wanted: spin, polled: true},
}

// hammers are those who work at the same time beneath one lock.
var hammers = [][]crew{
	{{plain, 4}},
	{{spin, 4}},
}
