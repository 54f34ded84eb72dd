package core

import (
	"math"
	"time"

	"github.com/reqlock/reqlock/core/internal/clock"
	"github.com/reqlock/reqlock/core/internal/lua"
)

// A release hands the lock on to a waiter of this process, by one command in place of two and a message. Redis shows the true holder
// at any time. So that other processes get their turn, a streak of hand-overs ends after a while: the lock is freed, and the waiters
// here are no better off than any others.
//
// That alone would leave the next holder to chance. The message reaches every process within a few microseconds, and the same one may
// be first for seconds. So after a streak a process that knows of others leaves them the lock. It asks when it hears that they have
// freed it again, or after a moment. A process that knows of no others has Redis look, together with the hand-over that is one too
// many, whether others listen on the lock's channel. If none do, the hand-over takes place.

// A streak of hand-overs ends after so many, or so long.
const (
	streakMoves = 64
	streakTime  = 20 * time.Millisecond
)

const (
	// standBack bounds how long the waiters here leave the lock to others then.
	standBack = 2 * time.Millisecond
	// rivalChances is how often others may miss that time before they are forgotten.
	rivalChances = 8
	// probing is after how many streaks others get a chance whether they are known or not. A process that is always first would never
	// learn of them, nor of those that Redis does not count because they listen at a replica or not at all.
	probing = 64
)

// A round is how a lock goes round, here and elsewhere. It is part of an entry.
type round struct {
	epoch      uint32       // counts what may have freed the lock: messages, confirmed subscriptions, our own releases, losses
	votes      int32        // callers that ask past the queue
	moves      uint8        // within this process, since the lock was asked for or freed; 255: so many, or more
	streaks    uint8        // that have ended
	rivals     uint8        // chances that others have left; 0: nobody is known to want the lock
	echoes     uint8        // messages of our own that are to come
	freed      bool         // the lock, or it is about to be; none of us has been granted it since
	offered    bool         // the same, after a streak and without an answer yet
	resting    bool         // those at the front do not ask
	lingers    bool         // the channel is to be left soon; see unsubscribeTimer
	movesSince clock.Moment // the first move
	restTill   clock.Moment // 0: until Redis has answered
}

// tiredLocked says that the lock has been handed on in this process for long enough.
func (e *entry) tiredLocked() bool {
	return e.moves >= streakMoves || e.moves > 0 && clock.Now().Since(e.movesSince) >= streakTime
}

// movedLocked notes that the lock was handed on.
func (e *entry) movedLocked() {
	if e.moves == 0 {
		e.movesSince = clock.Now()
	}
	if e.moves < math.MaxUint8 {
		e.moves++
	}
}

// letGoLocked notes that a hold is about to be freed. The message of that may be here before the answer.
func (e *entry) freeingLocked() {
	if e.holds.len > 1 {
		return // the lock is not free by that
	}
	tired := e.tiredLocked()
	e.freed, e.moves = true, 0                                 // the next of us may have it before the answer is here
	if !tired || len(e.queue) == 0 || e.queue[0].kind.queued { // where Redis keeps the queue it says whose turn it is
		return
	}
	e.offered, e.resting, e.restTill, e.echoes = true, true, 0, 0
	if e.probesLocked() {
		e.rivals = max(e.rivals, 1)
	}
	e.streaks++
	if e.rivals > 0 {
		e.echoes = uint8(len(e.client().publishMode().publishCommands()))
	}
}

// probesLocked says that others are to have a chance after this streak, known or not.
func (e *entry) probesLocked() bool { return e.streaks%probing == probing-1 }

// unlessLocked is what ends the streak of a lock that has been handed on for long enough; nil: it ends.
func (e *entry) otherListenersLocked(k *kind) *lua.Others {
	c := e.client()
	count := c.countsBy()
	if count == "" || e.rivals > 0 || e.probesLocked() {
		return nil
	}
	others := &lua.Others{Count: count, Channel: k.channel(e.key, "")}
	if e.channel != nil && c.hub.Confirmed(e.channel) {
		others.Own = 1
	}
	return others
}

// backLocked notes that a hold has gone, and reports whether others are to have the first chance of its lock.
func (e *entry) freedLocked() bool {
	offered := e.offered && len(e.queue) > 0
	e.moves, e.offered, e.resting = 0, false, e.resting && offered
	if e.resting { // or the message has ended that
		e.restTill = clock.In(e.client().standBack)
		e.pokeLocked()
	}
	return offered
}

// restsLocked reports whether those at the front leave the lock to others.
func (e *entry) restsLocked() bool {
	if e.resting && e.restTill > 0 && e.restTill <= clock.Now() {
		e.resting = false
		e.rivals -= min(e.rivals, 1) // for nobody came
		e.epoch++
	}
	return e.resting
}

// restLeftLocked is how long they do, unless they hear something.
func (e *entry) restLeftLocked() time.Duration {
	if e.restTill == 0 {
		return noEnd
	}
	return e.restTill.Since(clock.Now())
}

// heedLocked reports whether a message is a reason to ask. What we have said ourselves is none while others have the first chance,
// and what somebody else says then tells that they have taken it.
func (e *entry) heardLocked() bool {
	if e.resting && e.echoes > 0 {
		e.echoes--
		return false
	}
	if e.resting && e.rivals > 0 {
		e.rivals = rivalChances
	}
	e.resting = false
	return true
}

// gotLocked notes that one of us has been granted the lock.
func (e *entry) grantedLocked() { e.freed, e.resting = false, false }
