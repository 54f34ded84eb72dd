//go:build interop

package redisson

import (
	"fmt"
	"time"

	"github.com/reqlock/reqlock/core"
)

// clients are ours: one, or one for each of several masters.
type clients []*core.Client

// A kind of lock, by the name that the JVM side gives it, and what it is on ours.
type kind struct {
	name    string
	since   version // of Redisson
	lock    func(cs clients, name string) core.Locker
	master  int     // which of several it is on
	several bool    // it is made of several
	votes   bool    // of which more than half is enough
	shared  bool    // it has many holders
	strict  version // from which on Redisson refuses the unlock of one that is free
	async   bool    // no thread of Redisson's sleeps where one waits for it
}

var (
	plain  = kind{name: "lock", lock: func(cs clients, name string) core.Locker { return cs[0].Lock(name) }}
	fair   = kind{name: "fair", lock: func(cs clients, name string) core.Locker { return cs[0].FairLock(name) }, strict: never}
	fenced = kind{name: "fenced", since: hasFencedLock, lock: func(cs clients, name string) core.Locker { return cs[0].FencedLock(name) }, async: true}
	read   = kind{name: "read", lock: func(cs clients, name string) core.Locker { return cs[0].ReadWriteLock(name).Read() }, strict: strictReadWrite, shared: true}
	write  = kind{name: "write", lock: func(cs clients, name string) core.Locker { return cs[0].ReadWriteLock(name).Write() }, strict: strictReadWrite}
	multi  = kind{name: "multi", lock: whole(core.MultiLock), several: true}
	red    = kind{name: "red", lock: whole(core.RedLock), several: true, votes: true}

	// spin is a lock that only Redisson has: it is ours on the wire, but its release is not announced.
	spin = kind{name: "spin", since: hasSpinLock, lock: plain.lock}
)

// plainOn is a plain lock on one of several masters.
func plainOn(master int) kind {
	return kind{
		name:   fmt.Sprintf("lock@%d", master),
		lock:   func(cs clients, name string) core.Locker { return cs[master].Lock(name) },
		master: master,
	}
}

// whole makes one lock of its members.
func whole(of func(...core.Locker) core.Locker) func(clients, string) core.Locker {
	return func(cs clients, name string) core.Locker {
		var locks []core.Locker
		for _, m := range membersOf(name, len(cs)) {
			locks = append(locks, m.lock(cs, m.of))
		}
		return of(locks...)
	}
}

// A member is a plain lock, by its name, of several that are one.
type member struct {
	kind
	of string
}

// membersOf are the members of a lock, the same on both sides: one of the same name on each master; or, where we do not tell
// the masters from each other, names with hash tags, of which each is for another master of a cluster.
func membersOf(name string, masters int) (members []member) {
	for i, tag := range []string{"{a}", "{b}", "{c}"} {
		if masters > 1 {
			members = append(members, member{plainOn(i), name})
		} else {
			members = append(members, member{plain, tag + name})
		}
	}
	return members
}

// one are the kinds with one lock behind them, which can be looked into; many are those with several.
var (
	one  = []kind{plain, fair, fenced, read, write, spin}
	many = []kind{multi, red}
)

// redPause is the longest that a waiter for a RedLock of ours pauses between two attempts. It is not told of a release.
const redPause = 200 * time.Millisecond

// A pairing is a row of the matrix: what somebody holds, and what somebody else waits for.
type pairing struct {
	name         string
	held, wanted kind
	polled       bool          // a release is not announced, so our waiter has to ask
	pause        time.Duration // the longest that our waiter sleeps, whatever is announced
}

var pairings = []pairing{
	{name: "lock", held: plain, wanted: plain},
	{name: "fair", held: fair, wanted: fair},
	{name: "fenced", held: fenced, wanted: fenced},
	{name: "write behind write", held: write, wanted: write},
	{name: "write behind read", held: read, wanted: write},
	{name: "read behind write", held: write, wanted: read},
	{name: "multi", held: multi, wanted: multi},
	{name: "red", held: red, wanted: red, pause: redPause},
	{name: "spin", held: spin, wanted: spin, polled: true},
}

// hammers are those who work at the same time beneath one lock.
var hammers = [][]crew{
	{{plain, 4}},
	{{fair, 4}},
	{{fenced, 4}},
	{{write, 4}, {read, 2}},
	{{multi, 4}},
	{{red, 4}},
	{{spin, 4}},
}
