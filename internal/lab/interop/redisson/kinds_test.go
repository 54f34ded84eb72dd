//go:build interop

package redisson

import (
	"fmt"
	"time"

	"github.com/reqlock/reqlock/core"
)

// clients are ours: one, or one for each of several masters.
type clients []*core.Client

// A kind is a lock kind, by its name on the JVM side, and our counterpart.
type kind struct {
	name    string
	since   version // of Redisson
	lock    func(cs clients, name string) core.Locker
	master  int     // the index of its master
	several bool    // it consists of several locks
	votes   bool    // a majority of them is enough
	shared  bool    // it has many holders
	strict  version // from which on Redisson refuses to unlock a free one
	async   bool    // no Redisson thread sleeps while it waits for it
}

var (
	plain  = kind{name: "lock", lock: func(cs clients, name string) core.Locker { return cs[0].Lock(name) }}
	fair   = kind{name: "fair", lock: func(cs clients, name string) core.Locker { return cs[0].FairLock(name) }, strict: never}
	fenced = kind{name: "fenced", since: hasFencedLock, lock: func(cs clients, name string) core.Locker { return cs[0].FencedLock(name) }, async: true}
	read   = kind{name: "read", lock: func(cs clients, name string) core.Locker { return cs[0].ReadWriteLock(name).Read() }, strict: strictReadWrite, shared: true}
	write  = kind{name: "write", lock: func(cs clients, name string) core.Locker { return cs[0].ReadWriteLock(name).Write() }, strict: strictReadWrite}
	// semaphore has one permit here, so that it can be held and waited for like a lock.
	semaphore = kind{name: "semaphore", lock: func(cs clients, name string) core.Locker { return cs[0].Semaphore(name, 1) }}
	multi     = kind{name: "multi", lock: whole(core.MultiLock), several: true}
	red       = kind{name: "red", lock: whole(core.RedLock), several: true, votes: true}

	// spin exists only in Redisson. It is a plain lock on the wire whose release is not announced.
	spin = kind{name: "spin", since: hasSpinLock, lock: plain.lock}
)

// plainOn returns a plain lock on one of several masters.
func plainOn(master int) kind {
	return kind{
		name:   fmt.Sprintf("lock@%d", master),
		lock:   func(cs clients, name string) core.Locker { return cs[master].Lock(name) },
		master: master,
	}
}

// whole combines members to one lock.
func whole(of func(...core.Locker) core.Locker) func(clients, string) core.Locker {
	return func(cs clients, name string) core.Locker {
		var locks []core.Locker
		for _, m := range membersOf(name, len(cs)) {
			locks = append(locks, m.lock(cs, m.of))
		}
		return of(locks...)
	}
}

// A member is a plain lock that is part of a combined lock.
type member struct {
	kind
	of string
}

// membersOf returns the members of a combined lock, the same on both sides: one name on each
// master, or on a cluster names with hash tags whose slots are on different masters.
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

// one are the kinds that consist of one lock, whose state can be queried; many are the combined
// ones.
var (
	one  = []kind{plain, fair, fenced, read, write, spin}
	many = []kind{multi, red}
)

// redPause is the longest pause of our waiters for a RedLock, which are not notified of releases.
const redPause = 200 * time.Millisecond

// A pairing is a row of the matrix: the lock that one side holds and the lock the other waits for.
type pairing struct {
	name         string
	held, wanted kind
	polled       bool          // releases are not announced, so our waiter polls
	pause        time.Duration // the longest sleep of our waiter, whatever is announced
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
	{name: "semaphore", held: semaphore, wanted: semaphore},
}

// hammers are the crews that work on one lock at the same time.
var hammers = [][]crew{
	{{plain, 4}},
	{{fair, 4}},
	{{fenced, 4}},
	{{write, 4}, {read, 2}},
	{{multi, 4}},
	{{red, 4}},
	{{spin, 4}},
}
