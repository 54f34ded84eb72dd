package core

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// wantCause checks that the log, the Observer, Losses and the lease say how a lock was lost.
func wantCause(t *testing.T, c *Client, lease *Lease, out *lockedBuffer, seen <-chan Event, parts ...string) {
	t.Helper()
	mustReceive(t, "the end of the lease", lease.Done())
	wantErr(t, "Err", lease.Err(), ErrLockLost)
	event := mustReceive(t, "the event", seen)
	wantErr(t, "the event's error", event.Err, ErrLockLost)
	eventually(t, "the line", func() bool { return strings.Contains(out.String(), lostLine) })
	line := wantLines(t, out, lostLine, 1)
	for what, text := range map[string]string{
		"Err": lease.Err().Error(), "the event": event.Err.Error(), "Losses": c.Losses()[0].Cause, "the log": line,
	} {
		for _, part := range parts {
			if !strings.Contains(text, part) {
				t.Errorf("%s lacks %q: %s", what, part, text)
			}
		}
	}
}

const lostLine = "lock lost while it was held"

// observeLoss returns the option for an Observer of losses, and the events.
func observeLoss() (func(*Options), <-chan Event) {
	seen := make(chan Event, 1)
	return func(o *Options) { o.Observer.Lost = func(_ context.Context, e Event) { seen <- e } }, seen
}

// A holder learns who freed its lock by force, and why, in its own process and in another.
func TestCause_Forced(t *testing.T) {
	t.Parallel()
	reasoned := WithReason(bg, "ann@ops-1", "ticket 42")
	for name, test := range map[string]struct {
		same bool
		ctx  context.Context
		want []string
	}{
		"another client":             {false, reasoned, []string{"freed by force by ann@ops-1: ticket 42"}},
		"the same client":            {true, reasoned, []string{"freed by force by ann@ops-1: ticket 42"}},
		"another client, no reason":  {false, bg, []string{"freed by force"}},
		"the same client, no reason": {true, bg, []string{"freed by force"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fx := newRedisWithInboxes(t)
			var out lockedBuffer
			observe, seen := observeLoss()
			c := fx.newLocks(t, watchdogTimeout(time.Hour), logTo(&out), observe)
			other := c
			if !test.same {
				other = fx.newLocks(t)
			}
			lease := mustAcquire(t, bg, c.Lock("a"), AcquireOptions{})
			eventuallyListening(t, fx.rdb, c)
			eventuallyAnswered(t, c)
			if freed, err := other.Lock("a").ForceUnlock(test.ctx); !freed || err != nil {
				t.Fatalf("ForceUnlock: %t, %v", freed, err)
			}
			wantCause(t, c, lease, &out, seen, test.want...)
		})
	}
}

// A message about another lock, or one that is no message of this kind, says nothing of a loss.
func TestCause_MessagesOfOthers(t *testing.T) {
	t.Parallel()
	var told forcings
	now := time.Now()
	for _, message := range []string{"a", forcingMark, forcingMark + "{", "{}"} {
		if f, ok := readForcing(message); ok {
			t.Errorf("%q: %+v", message, f)
		}
	}
	f, ok := readForcing(forcingMark + `{"key":"a","by":"` + strings.Repeat("x", 2*longestText) + `"}`)
	if !ok || len(f.By) != longestText {
		t.Errorf("%t, %d bytes", ok, len(f.By))
	}
	for range 2 * mostForcings {
		told.add(f, now)
	}
	if len(told.list) > mostForcings {
		t.Errorf("%d are kept", len(told.list))
	}
	if told.cause("b", now, errGone) != errGone || told.cause("a", now.Add(time.Minute), errGone) != errGone || told.cause("a", now, errGone) == errGone {
		t.Error("the cause is that of another lock, of long ago, or of none")
	}
}

// A lease that is over, a hold that Redis does not have, and a key of another program each say so.
func TestCause_Others(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		opts AcquireOptions
		lose func(fx *redisFixture)
		want string
	}{
		"the LeaseTime is over": {AcquireOptions{LeaseTime: 50 * time.Millisecond}, func(*redisFixture) {}, "its LeaseTime was over"},
		"the key is gone":       {AcquireOptions{}, func(fx *redisFixture) { fx.rdb.Del(bg, "a") }, "Redis does not have it any more"},
		"another type": {AcquireOptions{}, func(fx *redisFixture) { fx.rdb.Set(bg, "a", "x", 0) },
			"its key in Redis has another type now"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fx := newRedis(t)
			var out lockedBuffer
			observe, seen := observeLoss()
			annotate := func(o *Options) {
				o.Annotate = func(context.Context) Annotation { return Annotation{Route: "POST /orders", RequestID: "req-7"} }
			}
			c := fx.newLocks(t, watchdogTimeout(3*time.Second), logTo(&out), observe, annotate)
			lease := mustAcquire(t, bg, c.Lock("a"), test.opts)
			test.lose(fx)
			wantCause(t, c, lease, &out, seen, test.want)
			if line := out.String(); !strings.Contains(line, `route="POST /orders" request_id=req-7`) || strings.Contains(line, "trace_id") {
				t.Errorf("the line lacks the request: %s", line)
			}
			fx.rdb.Del(bg, "a")
		})
	}
}

// A renewal that Redis refuses is logged with the command and the permission before the lock is lost,
// and is the cause when it is.
func TestCause_RenewalRefused(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	allowLimited(t, fx)
	var out lockedBuffer
	observe, seen := observeLoss()
	c := fx.newLocksOn(t, fx.srv.ClientWith(t, func(o *redis.Options) { o.Username, o.Password = "limited", "secret" }),
		logTo(&out), watchdogTimeout(3*time.Second), observe)
	lease := mustAcquire(t, bg, c.Lock("a"), AcquireOptions{})
	redisCommand("ACL", "SETUSER", "limited", "-evalsha")(t, fx)
	eventually(t, "the line", func() bool { return strings.Contains(out.String(), "renewal failed") })
	line := wantLines(t, &out, "renewal failed", 1)
	for _, part := range []string{"'evalsha'", "ACL SETUSER <user> +evalsha", "lacks a permission"} {
		if !strings.Contains(line, part) {
			t.Errorf("the line lacks %q: %s", part, line)
		}
	}
	if strings.Contains(out.String(), lostLine) {
		t.Error("the lock was lost before")
	}
	wantCause(t, c, lease, &out, seen, "it expired before a renewal succeeded; the last one failed", "'evalsha'", "+evalsha")
	allowLimited(t, fx)
}
