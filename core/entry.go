package core

import (
	"hash/maphash"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/reqlock/reqlock/core/internal/clock"
	"github.com/reqlock/reqlock/core/internal/hub"
	"github.com/reqlock/reqlock/core/internal/schedule"
)

// Names are spread over shards so that callers with different names hardly ever meet. A shard's mutex guards all that is
// known about its names; it is held for a few instructions at a time, never while Redis, the caller's code or another
// shard is involved. The mutexes of hub, watchdog, schedules and cleaner are taken inside it, never around it.
const shardCount = 64

type shard struct {
	c       *Client
	mu      sync.Mutex
	entries map[string]*entry
	held    int // live holds, and those that are being taken leave of

	acquiring sync.WaitGroup // callers of Acquire in a queue; joined only while the client is open

	// Of all entries together, since an entry is kept small.
	arrivals uint64    // numbers the waiters
	voters   []*waiter // callers that ask past the queue
	trouble  error     // why Redis did not answer the latest waiter that asks again in an outage

	_ [32]byte // fills two cache lines, so that processors at work on different shards do not wait for each other
}

var hashSeed = maphash.MakeSeed()

func (c *Client) shard(key string) *shard {
	return &c.shards[maphash.String(hashSeed, key)%shardCount]
}

// An entry is what this process knows about one lock key: who of us holds it, and who of us waits. It exists while there is
// anything to know. All of it is guarded by the shard's mutex. There is one for every lock that is held: it is kept small.
type entry struct {
	shard *shard
	key   string

	holds   holdSet      // those that have ended stay until all has been told
	queue   []*waiter    // first come, first served; only those at the front ask Redis
	channel *hub.Channel // subscribed to while somebody waits, and a moment longer

	round
	heldTill clock.Moment // by the last word of Redis, and by somebody else; endless: without an end

	one [1]*waiter // where queue begins: as a rule there is no second one
}

func (e *entry) client() *Client { return e.shard.c }

// linger is how long a channel stays subscribed after its last waiter. A hot lock has waiters again at once; with any other, to
// stay for longer would have this process woken by releases, its own among them, that nobody here waits for.
const linger = 2 * time.Millisecond

// An unsubscribeTimer ends the subscription of an entry unless a waiter comes first.
type unsubscribeTimer struct {
	entry *entry
	alarm schedule.Entry[alarm]
}

// An alarm rings at a time set in Client.alarms, on the goroutine of those: what may take long it does elsewhere.
type alarm interface{ ring() }

// lock locks the shard of a key and returns the key's entry, which it makes if need be.
func (c *Client) lock(key string) *entry {
	s := c.shard(key)
	s.mu.Lock()
	e := s.entries[key]
	if e == nil {
		e = &entry{shard: s, key: key}
		e.queue = e.one[:0]
		s.entries[key] = e
	}
	return e
}

// unlock forgets the entry if there is nothing to know any more, and unlocks its shard.
func (e *entry) unlock() {
	switch {
	case len(e.queue) > 0:
	case e.channel != nil:
		if !e.lingers {
			e.lingers = true
			f := &unsubscribeTimer{entry: e}
			e.client().alarms.Set(&f.alarm, f, e.client().linger)
		}
	case e.holds.len == 0 && e.votes == 0 && e.shard.entries[e.key] == e:
		delete(e.shard.entries, e.key)
	}
	e.shard.mu.Unlock()
}

func (f *unsubscribeTimer) ring() {
	e := f.entry
	e.shard.mu.Lock()
	e.lingers = false
	if len(e.queue) == 0 && e.channel != nil {
		e.client().hub.Unsubscribe(e.channel, e)
		e.channel = nil
	}
	e.unlock()
}

// holdOfLocked is the live hold of an owner, or nil.
func (e *entry) holdOfLocked(o owner) *hold { return e.holds.of(o) }

// removeLocked takes a hold off the entry, whose lock may be free now.
func (e *entry) removeLocked(h *hold) {
	e.dropLocked(h)
	if !e.freedLocked() {
		e.bumpLocked()
	}
}

// dropLocked takes a hold off the entry. What is to be cleaned up of it has been handed to the cleaner before: Close waits until no hold is
// there, and then for the cleaner.
func (e *entry) dropLocked(h *hold) {
	if !e.holds.remove(h) {
		return
	}
	if e.shard.held--; e.shard.held == 0 && e.client().state.Load() != open {
		select {
		case e.client().gone <- struct{}{}:
		default:
		}
	}
}

// Notify has those at the front ask Redis again, for there was a message, or may have been; it is how the hub tells.
func (e *entry) Notify() {
	e.shard.mu.Lock()
	if e.heardLocked() {
		e.bumpLocked()
	}
	e.shard.mu.Unlock()
}

// bumpLocked has the waiters at the front ask again.
func (e *entry) bumpLocked() {
	e.epoch++
	for i, w := range e.queue {
		if !w.front {
			return
		}
		if w.kind.queued { // Redis tells the one whose turn it is; where it cannot know, it is the first of us at best
			if i > 0 {
				continue
			}
			w.calledLocked()
			continue
		}
		w.poke()
	}
}

// wake has those at the front of a key's queue ask Redis again.
func (c *Client) wake(key string) {
	s := c.shard(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.entries[key]; e != nil {
		e.bumpLocked()
	}
}

// pokeLocked has those at the front look again.
func (e *entry) pokeLocked() {
	for _, w := range e.queue {
		if !w.front {
			return
		}
		w.poke()
	}
}

// subscribeLocked makes sure that releases elsewhere are heard of: by all waiters together, or, where Redis keeps the queue, by
// each on a channel of its own.
func (e *entry) subscribeLocked(w *waiter) {
	if p := w.place; p != nil {
		if p.channel == nil {
			p.channel, _ = e.client().hub.Subscribe(w.kind.channel(e.key, p.field), w)
		}
		return
	}
	if e.channel != nil {
		return
	}
	channel, confirmed := e.client().hub.Subscribe(w.kind.channel(e.key, ""), e)
	e.channel = channel
	if confirmed {
		e.bumpLocked() // there will be no confirmation to do it
	}
}

// Notify has one waiter ask Redis again: what is published on its channel is for it alone.
func (w *waiter) Notify() {
	w.entry.shard.mu.Lock()
	w.calledLocked()
	w.entry.shard.mu.Unlock()
}

// calledLocked has the waiter ask again.
func (w *waiter) calledLocked() {
	w.place.calls++
	w.poke()
}

// A waiter is a caller of Acquire whose owner does not hold the lock. Its life, guarded by the shard's mutex:
//
//	queued  -> front      when all before it have left; readers also when only readers are before it, all of whom are at the
//	                      front; at once where Redis keeps the queue
//	front   -> asking     at once; it sends the acquire script
//	asking  -> asleep     refused: until the epoch moves or pollAt has come, then it asks again
//	asleep  -> heir       the lock is being handed to it: it does not ask. Then it is out, or asleep again
//	any     -> out        granted; its time or its context over; failed together with others; its owner got the lock
//
// Each waiter runs on its caller's goroutine, which alone moves it on. Others only poke it to look again, or take it out
// with an error.
type waiter struct {
	request
	entry  *entry
	place  *place                // nil, unless of a queued kind
	signal chan struct{}         // holds one poke; made before it first sleeps
	alarm  schedule.Entry[alarm] // pokes it, if need be

	arrival  uint64 // later ones have higher numbers
	pollAt   clock.Moment
	seen     uint32 // the epoch before the last question
	front    bool
	asked    bool // since it came to the front
	asking   bool // a question is under way
	alone    bool // nobody of us had the lock when it asked
	heir     bool // the lock is being handed to it
	waits    bool // false: it came to the front at once, and has not been refused yet
	out      bool
	coming   string // the wire owner that it is asking for, or is offered as an heir; empty: none
	forced   bool   // ForceUnlock took that before it was known to be granted
	troubles uint8  // questions in a row that Redis did not answer
	err      error  // why others took it out
	lease    *Lease // handed to it
}

func (w *waiter) ring() { w.poke() }

func (w *waiter) poke() {
	select {
	case w.signal <- struct{}{}:
	default: // it has one already, or does not sleep and looks before it does
	}
}

// enqueueLocked puts a waiter last.
func (e *entry) enqueueLocked(w *waiter) {
	e.shard.arrivals++
	w.arrival = e.shard.arrivals
	w.front = len(e.queue) == 0 || e.joinsLocked(w.kind)
	w.waits = !w.front
	e.queue = append(e.queue, w)
}

// joinsLocked reports whether another waiter of a kind would be at the front although there are some already.
func (e *entry) joinsLocked(k *kind) bool {
	last := e.queue[len(e.queue)-1]
	return k.queued || last.front && last.joinedBy(k)
}

// joinedBy reports whether one of a kind may ask Redis together with the waiter before it.
func (w *waiter) joinedBy(k *kind) bool { return w.kind.shared && k.shared }

// waitingLocked is the number of waiters, less those who do not know yet that they have to wait.
func (e *entry) waitingLocked() int {
	n := len(e.queue)
	for _, w := range e.queue {
		if !w.front {
			break
		}
		if !w.waits {
			n--
		}
	}
	return n
}

// epochOfLocked counts what may have freed the lock for a waiter.
func (e *entry) epochOfLocked(w *waiter) uint32 {
	if w.place != nil {
		return w.place.calls
	}
	return e.epoch
}

// leaveLocked takes a waiter out of the queue; who comes to the front by that asks at once, since the one who left may have been
// the one who was told.
func (e *entry) leaveLocked(w *waiter) {
	if w.out {
		return
	}
	w.out = true
	i := slices.Index(e.queue, w)
	e.queue = slices.Delete(e.queue, i, i+1)
	e.promoteLocked()
}

// promoteLocked brings to the front who may be there, and has them ask.
func (e *entry) promoteLocked() {
	for i, w := range e.queue {
		if i > 0 && !w.front && !e.queue[i-1].joinedBy(w.kind) {
			return
		}
		if !w.front {
			w.front = true
			w.poke()
		}
	}
}

// grantLocked puts a hold in the place of the waiter who got it. The one behind it need not ask, unless they may share the lock: it
// knows who has it, and that there will be a release or a loss to wake it.
func (e *entry) grantLocked(w *waiter, h *hold) {
	e.holds.add(h)
	e.grantedLocked()
	e.heldTill = 0
	e.shard.held++
	e.leaveLocked(w)
	if len(e.queue) > 0 {
		first := e.queue[0]
		if !first.kind.queued && !w.joinedBy(first.kind) {
			e.asksLocked(first)
			first.pollAt = clock.In(e.client().pollPause())
			e.subscribeLocked(first)
		}
	}
	for _, other := range e.queue {
		if other.owner == w.owner {
			other.poke()
		}
	}
}

// dismissLocked takes out every waiter that arrived by some time, with an error. A record is only for those of its kind, and what may
// heal is nothing to those who wait for ever.
func (e *entry) dismissLocked(arrival uint64, err error) {
	_, isRecord := err.(*recorded)
	passing := heals(err)
	stay := e.queue[:0:0]
	for _, w := range e.queue {
		if w.arrival > arrival || isRecord && w.kind.record == nil || passing && w.forEver() {
			stay = append(stay, w)
			continue
		}
		w.out, w.err = true, err
		w.poke()
	}
	e.queue = stay
	e.promoteLocked()
}

// A step is what a waiter does next.
type step int

const (
	ask     step = iota
	sleep        // until poked, or for the duration
	reenter      // its owner has the lock
	giveUp       // its time is over
	fail         // with waiter.err
	take         // waiter.lease
)

// noEnd is how long to sleep if only a poke can change anything.
const noEnd time.Duration = math.MaxInt64

// nextLocked says what a waiter does now.
func (e *entry) nextLocked(w *waiter, now clock.Moment) (step, time.Duration) {
	front := !w.out && w.front
	left := noEnd
	if w.deadline != 0 {
		left = w.deadline.Since(now)
	}
	switch {
	case w.lease != nil:
		return take, 0
	case w.err != nil:
		return fail, 0
	case e.holdOfLocked(w.owner) != nil:
		return reenter, 0
	case front && left > 0 && w.kind.record != nil && e.recordingLocked(): // it is told what comes of that
	case w.heir && left > 0:
	case front && left > 0 && !w.kind.queued && e.restsLocked():
		left = min(left, e.restLeftLocked())
	case front && !w.asked:
		return ask, 0
	case left <= 0:
		return giveUp, 0
	case front && (w.seen != e.epochOfLocked(w) || w.pollAt <= now):
		return ask, 0
	case front:
		left = min(left, w.pollAt.Since(now))
	}
	if w.signal == nil {
		w.signal = make(chan struct{}, 1)
	}
	return sleep, left
}

// asksLocked notes that a waiter is about to ask, and returns who stands in the queue by now.
func (e *entry) asksLocked(w *waiter) (arrivals uint64) {
	w.asked, w.seen, w.alone = true, e.epochOfLocked(w), e.freed || e.holds.len == 0
	return e.shard.arrivals
}

// sleepsLocked notes that a waiter was refused. Where it was not counted as waiting before, there may be one too many behind it
// now; the last to come is the one to go.
func (e *entry) sleepsLocked(w *waiter, ttl time.Duration) {
	w.asking, w.coming, w.forced = false, "", false
	if w.alone {
		e.rivals = rivalChances
	}
	pause := e.client().pause(ttl)
	if w.kind.queued {
		pause = min(pause, fairPoll, e.client().opts.FairWaitTimeout/4) // who is silent for longer may be taken for dead
	}
	w.pollAt = clock.In(pause)
	e.subscribeLocked(w)
	if w.waits {
		return
	}
	w.waits = true
	for n := len(e.queue); n > 1; n-- {
		last := e.queue[n-1]
		if !last.waits || e.waitingLocked() <= int(last.maxWaiters) {
			return
		}
		e.queue[n-1] = nil
		e.queue = e.queue[:n-1]
		last.out, last.err = true, ErrTooManyWaiters
		last.poke()
	}
}

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

// ttlLocked is what is left of the holder's key by the last word of Redis; 0: not known; noTTL: it has no end.
func (e *entry) ttlLocked() time.Duration {
	switch e.heldTill {
	case 0:
		return 0
	case endless:
		return noTTL
	}
	return max(0, e.heldTill.Since(clock.Now()))
}

// heldLocked reports whether somebody who excludes a kind has the lock, one of us or somebody else, by what is known.
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

// A key that never expires.
const (
	noTTL                = -time.Millisecond // as Redis tells it
	endless clock.Moment = math.MaxInt64
)

// shortPause is the least that a waiter sleeps between two questions: a key that is about to vanish, or has just
// vanished, has no time left to sleep for.
const shortPause = 5 * time.Millisecond

// pause is how long to sleep after a refusal, if nothing else happens.
func (c *Client) pause(ttl time.Duration) time.Duration {
	switch {
	case ttl == noTTL:
		return c.pollPause()
	case ttl <= 0:
		return shortPause
	}
	return min(ttl, c.pollPause()-time.Millisecond) + time.Millisecond // ttl may be the longest there is
}

// pollPause is PollInterval less a random part, so that waiters of many processes do not ask together.
func (c *Client) pollPause() time.Duration {
	return c.opts.PollInterval - rand.N(c.opts.PollInterval/5+1)
}
