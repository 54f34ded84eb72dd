package core

import (
	"hash/maphash"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/reqlock/reqlock/core/internal/clock"
	"github.com/reqlock/reqlock/core/internal/hub"
	"github.com/reqlock/reqlock/core/internal/lua"
	"github.com/reqlock/reqlock/core/internal/schedule"
	"github.com/reqlock/reqlock/core/internal/waitqueue"
	"github.com/reqlock/reqlock/core/internal/watchdog"
)

// names has an entry for each lock name that this process holds or waits for. They are spread over shards so that callers with
// different names hardly ever meet.
type names struct{ shards []shard }

const shardCount = 64

// A shard is some of the names. Its mutex guards all that is known about them. It is held for a few instructions at a time, never
// while Redis, the caller's code or another shard is involved. The mutexes of hub, watchdog, schedules and cleaner are taken inside
// it, never around it.
type shard struct {
	engine  *engine
	dog     *watchdog.Watchdog[*hold]
	mu      sync.Mutex
	entries map[string]*entry
	held    int // holds that Redis may have

	acquiring sync.WaitGroup // callers of Acquire; joined only while the client is open

	// Of all entries together, since an entry is kept small.
	voters  []*waiter // callers that ask past the queue
	trouble error     // why Redis did not answer the latest waiter that asks again in an outage

	_ [24]byte // fills two cache lines, so that processors at work on different shards do not wait for each other
}

func newNames(e *engine, dog *watchdog.Watchdog[*hold]) *names {
	n := &names{shards: make([]shard, shardCount)}
	for i := range n.shards {
		s := &n.shards[i]
		s.engine, s.dog, s.entries = e, dog, make(map[string]*entry)
	}
	return n
}

var hashSeed = maphash.MakeSeed()

func (n *names) shard(key string) *shard {
	return &n.shards[maphash.String(hashSeed, key)%shardCount]
}

// lock returns the entry of a key, locked. It makes one if need be.
func (n *names) lock(key string) *entry {
	s := n.shard(key)
	s.mu.Lock()
	e := s.entries[key]
	if e == nil {
		e = &entry{shard: s, key: key}
		e.queue.Init()
		s.entries[key] = e
	}
	return e
}

// wake has those at the front of a key's queue ask Redis again.
func (n *names) wake(key string) {
	s := n.shard(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.entries[key]; e != nil {
		wake(e.queue.Wake())
	}
}

// each calls f for every entry, its shard locked.
func (n *names) each(f func(*entry)) {
	for i := range n.shards {
		s := &n.shards[i]
		s.mu.Lock()
		for _, e := range s.entries {
			f(e)
		}
		s.mu.Unlock()
	}
}

// held is the number of holds that Redis may have.
func (n *names) held() (held int) {
	for i := range n.shards {
		s := &n.shards[i]
		s.mu.Lock()
		held += s.held
		s.mu.Unlock()
	}
	return held
}

// awaitAcquires waits until no caller of Acquire is left.
func (n *names) awaitAcquires() {
	for i := range n.shards {
		n.shards[i].acquiring.Wait()
	}
}

// clear forgets all entries.
func (n *names) clear() {
	for i := range n.shards {
		n.shards[i].mu.Lock()
		clear(n.shards[i].entries)
		n.shards[i].mu.Unlock()
	}
}

// An entry is what this process knows about one lock key: its holds and its waiters. It exists while there is anything to know. The
// shard's mutex guards all of it. There is one for every lock that is held: it is kept small.
type entry struct {
	shard *shard
	key   string

	holds    holdSet // those that have ended stay until all has been told
	queue    waitqueue.Queue[*waiter]
	channel  *hub.Channel // subscribed to while there are waiters, and for linger after that
	heldTill clock.Moment // by the last reply of Redis, and by another owner; 0: not known; endless
	lingers  bool         // an unsubscribeTimer is set
}

func (e *entry) engine() *engine { return e.shard.engine }

func (e *entry) lock() { e.shard.mu.Lock() }

// unlock forgets the entry if there is nothing to know any more, and unlocks its shard.
func (e *entry) unlock() {
	switch {
	case e.queue.Len() > 0:
	case e.channel != nil:
		if !e.lingers {
			e.lingers = true
			t := &unsubscribeTimer{entry: e}
			e.engine().alarms.Set(&t.alarm, t, e.engine().linger)
		}
	case e.holds.len == 0 && e.shard.entries[e.key] == e && !e.hasVotersLocked():
		delete(e.shard.entries, e.key)
	}
	e.shard.mu.Unlock()
}

// removeVoter forgets a caller that asked past the queue. Until then the entry is kept.
func (e *entry) removeVoter(w *waiter) {
	e.lock()
	i := slices.Index(e.shard.voters, w)
	e.shard.voters = slices.Delete(e.shard.voters, i, i+1)
	e.unlock()
}

func (e *entry) hasVotersLocked() bool {
	return slices.ContainsFunc(e.shard.voters, func(w *waiter) bool { return w.entry == e })
}

// linger is how long a channel stays subscribed after its last waiter. A hot lock has waiters again at once. With any other, to
// stay for longer would wake this process for releases that it does not wait for, its own among them.
const linger = 2 * time.Millisecond

// An unsubscribeTimer ends the subscription of an entry unless a waiter comes first.
type unsubscribeTimer struct {
	entry *entry
	alarm schedule.Entry[alarm]
}

func (t *unsubscribeTimer) ring() {
	e := t.entry
	e.lock()
	e.lingers = false
	if e.queue.Len() == 0 && e.channel != nil {
		e.engine().hub.Unsubscribe(e.channel, e)
		e.channel = nil
	}
	e.unlock()
}

// subscribeLocked makes sure that releases elsewhere are heard: by all waiters together, or, where Redis keeps the queue, by each
// on a channel of its own.
func (e *entry) subscribeLocked(w *waiter) {
	if p := w.place; p != nil {
		if p.channel == nil {
			p.channel, _ = e.engine().hub.Subscribe(w.kind.channel(e.key, p.field), w)
		}
		return
	}
	if e.channel != nil {
		return
	}
	channel, confirmed := e.engine().hub.Subscribe(w.kind.channel(e.key, ""), e)
	e.channel = channel
	if confirmed {
		wake(e.queue.Wake()) // there will be no confirmation to do it
	}
}

// Notify takes a message on the channel of the name. The hub also calls it when it has subscribed, and when messages may have been
// lost.
func (e *entry) Notify() {
	e.lock()
	wake(e.queue.Message())
	e.unlock()
}

// grantLocked puts a hold in the place of the waiter that got it.
func (e *entry) grantLocked(w *waiter, h *hold) {
	e.holds.add(h)
	e.shard.held++
	e.heldTill = 0
	next, woken := e.queue.Granted(&w.Waiter, clock.In(e.engine().pollPause()))
	wake(woken)
	if next != nil {
		e.subscribeLocked(next.Item)
	}
	for _, other := range e.queue.Waiters() {
		if other.Item.owner == w.owner { // it enters the hold
			other.Item.poke()
		}
	}
}

// displaceLocked ends the holds that Redis cannot have beside h, whatever this client believed: the key was deleted, evicted, or
// lost in a failover. They end before the grant of h is returned, so that no two leases of one client are good at the same time. The
// caller passes the result to finishLosses.
func (e *entry) displaceLocked(h *hold) (displaced []loss) {
	if h.kind.shared && e.holds.exclusive == 0 {
		return nil
	}
	for other := e.holds.first; other != nil; other = other.next {
		if other == h || other.state != held {
			continue
		}
		if h.kind.shared && other.countsLocked().exclusive == 0 {
			continue
		}
		displaced = append(displaced, other.endLocked(ErrLockLost))
	}
	return displaced
}

// removeLocked takes off a hold that has ended. What may be left of it has been handed to the cleaner before: Close waits until no
// hold is there, and then for the cleaner.
func (e *entry) removeLocked(h *hold) {
	if !e.holds.remove(h) {
		return
	}
	if e.shard.held--; e.shard.held == 0 && e.engine().state.Load() != open {
		select {
		case e.engine().gone <- struct{}{}:
		default:
		}
	}
}

// freeingLocked notes that a hold is about to be freed. The message of that may be here before the reply.
func (e *entry) freeingLocked() {
	if e.holds.len > 1 {
		return // the lock is not free by that
	}
	e.queue.Freeing(clock.Now(), e.echoes())
}

// firstChance is how long other processes have the first chance of a lock after a streak of hand-overs here.
const firstChance = 2 * time.Millisecond

// freedLocked takes the reply to a release, or the loss of a hold. listeners is how many clients have received the message of the
// release; lost: there was none.
func (e *entry) freedLocked(listeners int) {
	others := waitqueue.NoListeners
	switch {
	case !e.engine().countsListeners():
		others = waitqueue.UnknownListeners
	case listeners > e.echoes():
		others = waitqueue.OtherListeners
	}
	wake(e.queue.Freed(clock.In(e.engine().firstChance), others))
}

// echoes is how many messages of a release come back to this process, where Redis counts who receives them.
func (e *entry) echoes() int {
	c := e.engine()
	if e.channel == nil || !c.countsListeners() || !c.hub.Confirmed(e.channel) {
		return 0
	}
	return len(c.publishMode().publishCommands())
}

// dismissLocked takes out every waiter that had joined when arrivals was read, with an error. A record is only for those that wait
// for one, and what may heal is nothing to those that wait for ever.
func (e *entry) dismissLocked(arrivals uint32, err error) {
	_, isRecord := err.(*recorded)
	passing := heals(err)
	out, woken := e.queue.Dismiss(arrivals, func(w *waitqueue.Waiter[*waiter]) bool {
		return isRecord && w.Item.kind.record == nil || passing && w.Deadline == 0
	})
	failAll(out, err)
	wake(woken)
}

// deliverLocked gives a record that was left here to all who wait for it. sent is when the command was queued. Where the record may
// have expired by now, they have to ask.
func (e *entry) deliverLocked(r *lua.Record, sent clock.Instant) {
	if e.engine().clock().Since(sent) < r.TTL {
		e.dismissLocked(e.queue.Arrivals(), &recorded{r.Value})
	}
}

// recordingLocked reports whether a hold of ours is being released with a record right now. Those who wait for it need not ask: the
// record will be delivered.
func (e *entry) recordingLocked() bool {
	for h := e.holds.first; h != nil; h = h.next {
		if h.record != nil && h.state == freeing {
			return true
		}
	}
	return false
}

// forceLocked returns the holds of these fields, for which match says yes, and marks the grants of them that are on their way: Redis
// has executed an acquire or a hand-over, and its reply has not been read.
func (e *entry) forceLocked(match func(field string) bool) (taken []*hold) {
	for h := e.holds.first; h != nil; h = h.next {
		if match(h.field) {
			taken = append(taken, h)
		}
	}
	force := func(w *waiter) {
		if w.coming != "" && match(w.coming) {
			w.forced = true
		}
	}
	for _, w := range e.queue.Waiters() {
		force(w.Item)
	}
	for _, w := range e.shard.voters {
		if w.entry == e {
			force(w)
		}
	}
	return taken
}

// endless is the heldTill of a key that never expires.
const endless clock.Moment = math.MaxInt64

// noteLocked remembers what Redis told about the holder's key.
func (e *entry) noteLocked(ttl time.Duration) {
	switch {
	case ttl == noTTL:
		e.heldTill = endless
	case ttl > 0:
		e.heldTill = clock.In(ttl)
	default:
		e.heldTill = 0
	}
}

// ttlLocked is what is left of the holder's key by the last reply of Redis; 0: not known; noTTL: it has no end.
func (e *entry) ttlLocked() time.Duration {
	switch e.heldTill {
	case 0:
		return 0
	case endless:
		return noTTL
	}
	return max(0, e.heldTill.Since(clock.Now()))
}

// heldLocked reports whether an owner who excludes a kind has the lock, here or elsewhere, by what is known.
func (e *entry) heldLocked(k *kind) bool {
	if k.shared && e.holds.exclusive == 0 {
		return e.ttlLocked() != 0
	}
	for h := e.holds.first; h != nil; h = h.next {
		if !k.shared || h.sure.exclusive > 0 {
			return true
		}
	}
	return e.ttlLocked() != 0
}
