package core

import (
	"context"
	"math"
	"math/rand/v2"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/reqlock/reqlock/core/internal/backoff"
	"github.com/reqlock/reqlock/core/internal/clock"
	"github.com/reqlock/reqlock/core/internal/hub"
	"github.com/reqlock/reqlock/core/internal/kinds"
	"github.com/reqlock/reqlock/core/internal/lua"
	"github.com/reqlock/reqlock/core/internal/redisop"
	"github.com/reqlock/reqlock/core/internal/schedule"
	"github.com/reqlock/reqlock/core/internal/wire"
	"github.com/reqlock/reqlock/internal/ctxvalue"
	"github.com/reqlock/reqlock/internal/loglimit"
	"github.com/reqlock/reqlock/internal/redisclient"
)

// An engine holds what all locks of a client share: the way to Redis, pub/sub, alarms and
// clean-ups. It knows no particular lock.
type engine struct {
	opts    Options
	id      string // the first part of every wire owner
	made    clock.Moment
	at      func(time.Time) clock.Instant
	redis   redisclient.Client
	slot    func(key string) int
	publish *publishProbe
	ops     *redisop.Runner
	hub     *hub.Hub
	alarms  *schedule.Schedule[alarm]
	cleaner *cleaner
	inbox   *inbox
	room    *waitingRoom
	pauses  pauses

	logs loglimit.Limit // bounds lines that a fault repeats for each lock
	// ignoredTokens bounds lines about tokens of delegations.
	ignoredTokens loglimit.Limit
	lostLines     loglimit.Limit // bounds lines about losses, which are rarer and each worth a look
	background    group
	counters      counters
	losses        losses
	refusals      refusalRecord
	checkup       checkup
	fenced        atomic.Bool    // it has been used for fenced locks
	selfWaits     loglimit.Limit // bounds the lines of warnOfSelf

	state   atomic.Int32
	gone    chan struct{} // signals Close that a shard has no holds left; buffered for one
	closing chan struct{} // closed when Close begins
	closed  chan struct{} // closed when Close has ended everything but watchClock
}

// The states of a client.
const (
	open     int32 = iota
	draining       // Close waits: holders may re-enter their locks, other callers are refused
	closed
)

// An alarm rings at the time set in engine.alarms, on the goroutine of the schedule. ring must not
// block.
type alarm interface{ ring() }

// inCluster reports whether the locks are in a cluster, and not on a single server.
func (eng *engine) inCluster() bool { return eng.redis.Cluster != nil }

// clock returns the current time of both clocks.
func (eng *engine) clock() clock.Instant { return eng.at(time.Now()) }

// beat returns the time between two renewals of a hold.
func (eng *engine) beat() time.Duration { return eng.opts.WatchdogTimeout / 3 }

// twoBeats returns the longest time until the next renewal of a lease has ended: a beat until it is
// sent, and a beat for its reply.
func (eng *engine) twoBeats() time.Duration { return 2 * eng.beat() }

// settings returns what the scripts of all kinds are told.
func (eng *engine) settings() kinds.Settings {
	return kinds.Settings{
		Publish:         eng.publishMode().publishCommands(),
		Cluster:         eng.inCluster(),
		FairBudget:      eng.opts.FairWaitTimeout,
		FairGrace:       eng.pauses.absent,
		FairAbsentPause: absentPause,
		CountsListeners: eng.countsListeners(),
		Age:             clock.Now().Since(eng.made),
	}
}

// leaseTime returns a lease as it is sent to Redis, in whole milliseconds. A d of 0 is the
// watchdog's lease.
func (eng *engine) leaseTime(d time.Duration) time.Duration {
	if d == 0 {
		d = eng.opts.WatchdogTimeout
	}
	return d.Truncate(time.Millisecond)
}

// holds numbers the wire owners of this process.
var holds atomic.Uint64

// newOwner returns the number of a new wire owner.
func newOwner() uint64 { return holds.Add(1) }

// wireOwner returns the wire owner of a number.
func (eng *engine) wireOwner(owner uint64) string { return wire.Owner(eng.id, owner) }

// run sends a call and returns its reply, or the error of ctx if that ends first.
func (eng *engine) run(ctx context.Context, call lua.Call) (any, error) {
	if ctx.Err() != nil {
		return nil, ended(ctx)
	}
	return eng.runOp(ctx, eng.ops.Op(call, eng.opts.CommandTimeout))
}

// runOp is run for an operation whose outcome the caller wants to know.
func (eng *engine) runOp(ctx context.Context, x *redisop.Op) (any, error) {
	reply, err := x.Run(redisop.Until{Context: ctx})
	if err == redisop.ErrLeft {
		return nil, ended(ctx)
	}
	return reply, err
}

// sendRelease sends a release and reads its reply. While a slot migrates, a cluster refuses calls
// whose keys are not all on one node, and some keys of a release may not exist at all. sendRelease
// then frees the lock's hash alone, so that others can acquire the lock, and reports leftovers: the
// caller must arrange to send the whole call again.
func (eng *engine) sendRelease(x *redisop.Op) (freed, leftovers bool, receivers int, err error) {
	alone, divisible := x.Call().HashAlone()
	divisible = divisible && eng.inCluster()
	if divisible {
		x.Hasty()
	}
	reply, err := x.Run(redisop.Until{})
	if divisible && x.Busy() {
		x.Replace(alone)
		leftovers = true
		reply, err = x.Run(redisop.Until{})
	}
	if err == nil {
		freed, receivers, err = x.Call().ReadRelease(reply)
	}
	return freed, leftovers, receivers, err
}

// noTTL is the TTL of a key that never expires, as Redis reports it.
const noTTL = -time.Millisecond

// noKey is the TTL of a key that does not exist, as Redis reports it.
const noKey = -2 * time.Millisecond

// shortPause is the shortest sleep between two attempts of a waiter, for a key that is about to
// expire or just has.
const shortPause = 5 * time.Millisecond

// untilExpiry returns how long a waiter sleeps after a refusal if nothing wakes it: until the key of
// the holder expires, because nothing announces that, and for most at the longest.
func untilExpiry(ttl, most time.Duration) time.Duration {
	switch {
	case ttl == noTTL:
		return most
	case ttl <= 0:
		return shortPause
	}
	return min(ttl, most-time.Millisecond) + time.Millisecond // ttl+1ms could overflow
}

// pollPause returns PollInterval minus a random part, so that waiters of many processes do not poll
// together.
func (eng *engine) pollPause() time.Duration {
	least := eng.leastPoll()
	return least + rand.N(eng.opts.PollInterval-least+1)
}

// leastPoll returns the shortest pollPause.
func (eng *engine) leastPoll() time.Duration { return eng.opts.PollInterval - eng.opts.PollInterval/5 }

// reliance is how many PollIntervals a waiter leaves between two polls while it hears its channel.
const reliance = 6

// reliedPause returns how long a waiter that hears its channel relies on it before it polls. Waiters
// that a message or a new subscription woke together begin at random places of a round, so that they
// do not poll together. From then on each polls once in a round or a little more.
func (eng *engine) reliedPause(polled bool) time.Duration {
	interval := min(eng.opts.PollInterval, math.MaxInt64/(reliance+1))
	round := reliance * interval
	if polled {
		return round + rand.N(round/10)
	}
	return interval + rand.N(round)
}

// leastEvery is the shortest time between two attempts that a short WaitTime causes.
const leastEvery = 50 * time.Millisecond

// pollEvery returns how long the attempts of a queue may be apart while a caller with a WaitTime is
// in it: half of WaitTime or a little more, so that one attempt follows in the middle and one at the
// end, however long PollInterval is. 0: PollInterval alone counts.
func pollEvery(waitTime time.Duration) time.Duration {
	if waitTime <= 0 {
		return 0
	}
	return max(waitTime/2+rand.N(waitTime/8+1), leastEvery)
}

// outagePause returns how long a waiter with WaitForever sleeps after a number of failed attempts
// in a row. It retries earlier when the pub/sub connection is back.
func (eng *engine) outagePause(failures uint8) time.Duration {
	return backoff.Scattered(backoff.Doubled(20*time.Millisecond, min(eng.opts.PollInterval, 5*time.Second), int(failures)))
}

// logFault logs a fault that concerns a number of locks, once a minute for each cause. locks counts
// those since the last such line; lock and owner are one of them.
func (eng *engine) logFault(message string, name, owner string, locks int, err error) {
	line := []any{"lock", eng.logged(name), "owner", owner, "error", err}
	cause := "" // the text of an error may have names in it
	if f := faultOf(err); f != nil {
		cause = f.Cause
		line = append(line, "cause", f.Cause, "change", f.ChangeAfter(err))
	}
	if n, ok := eng.logs.Count(message+cause, locks); ok {
		eng.opts.Logger.Warn(message, append(line, "locks", n)...)
	}
}

// label returns the name of one of the client's locks for errors and logs.
func (eng *engine) label(name string) label { return label{name, eng.opts.LogNames} }

// logged returns a name as it may be logged.
func (eng *engine) logged(name string) string { return eng.label(name).String() }

// warnOfSelf logs that a caller is kept out by its own request, and reports whether it did: it
// does once a minute at most for callers that wait, and once for those that do not.
func (eng *engine) warnOfSelf(name string, by holder, waits bool) bool {
	switch {
	case !by.self() || !eng.selfWaits.Allow(strconv.FormatBool(waits)):
		return false
	case by == sameRequestRed:
		eng.opts.Logger.Warn("reqlock: a RedLock that a caller asks for is held by this same request, and cannot be entered again",
			"lock", eng.logged(name), "waits", waits)
	case by == selfHasPermit:
		eng.opts.Logger.Warn("reqlock: all permits that a caller asks for are taken, one by this same request; each Acquire takes another",
			"lock", eng.logged(name), "waits", waits)
	default:
		eng.opts.Logger.Warn("reqlock: a lock that a caller asks for is held by this same request; pass lease.Context() to enter it again",
			"lock", eng.logged(name), "waits", waits)
	}
	return true
}

// annotate returns the annotation of a caller's context.
func (eng *engine) annotate(ctx context.Context) (a Annotation) {
	if eng.opts.Annotate != nil {
		a = eng.opts.Annotate(ctx)
	}
	if source, ok := ctxvalue.Of(ctx, ctxvalue.RouteKey{}).(ctxvalue.Router); ok && a.Route == "" {
		a.Route = source.Route()
	}
	return a
}
