package core

import (
	"context"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/reqlock/reqlock/core/internal/clock"
	"github.com/reqlock/reqlock/core/internal/hub"
	"github.com/reqlock/reqlock/core/internal/lua"
	"github.com/reqlock/reqlock/core/internal/redisop"
	"github.com/reqlock/reqlock/core/internal/schedule"
	"github.com/reqlock/reqlock/core/internal/wire"
)

// An engine is what all locks of a client share: the ways to Redis and back, alarms and clean-ups. It knows no particular lock.
type engine struct {
	opts    Options
	id      string // the first part of every wire owner
	at      func(time.Time) clock.Instant
	cluster *redis.ClusterClient // nil: there is one server
	slot    func(key string) int
	publish *publishProbe
	ops     *redisop.Runner
	hub     *hub.Hub
	alarms  *schedule.Schedule[alarm]
	cleaner *cleaner

	background group

	state   atomic.Int32
	gone    chan struct{} // holds one hint for Close, that a shard has no hold any more
	closing chan struct{} // closed when Close begins
	closed  chan struct{} // closed when it is done

	firstChance time.Duration // that other processes have of a lock after a streak of hand-overs here
	linger      time.Duration // of a channel; see entry.go
	absentGrace time.Duration // see kind.go
}

// The states of a client.
const (
	open     int32 = iota
	draining       // holders may go on and enter again, other callers get in no more
	closed
)

// An alarm rings at a time set in engine.alarms, on the goroutine of those. What may take long it does elsewhere.
type alarm interface{ ring() }

// clock reads both clocks.
func (e *engine) clock() clock.Instant { return e.at(time.Now()) }

// beat is the time between two renewals of a hold.
func (e *engine) beat() time.Duration { return e.opts.WatchdogTimeout / 3 }

// twoBeats is the longest time until the watchdog has renewed a lease, or has had to give that up.
func (e *engine) twoBeats() time.Duration { return 2 * e.beat() }

// leaseTime is a lease as Redis is told. 0 is the watchdog's.
func (e *engine) leaseTime(d time.Duration) time.Duration {
	if d == 0 {
		d = e.opts.WatchdogTimeout
	}
	return d.Truncate(time.Millisecond)
}

// holds numbers the wire owners of this process.
var holds atomic.Uint64

func (e *engine) newField() string { return wire.Owner(e.id, holds.Add(1)) }

// ask sends one call for a caller that may leave.
func (e *engine) ask(ctx context.Context, call lua.Call) (any, error) {
	if ctx.Err() != nil {
		return nil, ended(ctx)
	}
	x := e.ops.Op(call, e.opts.CommandTimeout)
	answer, err := x.Run(ctx.Done(), nil)
	if err == redisop.ErrLeft {
		return nil, ended(ctx)
	}
	return answer, err
}

// sendRelease sends a release and reads its reply. In a slot on its way to another node, a release whose keys are not all on one
// side is refused for as long as that takes, and some are never there. Then the hash goes alone, so that others can have the lock,
// and there is a rest, for which the call has to be sent once more.
func (e *engine) sendRelease(x *redisop.Op) (freed, rest bool, listeners int, err error) {
	alone, divisible := x.Call().WithoutRest()
	divisible = divisible && e.cluster != nil
	if divisible {
		x.Hasty()
	}
	answer, err := x.Run(nil, nil)
	if divisible && x.Busy() {
		x.Replace(alone)
		rest = true
		answer, err = x.Run(nil, nil)
	}
	if err == nil {
		freed, listeners, err = x.Call().ReadRelease(answer)
	}
	return freed, rest, listeners, err
}

// noTTL is the time to live of a key that never expires, as Redis tells it.
const noTTL = -time.Millisecond

// shortPause is the least that a waiter sleeps between two questions. A key that is about to expire, or just has, leaves no time
// to sleep for.
const shortPause = 5 * time.Millisecond

// pause is how long to sleep after a refusal, unless something happens first.
func (e *engine) pause(ttl time.Duration) time.Duration {
	switch {
	case ttl == noTTL:
		return e.pollPause()
	case ttl <= 0:
		return shortPause
	}
	return min(ttl, e.pollPause()-time.Millisecond) + time.Millisecond // ttl may be the longest there is
}

// pollPause is PollInterval less a random part, so that waiters of many processes do not ask together.
func (e *engine) pollPause() time.Duration {
	return e.opts.PollInterval - rand.N(e.opts.PollInterval/5+1)
}

// outagePause is how long a waiter without a time limit pauses after so many questions that Redis did not answer. When the pub/sub
// connection is back it asks at once.
func (e *engine) outagePause(failures uint8) time.Duration {
	pause := min(20*time.Millisecond<<min(failures, 8), e.opts.PollInterval)
	return pause - rand.N(pause/2+1)
}

// label is the name of one of the client's locks.
func (e *engine) label(name string) label { return label{name, e.opts.LogNames} }

// logged is a name as it may be logged.
func (e *engine) logged(name string) string { return e.label(name).String() }
