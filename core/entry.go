package core

import (
	"math"
	"slices"
	"time"

	"github.com/reqlock/reqlock/core/internal/claim"
	"github.com/reqlock/reqlock/core/internal/clock"
	"github.com/reqlock/reqlock/core/internal/hub"
	"github.com/reqlock/reqlock/core/internal/kinds"
	"github.com/reqlock/reqlock/core/internal/lua"
	"github.com/reqlock/reqlock/core/internal/schedule"
	"github.com/reqlock/reqlock/internal/lineage"
)

// An entry holds the state of one lock key in this process: its holds and its waiters. It exists
// while it has any. The shard's mutex guards all fields. It is small, because every held lock has
// one.
type entry struct {
	shard *shard
	key   string

	holds     holdSet // a hold that has ended stays until its release or loss has been handled
	queue     claim.Queue[*waiter]
	channel   *hub.Channel // subscribed while there are waiters, and for pauses.linger after that
	heldUntil clock.Moment // when the holder's key expires, by the last reply; 0: unknown; endless
	lingers   bool         // an unsubscribeTimer is set
	counted   bool         // the name is that of a semaphore
}

func (e *entry) engine() *engine { return e.shard.engine }

// open locks the shard.
func (e *entry) open() { e.shard.mu.Lock() }

// close unlocks the shard. It first drops the entry if nothing uses it any more, and starts the
// timer to unsubscribe if no waiter is left.
func (e *entry) close() {
	switch {
	case e.queue.Len() > 0:
	case e.channel != nil:
		if !e.lingers {
			e.lingers = true
			t := &unsubscribeTimer{entry: e}
			e.engine().alarms.Set(&t.alarm, t, e.engine().pauses.linger)
		}
	case e.holds.len == 0 && e.shard.named(e.counted)[e.key] == e && !e.triesPastQueueLocked():
		delete(e.shard.named(e.counted), e.key)
	}
	e.shard.mu.Unlock()
}

// removePastQueue removes a waiter that has tried without queueing. Until then the entry is kept.
func (e *entry) removePastQueue(w *waiter) {
	e.open()
	i := slices.Index(e.shard.pastQueue, w)
	e.shard.pastQueue = slices.Delete(e.shard.pastQueue, i, i+1)
	e.close()
}

func (e *entry) triesPastQueueLocked() bool {
	return slices.ContainsFunc(e.shard.pastQueue, func(w *waiter) bool { return w.entry == e })
}

// An unsubscribeTimer ends the subscription of an entry, unless a waiter joins first.
type unsubscribeTimer struct {
	entry *entry
	alarm schedule.Entry
}

func (t *unsubscribeTimer) ring() {
	e := t.entry
	e.open()
	e.lingers = false
	if e.queue.Len() == 0 && e.channel != nil {
		e.engine().hub.Unsubscribe(e.channel, e)
		e.channel = nil
	}
	e.close()
}

// subscribeLocked subscribes to the releases of other processes. All waiters of an entry share one
// channel. If Redis keeps the queue, each waiter has its own.
func (e *entry) subscribeLocked(w *waiter) {
	if p := w.fairPlace(); p != nil {
		if p.channel == nil {
			p.channel, _ = e.engine().hub.Subscribe(w.kind.Channel(e.key, p.wire), w)
		}
		return
	}
	if e.channel != nil {
		return
	}
	channel, confirmed := e.engine().hub.Subscribe(w.kind.Channel(e.key, ""), e)
	e.channel = channel
	if confirmed {
		wake(e.queue.Wake()) // no confirmation will follow that would wake them
	}
}

// Notify handles a message on the channel of the lock. The hub also calls it when it confirms the
// subscription, the first time and after a reconnect that may have lost messages.
func (e *entry) Notify() {
	e.open()
	wake(e.queue.Message())
	e.close()
}

// refusedLocked makes a waiter sleep that was refused. If it is now one too many, the last waiters
// fail.
func (e *entry) refusedLocked(w *waiter, pause time.Duration) {
	for _, last := range e.queue.Refused(&w.Waiter, clock.In(pause)) {
		last.Item.troubledLocked().err = errNameFull(last.Limit)
		last.Item.poke()
	}
}

// grantLocked adds the hold that w was granted, and removes w from the queue. free is how many permits
// are free.
func (e *entry) grantLocked(w *waiter, h *hold, free int) {
	e.holds.add(h)
	e.shard.held++
	e.engine().inbox.needed()
	if w.aside != nil && w.aside.hinted {
		w.aside.hinted = false
		e.engine().inbox.ask(question{key: e.key})
	}
	e.heldUntil = 0
	at := h.first.acquired
	next, woken := e.queue.Granted(&w.Waiter, free, at, at.Add(e.engine().reliedPause(false)))
	wake(woken)
	if w.kind.Record != nil {
		e.waitedLocked()
	}
	if next != nil {
		e.subscribeLocked(next.Item)
	}
	if h.owner() == 0 {
		return
	}
	for _, other := range e.queue.Waiters() {
		if ownerOf(other.Item.link) == h.owner() { // it enters the hold again
			other.Item.poke()
		}
	}
}

// waitedLocked records in all waiters that a Once is held. Other kinds do not need to know, and would
// pay for each of their waiters.
func (e *entry) waitedLocked() {
	for _, w := range e.queue.Waiters() {
		w.Item.waited = true
	}
}

// outrunLocked reports whether the grant of h displaces a hold that was granted after the command for
// h had begun. Redis may then have executed the command before or after that grant.
func (e *entry) outrunLocked(h *hold, begun clock.Moment) bool {
	if e.counted || h.kind.Shared && e.holds.exclusive == 0 {
		return false
	}
	for other := e.holds.first; other != nil; other = other.next {
		if other.first.acquired > begun && h.displaces(other) {
			return true
		}
	}
	return false
}

// displaces reports whether the grant of h proves that another hold is lost. A guest has entered beside
// the others.
func (h *hold) displaces(other *hold) bool {
	return other != h && !h.kind.Invited() && other.claim.State() == claim.Held && (!h.kind.Shared || other.claim.Counts().Exclusive > 0)
}

// displaceLocked ends every other hold that the grant of h proves lost: its key was deleted,
// evicted, or lost in a failover. Acquire returns h only after that, so that two leases of one
// client are never valid at the same time. The caller passes the result to finishLosses.
func (e *entry) displaceLocked(h *hold) (displaced []loss) {
	if e.counted || h.kind.Shared && e.holds.exclusive == 0 {
		return nil
	}
	for other := e.holds.first; other != nil; other = other.next {
		if h.displaces(other) {
			displaced = append(displaced, other.endLocked(errGranted))
		}
	}
	return displaced
}

// removeLocked removes a hold that has ended. If the hold needs a clean-up, the caller has already
// passed it to the cleaner: Close waits until there are no holds, and then for the cleaner.
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

// freeingLocked tells the queue that the last hold is about to be freed. The message of the release
// may arrive before the reply.
func (e *entry) freeingLocked() {
	if e.holds.len > 1 && !e.counted {
		return // the others keep the lock
	}
	e.queue.Freeing(clock.Now(), e.echoes())
}

// freedLocked handles the reply to a release, or the loss of a hold. receivers is the number of
// clients that received the message of the release. It is 0 after a loss, which publishes no
// message.
func (e *entry) freedLocked(receivers int) {
	others := claim.NoListeners
	switch {
	case !e.engine().countsListeners():
		others = claim.UnknownListeners
	case receivers > e.echoes():
		others = claim.OtherListeners
	}
	wake(e.queue.Freed(clock.In(e.engine().pauses.firstChance), others))
}

// echoes returns how many of the messages that this process publishes for one release it receives
// itself. It returns 0 if Redis does not count the receivers of a message.
func (e *entry) echoes() int {
	eng := e.engine()
	if e.channel == nil || !eng.countsListeners() || !eng.hub.Confirmed(e.channel) {
		return 0
	}
	return len(eng.publishMode().publishCommands())
}

// dismissLocked fails every waiter that had joined when arrivals was read. If err is a record, only
// waiters of a Once get it, and ErrUnrecorded only those without succession. Waiters that outlast err
// stay.
func (e *entry) dismissLocked(arrivals uint32, err error) {
	_, isRecord := err.(*recorded)
	out, woken := e.queue.Dismiss(arrivals, func(w *claim.Waiter[*waiter]) bool {
		return isRecord && w.Item.kind.Record == nil || err == ErrUnrecorded && !w.Item.kind.Looks || w.Item.outlasts(err)
	})
	failAll(out, err)
	wake(woken)
}

// deliverLocked gives the waiters of a Once the record that a hold of this process has left. sent
// is when the command was queued. If the record may have expired since, the waiters stay and try
// Redis.
func (e *entry) deliverLocked(h *hold, r *lua.Record, sent clock.Instant) {
	if e.queue.Len() > 0 && e.engine().clock().Since(sent) < r.TTL {
		e.dismissLocked(e.queue.Arrivals(), &recorded{[]byte(r.Value), h.kind.Marks.Binding})
	}
}

// recordingLocked reports whether a hold of this process is being released with a record. Its
// waiters need not try Redis, because deliverLocked will give them the record.
func (e *entry) recordingLocked() bool {
	for h := e.holds.first; h != nil; h = h.next {
		if h.record != nil && h.claim.State() == claim.Freeing {
			return true
		}
	}
	return false
}

// forceLocked returns the holds whose wire owner matches. It also marks waiters whose pending one
// matches as forced: Redis has executed their acquire or hand-over, but the reply has not been read
// yet.
func (e *entry) forceLocked(match func(wire string) bool) (taken []*hold) {
	for h := e.holds.first; h != nil; h = h.next {
		if match(h.wire) {
			taken = append(taken, h)
		}
	}
	e.eachPendingLocked(func(w *waiter) {
		if match(e.engine().wireOwner(w.pending)) {
			w.pending, w.forced = 0, true
		}
	})
	return taken
}

// eachPendingLocked calls f for each waiter with an attempt or a hand-over in flight.
func (e *entry) eachPendingLocked(f func(*waiter)) {
	for _, w := range e.queue.Waiters() {
		if w.Item.pending != 0 {
			f(w.Item)
		}
	}
	for _, w := range e.shard.pastQueue {
		if w.entry == e && w.pending != 0 {
			f(w)
		}
	}
}

// endless is heldUntil of a key that never expires.
const endless clock.Moment = math.MaxInt64

// noteLocked records the TTL of the holder's key.
func (e *entry) noteLocked(ttl time.Duration) {
	switch {
	case ttl == noTTL:
		e.heldUntil = endless
	case ttl > 0:
		e.heldUntil = clock.In(ttl)
	default:
		e.heldUntil = 0
	}
}

// ttlLocked returns how long the holder's key has left, by the last reply of Redis. 0: unknown;
// noTTL: it never expires.
func (e *entry) ttlLocked() time.Duration {
	switch e.heldUntil {
	case 0:
		return 0
	case endless:
		return noTTL
	}
	return max(0, e.heldUntil.Since(clock.Now()))
}

// heldFromLocked reports whether this process holds the lock for a caller of that origin, and so
// that it excludes k.
func (e *entry) heldFromLocked(origin *lineage.Link, k *kinds.Kind) bool {
	if k.Shared && e.holds.exclusive == 0 {
		return false
	}
	for h := e.holds.first; h != nil; h = h.next {
		if h.claim.State() == claim.Held && h.link != nil && h.link.Origin() == origin && (!k.Shared || h.claim.Sure().Exclusive > 0) {
			return true
		}
	}
	return false
}

// heldLocked reports whether an owner that excludes k holds the lock, in this process or, by the
// last reply of Redis, elsewhere.
func (e *entry) heldLocked(k *kinds.Kind) bool {
	if k.Shared && e.holds.exclusive == 0 {
		return e.ttlLocked() != 0
	}
	for h := e.holds.first; h != nil; h = h.next {
		if !k.Shared || h.claim.Sure().Exclusive > 0 {
			return true
		}
	}
	return e.ttlLocked() != 0
}
