package core

import (
	"hash/maphash"
	"sync"

	"github.com/reqlock/reqlock/core/internal/watchdog"
)

// names holds an entry for each lock key that this process holds or waits for. It spreads them over
// shards, so that callers with different keys rarely contend.
type names struct{ shards []shard }

// A shard holds some of the entries. Its mutex guards them, their holds and their waiters. It is
// held for a few instructions only: never during a call to Redis or to the caller's code, and never
// together with the mutex of another shard. The mutexes of the hub, the inbox, the watchdog, the
// schedules, the cleaner and the group of background goroutines are taken inside it, never around it.
// The mutex of a set is taken around it.
type shard struct {
	engine  *engine
	dog     *watchdog.Watchdog[*hold]
	mu      sync.Mutex
	entries map[string]*entry
	permits map[string]*entry // the entries of semaphores, whose names may be those of locks, too
	held    int               // number of holds that Redis may have

	acquiring sync.WaitGroup // callers in Acquire; Add is called only while the client is open

	// For all entries of the shard, to keep an entry small.
	pastQueue []*waiter // try once without queueing

	_ [32]byte // fills two cache lines, so that CPUs do not contend for the line of another shard
}

func newNames(eng *engine, dog *watchdog.Watchdog[*hold]) *names {
	n := &names{shards: make([]shard, shardCount)}
	for i := range n.shards {
		s := &n.shards[i]
		s.engine, s.dog, s.entries, s.permits = eng, dog, make(map[string]*entry), make(map[string]*entry)
	}
	return n
}

func (n *names) shard(key string) *shard {
	return &n.shards[maphash.String(hashSeed, key)%shardCount]
}

// open locks the shard of a key, and returns its entry, which it creates if necessary. counted: the
// key is that of a semaphore.
func (n *names) open(key string, counted bool) *entry {
	s := n.shard(key)
	s.mu.Lock()
	e := s.named(counted)[key]
	if e == nil {
		e = &entry{shard: s, key: key, counted: counted}
		e.queue.Init()
		s.named(counted)[key] = e
	}
	return e
}

// named returns the entries of locks, or those of semaphores.
func (s *shard) named(counted bool) map[string]*entry {
	if counted {
		return s.permits
	}
	return s.entries
}

// eachLocked calls f for the entries of a key: one for locks, one for semaphores.
func (s *shard) eachLocked(key string, f func(*entry)) {
	if e := s.entries[key]; e != nil {
		f(e)
	}
	if e := s.permits[key]; e != nil {
		f(e)
	}
}

// holds reports whether a lock's key has a hold.
func (n *names) holds(key string) bool {
	s := n.shard(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.entries[key]
	return e != nil && e.holds.len > 0
}

// wake makes the waiters at the front of a key's queue retry.
func (n *names) wake(key string) {
	s := n.shard(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.eachLocked(key, func(e *entry) { wake(e.queue.Wake()) })
}

// each calls f for every entry, with its shard locked.
func (n *names) each(f func(*entry)) {
	for i := range n.shards {
		s := &n.shards[i]
		s.mu.Lock()
		for _, e := range s.entries {
			f(e)
		}
		for _, e := range s.permits {
			f(e)
		}
		s.mu.Unlock()
	}
}

// held returns the number of holds that Redis may have.
func (n *names) held() (held int) {
	for i := range n.shards {
		s := &n.shards[i]
		s.mu.Lock()
		held += s.held
		s.mu.Unlock()
	}
	return held
}

// awaitAcquires waits until no caller is in Acquire.
func (n *names) awaitAcquires() {
	for i := range n.shards {
		n.shards[i].acquiring.Wait()
	}
}

// clear drops all entries.
func (n *names) clear() {
	for i := range n.shards {
		n.shards[i].mu.Lock()
		clear(n.shards[i].entries)
		clear(n.shards[i].permits)
		n.shards[i].mu.Unlock()
	}
}

const shardCount = 64

var hashSeed = maphash.MakeSeed()
