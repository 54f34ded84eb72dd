package core

import (
	"context"
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/reqlock/reqlock/core/internal/wire"
)

// TestWire tests what Redisson and other programs see of a lock, on both servers.
func TestWire(t *testing.T) {
	t.Parallel()
	for what, test := range map[string]func(t *testing.T, fx *redisFixture){
		"names":                wireNames,
		"keys":                 wireKeys,
		"messages":             wireMessages,
		"Redisson excluded":    wireExclusion,
		"Redisson wakes":       wireWakeUp,
		"forced by Redisson":   wireForced,
		"Redisson not renewed": wireWatchdog,
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			eachServer(t, test)
		})
	}
}

// The key is the name; the channel has braces around it unless the name has some.
func wireNames(t *testing.T, fx *redisFixture) {
	c := fx.newLocks(t)
	long := strings.Repeat("x", maxNameLen)
	for name, channel := range map[string]string{
		"order:42":       "redisson_lock__channel:{order:42}",
		"{order}:42":     "redisson_lock__channel:{order}:42",
		"order:{42}":     "redisson_lock__channel:order:{42}",
		"a{b}c":          "redisson_lock__channel:a{b}c",
		"a{b":            "redisson_lock__channel:a{b",
		"{":              "redisson_lock__channel:{",
		"{}":             "redisson_lock__channel:{}",
		"{}a":            "redisson_lock__channel:{}a",
		"}":              "redisson_lock__channel:{}}",
		"a}b":            "redisson_lock__channel:{a}b}",
		" ":              "redisson_lock__channel:{ }",
		"\n":             "redisson_lock__channel:{\n}",
		"\x00":           "redisson_lock__channel:{\x00}",
		"\xff\xfe":       "redisson_lock__channel:{\xff\xfe}",
		"a\x00\r\nb\xff": "redisson_lock__channel:{a\x00\r\nb\xff}",
		"Schlüssel":      "redisson_lock__channel:{Schlüssel}",
		"ключ от дома":   "redisson_lock__channel:{ключ от дома}",
		long:             "redisson_lock__channel:{" + long + "}",
	} {
		l := fx.subscribe(t, channel)
		lease := mustAcquire(t, bg, c.Lock(name), AcquireOptions{})
		if lease.Name() != name || c.Lock(name).Name() != name {
			t.Errorf("the lock %.20q is called %.20q", name, lease.Name())
		}
		fx.wantFields(t, name, map[string]string{holdOf(lease).wire: "1"})
		wantHeldByOther(t, c, name)
		mustRelease(t, lease)
		if got := fmt.Sprint(l.messages(t)); got != "[0]" {
			t.Errorf("%.20q: on %.50q was published %s, want [0]", name, channel, got)
		}
		l.close(t)
	}
}

// A lock is a hash of one field, <client>:<number>, with the hold count in ASCII and a time to live
// in milliseconds. There is no other key. A lock without a LeaseTime has Redisson's default.
func wireKeys(t *testing.T, fx *redisFixture) {
	c := fx.newLocks(t)
	owner := regexp.MustCompile(`^[A-Za-z0-9_-]+\.[0-9]+\.[a-z2-7]{8}:[1-9][0-9]*$`)
	var leases []*Lease
	want := func() {
		t.Helper()
		if keys := fx.rdb.Keys(bg, "*").Val(); len(keys) != 1 || keys[0] != "a" {
			t.Errorf("keys %q, want only the lock's", keys)
		}
		if kind := fx.rdb.Type(bg, "a").Val(); kind != "hash" {
			t.Errorf("a %s, want a hash", kind)
		}
		fields := fx.hash(t, "a")
		if len(fields) != 1 {
			t.Errorf("fields %v, want one", fields)
		}
		for field, count := range fields {
			if !owner.MatchString(field) {
				t.Errorf("owner %q, want <host>.<pid>.<random>:<number>", field)
			}
			if _, err := strconv.ParseInt(field[strings.LastIndex(field, ":")+1:], 10, 64); err != nil {
				t.Errorf("the number of owner %q is no Java long: %v", field, err)
			}
			if count != strconv.Itoa(len(leases)) {
				t.Errorf("count %q with %d leases", count, len(leases))
			}
		}
		fx.wantPTTL(t, "a", 54321*time.Millisecond)
	}
	ctx := WithOwner(bg)
	for range 4 {
		leases = append(leases, mustAcquire(t, ctx, c.Lock("a"), AcquireOptions{LeaseTime: 54321 * time.Millisecond}))
		want()
	}
	for len(leases) > 1 {
		mustRelease(t, leases[0])
		leases = leases[1:]
		want()
	}
	mustRelease(t, leases[0])
	if keys := fx.rdb.Keys(bg, "*").Val(); len(keys) != 0 {
		t.Errorf("keys %q, want none", keys)
	}

	watched := mustAcquire(t, bg, c.Lock("a"), AcquireOptions{})
	fx.wantPTTL(t, "a", jvmLease)
	mustRelease(t, watched)
}

// A release to zero and a forced one publish 0, once. Nothing else publishes anything.
func wireMessages(t *testing.T, fx *redisFixture) {
	c, j := fx.newLocks(t), newJVM(fx)
	l := fx.subscribe(t, "redisson_lock__channel:{a}")
	want := func(what, want string) {
		t.Helper()
		if got := fmt.Sprint(l.messages(t)); got != want {
			t.Errorf("%s: published %s, want %s", what, got, want)
		}
	}
	lease := mustAcquire(t, bg, c.Lock("a"), AcquireOptions{LeaseTime: time.Minute})
	inner := mustAcquire(t, lease.Context(), c.Lock("a"), AcquireOptions{})
	want("acquire and re-entry", "[]")
	wantHeldByOther(t, c, "a")
	want("a refusal", "[]")
	mustRelease(t, inner)
	want("partial release", "[]")
	if err := lease.Extend(bg, time.Hour); err != nil {
		t.Fatal(err)
	}
	want("an extension", "[]")
	mustRelease(t, lease)
	want("release", "[0]")
	wantErr(t, "another release", lease.Release(bg), ErrReleased)
	want("a release too many", "[]")
	if freed, err := c.Lock("a").ForceUnlock(bg); freed || err != nil {
		t.Errorf("ForceUnlock: %v, %v", freed, err)
	}
	want("ForceUnlock of a free lock", "[]")
	j.mustLock(t, "a")
	j.mustLock(t, "a")
	mustForce(t, c.Lock("a"))
	want("ForceUnlock of Redisson's lock", "[0]")
	fx.wantFields(t, "a", nil) // with all its levels
	l.close(t)
}

// Each keeps the other out, and learns for how long.
func wireExclusion(t *testing.T, fx *redisFixture) {
	c, j := fx.newLocks(t), newJVM(fx)

	lease := mustAcquire(t, bg, c.Lock("a"), AcquireOptions{LeaseTime: time.Minute})
	if ok, ttl := j.tryLock(t, "a"); ok || ttl > time.Minute || ttl < time.Minute-patience {
		t.Errorf("Redisson against our lock: %v, %v", ok, ttl)
	}
	fx.wantCount(t, lease, 1)
	mustRelease(t, lease)

	j.mustLock(t, "a")
	lock, ctx := c.Lock("a"), WithOwner(bg)
	_, err := lock.Acquire(ctx, AcquireOptions{})
	var held *NotAcquiredError
	if !errors.As(err, &held) || held.TTL > jvmLease || held.TTL < jvmLease-patience {
		t.Errorf("we against Redisson's lock: %v", err)
	}
	if locked, err := lock.IsLocked(ctx); !locked || err != nil {
		t.Errorf("IsLocked: %v, %v", locked, err)
	}
	if held, err := lock.IsHeld(ctx); held || err != nil {
		t.Errorf("IsHeld: %v, %v", held, err)
	}
	wantHoldCount(t, ctx, lock, 0)
	if ttl, err := lock.RemainingTTL(ctx); ttl > jvmLease || ttl < jvmLease-patience || err != nil {
		t.Errorf("RemainingTTL: %v, %v", ttl, err)
	}
	fx.wantFields(t, "a", map[string]string{j.owner: "1"})
	j.mustLock(t, "a")
	fx.wantFields(t, "a", map[string]string{j.owner: "2"})
	j.mustUnlock(t, "a", 0)
	wantHeldByOther(t, c, "a")
	j.mustUnlock(t, "a", 1)
	mustRelease(t, mustAcquire(t, bg, c.Lock("a"), AcquireOptions{}))
}

// A release of the one wakes a waiter of the other; no poll does.
func wireWakeUp(t *testing.T, fx *redisFixture) {
	c, j := fx.newLocks(t, pollInterval(never)), newJVM(fx)
	j.mustLock(t, "a")
	fx.expire(t, "a", time.Hour)
	result := acquireAsync(bg, c.Lock("a"), forever)
	fx.eventuallySubscribed(t, "a")
	j.mustUnlock(t, "a", 1)
	lease := mustReceiveLease(t, "our waiter", result)

	// Redisson's way: refused, subscribed, refused again, asleep until a message.
	l := fx.subscribe(t, "redisson_lock__channel:{a}")
	if ok, _ := j.tryLock(t, "a"); ok {
		t.Fatal("two holders")
	}
	mustRelease(t, lease)
	m, err := l.pubsub.ReceiveMessage(bg)
	if err != nil || m.Payload != "0" {
		t.Fatalf("Redisson is sent %v, %v; want 0", m, err)
	}
	j.mustLock(t, "a")
	j.mustUnlock(t, "a", 1)
	l.close(t)
}

// We learn with the next renewal that Redisson took our lock away, and leave its next lock alone.
func wireForced(t *testing.T, fx *redisFixture) {
	c, j := fx.newLocks(t, watchdogTimeout(6*time.Second)), newJVM(fx)
	lease := mustAcquire(t, bg, c.Lock("a"), AcquireOptions{})
	j.mustForce(t, "a")
	j.mustLock(t, "a")
	wantLost(t, lease)
	wantErr(t, "Release", lease.Release(bg), ErrLockLost)
	eventually(t, "the client to be idle", func() bool { return c.Stats() == Stats{} })
	fx.wantFields(t, "a", map[string]string{j.owner: "1"})
	j.mustUnlock(t, "a", 1)
}

// The watchdog renews our locks, and leaves Redisson's alone.
func wireWatchdog(t *testing.T, fx *redisFixture) {
	c, j := fx.newLocks(t, watchdogTimeout(3*time.Second)), newJVM(fx)
	j.mustLock(t, "theirs")
	ours := mustAcquire(t, bg, c.Lock("ours"), AcquireOptions{})
	for range 3 {
		mustBeRenewed(t, ours)
	}
	fx.wantCount(t, ours, 1)
	if ttl := fx.pttl(t, "theirs"); ttl > jvmLease-time.Second {
		t.Errorf("Redisson's lock was renewed, it has %v to live", ttl)
	}
	mustRelease(t, ours)
	j.mustUnlock(t, "theirs", 1)
}

// On a single server Redisson listens to plain channels only.
func TestWire_PlainPublishByDefault(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	c, _ := fx.newProxiedLocks(t)
	lease := mustAcquire(t, bg, c.Lock("a"), AcquireOptions{})
	if err := fx.rdb.ConfigResetStat(bg).Err(); err != nil {
		t.Fatal(err)
	}
	mustRelease(t, lease)
	if calls := fx.commandCalls(t); calls["publish"] != 1 || calls["spublish"] != 0 {
		t.Errorf("%d PUBLISH, %d SPUBLISH; want 1 and 0", calls["publish"], calls["spublish"])
	}
}

// A lease with a LeaseTime is not renewed. After forceUnlock on a JVM, which tells no holder, it
// learns that it was taken away when it is used, or at its end, as ForceUnlock's doc says.
func TestForceUnlock_FixedLeaseElsewhere(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	c := fx.newLocks(t)
	for what, learns := range map[string]func(*Lease) error{
		"Extend":  func(l *Lease) error { return l.Extend(bg, time.Hour) },
		"Release": func(l *Lease) error { return l.Release(bg) },
		"re-entry": func(l *Lease) error {
			_, err := c.Lock("a").Acquire(l.Context(), AcquireOptions{})
			return err
		},
		"its end": func(l *Lease) error {
			mustReceive(t, "its time to be over", l.Done())
			return l.Err()
		},
	} {
		lease := mustAcquire(t, bg, c.Lock("a"), AcquireOptions{LeaseTime: 3 * time.Second})
		newJVM(fx).mustForce(t, "a")
		wantHeld(t, lease)
		wantErr(t, what, learns(lease), ErrLockLost)
	}
}

// A message wakes one waiter of each client, whatever it says.
func TestWire_OneWaiterOfEachClient(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	c, proxy := fx.newProxiedLocks(t, pollInterval(never))
	j := newJVM(fx)
	j.mustLock(t, "a")
	fx.expire(t, "a", time.Hour)
	tries := countCommands(proxy, runsScript(acquireScript))
	ctx, cancel := context.WithCancel(bg)
	defer cancel()
	var waiting []<-chan acquireResult
	for range 5 {
		waiting = append(waiting, acquireAsync(ctx, c.Lock("a"), forever))
	}
	channel := "redisson_lock__channel:{a}"
	eventually(t, "all callers to wait", func() bool { return c.Stats().Waiting == 5 })
	eventuallyAsleep(t, c, "a") // it has asked again after the subscription
	for i, message := range []string{"0", "1", "gibberish"} {
		if err := fx.rdb.Publish(bg, channel, message).Err(); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the first to ask again", func() bool { return tries() >= 3+i })
		eventuallyAsleep(t, c, "a")
	}
	if n := tries(); n != 5 {
		t.Errorf("%d attempts, want 5: the two at first, and one a message", n)
	}
	cancel()
	for _, result := range waiting {
		mustReceive(t, "a waiter to leave", result)
	}
	j.mustUnlock(t, "a", 1)
}

// Every key and channel of a lock follows the mapper, and the hash tag of the name. Redisson:
// testNameMapper, testName.
func TestWire_NameMapper(t *testing.T) {
	t.Parallel()
	eachLockKind(t, func(t *testing.T, kind lockKind) {
		for name, key := range map[string]string{"a": "shop:a", "{tag}:a:b": "shop:{tag}:a:b"} {
			fx := newRedis(t)
			mapped := func(o *Options) { o.NameMapper = func(name string) string { return "shop:" + name } }
			c, other := fx.newLocks(t, mapped), fx.newLocks(t, mapped)
			lease := mustAcquire(t, bg, kind.lock(c, name), AcquireOptions{})
			waiter := acquireAsync(bg, kind.rival(other, name), forever)
			eventuallyWaiting(t, other)
			var channels []string
			eventually(t, "the waiter to subscribe", func() bool {
				channels = fx.rdb.PubSubChannels(bg, "redisson*").Val()
				return len(channels) > 0
			})
			keys := fx.rdb.Keys(bg, "*").Val()
			if !slices.Contains(keys, key) {
				t.Errorf("keys %q", keys)
			}
			for _, got := range slices.Concat(keys, channels) {
				if !strings.Contains(got, key) || wire.Slot(got) != wire.Slot(key) || strings.Count(got, "{") > 1 {
					t.Errorf("%q is not beside %q", got, key)
				}
			}
			mustRelease(t, lease)
			mustRelease(t, mustReceiveLease(t, "the waiter to be told", waiter))
		}
	})
}

// Clients whose publish modes share a namespace wake each other by message; no poll does.
func TestWire_PublishModes(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		holder, waiter PublishMode
		plain, sharded bool // where the waiter listens
	}{
		"auto, auto":       {PublishAuto, PublishAuto, true, false},
		"plain, plain":     {PublishPlain, PublishPlain, true, false},
		"sharded, sharded": {PublishSharded, PublishSharded, false, true},
		"both, both":       {PublishBoth, PublishBoth, true, true},
		"both, plain":      {PublishBoth, PublishPlain, true, false},
		"both, sharded":    {PublishBoth, PublishSharded, false, true},
		"plain, both":      {PublishPlain, PublishBoth, true, true},
		"sharded, both":    {PublishSharded, PublishBoth, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fx := newRedis(t)
			mode := func(m PublishMode) func(*Options) {
				return func(o *Options) { o.PublishMode, o.PollInterval = m, never }
			}
			holder, waiter := fx.newLocks(t, mode(test.holder)), fx.newLocks(t, mode(test.waiter))
			t.Cleanup(func() {
				eventually(t, "the sharded channels to go", func() bool {
					return len(fx.rdb.PubSubShardChannels(bg, "*").Val()) == 0
				})
			})

			lease := mustAcquire(t, bg, holder.Lock("order"), AcquireOptions{LeaseTime: time.Hour})
			waiting := acquireAsync(bg, waiter.Lock("order"), forever)
			const channel = "redisson_lock__channel:{order}"
			eventually(t, "the waiter to subscribe to the right channels", func() bool {
				return (fx.rdb.PubSubNumSub(bg, channel).Val()[channel] == 1) == test.plain &&
					(fx.rdb.PubSubShardNumSub(bg, channel).Val()[channel] == 1) == test.sharded
			})
			mustRelease(t, lease)
			mustRelease(t, mustReceiveLease(t, "the waiter", waiting))
		})
	}
}

// A lock of another program may have no time to live, or centuries, more than a time.Duration has:
// both are a lock without an end.
func TestWire_LockWithoutAnEnd(t *testing.T) {
	t.Parallel()
	for _, centuries := range []bool{false, true} {
		t.Run(fmt.Sprint("centuries ", centuries), func(t *testing.T) {
			t.Parallel()
			eachLockKind(t, func(t *testing.T, kind lockKind) {
				fx := newRedis(t)
				c, proxy := fx.newProxiedLocks(t, pollInterval(never))
				lock, blocker := kind.lock(c, "a"), kind.rival(c, "a")
				fields := []any{"other", "1"}
				if blocker.kind.Name == "write" {
					fields = []any{"other:write", "1", "mode", "write"}
				}
				err := fx.rdb.HSet(bg, "a", fields...).Err()
				if centuries {
					err = errors.Join(err, fx.rdb.Do(bg, "PEXPIREAT", "a", int64(math.MaxInt64/2)).Err())
				}
				if err != nil {
					t.Fatal(err)
				}
				var held *NotAcquiredError
				if err := tryAcquire(lock); !errors.As(err, &held) || held.TTL != noTTL {
					t.Errorf("Acquire: %#v, want %v for TTL", err, noTTL)
				}
				if ttl, err := lock.RemainingTTL(bg); ttl != noTTL || err != nil {
					t.Errorf("RemainingTTL: %v, %v; want %v", ttl, err, noTTL)
				}

				asked := countCommands(proxy, runsScript())
				waiter := acquireAsync(bg, lock, forever)
				eventuallyWaiting(t, c)
				time.Sleep(50 * shortPause)
				if n := asked(); n > 5 {
					t.Errorf("the waiter has asked %d times", n)
				}
				if lock.kind != blocker.kind {
					if ok, err := lock.ForceUnlock(bg); ok || err != nil {
						t.Errorf("ForceUnlock of the other side: %v, %v", ok, err)
					}
				}
				mustForce(t, blocker)
				mustRelease(t, mustReceiveLease(t, "the waiter", waiter))
			})
		})
	}
}

// A jvm does to Redis what Redisson does, with scripts written from the same description as ours.
type jvm struct {
	rdb   *redis.Client
	owner string
}

// newJVM is a thread in a Redisson client.
func newJVM(fx *redisFixture) *jvm { return &jvm{fx.rdb, "b1d6cd2c-7c5b-4d8e-9f6b-0f6c1b8f3a10:57"} }

var (
	jvmLock = redis.NewScript(`
		if redis.call('exists', KEYS[1]) == 0 or redis.call('hexists', KEYS[1], ARGV[2]) == 1 then
			redis.call('hincrby', KEYS[1], ARGV[2], 1)
			redis.call('pexpire', KEYS[1], ARGV[1])
			return nil
		end
		return redis.call('pttl', KEYS[1])`)
	jvmUnlock = redis.NewScript(`
		if redis.call('hexists', KEYS[1], ARGV[2]) == 0 then return nil end
		if redis.call('hincrby', KEYS[1], ARGV[2], -1) > 0 then
			redis.call('pexpire', KEYS[1], ARGV[1])
			return 0
		end
		redis.call('del', KEYS[1])
		redis.call('publish', KEYS[2], '0')
		return 1`)
	jvmForceUnlock = redis.NewScript(`
		if redis.call('del', KEYS[1]) == 1 then
			redis.call('publish', KEYS[2], '0')
			return 1
		end
		return 0`)
)

const jvmLease = 30 * time.Second

// tryLock returns the other holder's time to live where it does not get the lock.
func (j *jvm) tryLock(t *testing.T, name string) (ok bool, ttl time.Duration) {
	t.Helper()
	reply, err := jvmLock.Run(bg, j.rdb, []string{name}, jvmLease.Milliseconds(), j.owner).Result()
	if errors.Is(err, redis.Nil) {
		return true, 0
	}
	if err != nil {
		t.Fatal(err)
	}
	return false, time.Duration(reply.(int64)) * time.Millisecond
}

func (j *jvm) mustLock(t *testing.T, name string) {
	t.Helper()
	if ok, ttl := j.tryLock(t, name); !ok {
		t.Fatalf("Redisson does not get %q, which has %v to live", name, ttl)
	}
}

func (j *jvm) mustUnlock(t *testing.T, name string, want int64) {
	t.Helper()
	got, err := jvmUnlock.Run(bg, j.rdb, []string{name, "redisson_lock__channel:{" + name + "}"}, jvmLease.Milliseconds(), j.owner).Int64()
	if err != nil || got != want {
		t.Fatalf("Redisson's unlock: %d, %v; want %d", got, err, want)
	}
}

func (j *jvm) mustForce(t *testing.T, name string) {
	t.Helper()
	if n, err := jvmForceUnlock.Run(bg, j.rdb, []string{name, "redisson_lock__channel:{" + name + "}"}).Int(); n != 1 || err != nil {
		t.Fatalf("Redisson's forceUnlock: %d, %v; want 1", n, err)
	}
}

// A listener hears the messages of a channel, as any client that waits does.
type listener struct {
	rdb     *redis.Client
	channel string
	pubsub  *redis.PubSub
}

func (fx *redisFixture) subscribe(t *testing.T, channel string) *listener {
	t.Helper()
	ps := fx.rdb.Subscribe(bg, channel)
	t.Cleanup(func() { _ = ps.Close() })
	if _, err := ps.Receive(bg); err != nil {
		t.Fatal(err)
	}
	return &listener{fx.rdb, channel, ps}
}

// messages returns the messages so far.
func (l *listener) messages(t *testing.T) (messages []string) {
	t.Helper()
	const end = "-1"
	if err := l.rdb.Publish(bg, l.channel, end).Err(); err != nil {
		t.Fatal(err)
	}
	for {
		m, err := l.pubsub.ReceiveMessage(bg)
		if err != nil {
			t.Fatal(err)
		}
		if m.Payload == end {
			return messages
		}
		messages = append(messages, m.Payload)
	}
}

// close unsubscribes, so that no channel is left.
func (l *listener) close(t *testing.T) {
	t.Helper()
	if err := l.pubsub.Close(); err != nil {
		t.Fatal(err)
	}
}
