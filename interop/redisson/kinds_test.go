//go:build interop

package redisson

import "github.com/reqlock/reqlock/core"

// A kind of lock, by the name that the JVM side gives it, and what it is on ours.
type kind struct {
	name      string
	lock      func(c *core.Client, name string) core.Locker
	shared    bool // it has many holders
	forgiving bool // Redisson does not mind the unlock of one that is free
	async     bool // no thread of Redisson's sleeps where one waits for it
}

var (
	plain  = kind{name: "lock", lock: func(c *core.Client, name string) core.Locker { return c.Lock(name) }}
	fair   = kind{name: "fair", lock: func(c *core.Client, name string) core.Locker { return c.FairLock(name) }, forgiving: true}
	fenced = kind{name: "fenced", lock: func(c *core.Client, name string) core.Locker { return c.FencedLock(name) }, async: true}
	read   = kind{name: "read", lock: func(c *core.Client, name string) core.Locker { return c.ReadWriteLock(name).Read() }, shared: true}
	write  = kind{name: "write", lock: func(c *core.Client, name string) core.Locker { return c.ReadWriteLock(name).Write() }}

	multi = kind{name: "multi", lock: func(c *core.Client, name string) core.Locker {
		var members []core.Locker
		for _, member := range membersOf(name) {
			members = append(members, c.Lock(member))
		}
		return core.MultiLock(members...)
	}}

	// spin is a lock that only Redisson has: it is ours on the wire, but its release is not announced.
	spin = kind{name: "spin", lock: plain.lock}
)

// membersOf are the locks of a multi lock, the same on both sides.
func membersOf(name string) []string { return []string{name + ":1", name + ":2", name + ":3"} }

// one are the kinds with one lock behind them, which can be looked into.
var one = []kind{plain, fair, fenced, read, write, spin}

// A pairing is a row of the matrix: what somebody holds, and what somebody else waits for.
type pairing struct {
	name         string
	held, wanted kind
	polled       bool // a release is not announced, so our waiter has to ask
}

var pairings = []pairing{
	{name: "lock", held: plain, wanted: plain},
	{name: "fair", held: fair, wanted: fair},
	{name: "fenced", held: fenced, wanted: fenced},
	{name: "write behind write", held: write, wanted: write},
	{name: "write behind read", held: read, wanted: write},
	{name: "read behind write", held: write, wanted: read},
	{name: "multi", held: multi, wanted: multi},
	{name: "spin", held: spin, wanted: spin, polled: true},
}

// hammers are those who work at the same time beneath one lock.
var hammers = [][]crew{
	{{plain, 4}},
	{{fair, 4}},
	{{fenced, 4}},
	{{write, 4}, {read, 2}},
	{{multi, 4}},
	{{spin, 4}},
}
