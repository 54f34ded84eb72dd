package core

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// What other programs see of a lock, by the number of the section that says so. A jvm is such a program.

// jvm does to Redis what Redisson does; it has scripts of its own, written from the same description.
type jvm struct {
	rdb   *redis.Client
	owner string
}

// newJVM is a thread in a Redisson client.
func newJVM(b *bundle) *jvm { return &jvm{b.rdb, "b1d6cd2c-7c5b-4d8e-9f6b-0f6c1b8f3a10:57"} }

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

// A listener hears the messages of a channel, as any client that waits does.
type listener struct {
	rdb     *redis.Client
	channel string
	pubsub  *redis.PubSub
}

func (b *bundle) listen(t *testing.T, channel string) *listener {
	t.Helper()
	ps := b.rdb.Subscribe(bg, channel)
	t.Cleanup(func() { _ = ps.Close() })
	if _, err := ps.Receive(bg); err != nil {
		t.Fatal(err)
	}
	return &listener{b.rdb, channel, ps}
}

// heard are the messages so far.
func (l *listener) heard(t *testing.T) (messages []string) {
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

// done ends it, so that no channel is left.
func (l *listener) done(t *testing.T) {
	t.Helper()
	if err := l.pubsub.Close(); err != nil {
		t.Fatal(err)
	}
}

// 0.1, 0.3: the key is the name; the channel has braces unless the name has some.
func TestWire0_1_Names(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	c := b.client(t)
	for name, channel := range map[string]string{
		"order:42":       "redisson_lock__channel:{order:42}",
		"{order}:42":     "redisson_lock__channel:{order}:42",
		"order:{42}":     "redisson_lock__channel:order:{42}",
		"a{b":            "redisson_lock__channel:a{b",
		"{}a":            "redisson_lock__channel:{}a",
		"a}b":            "redisson_lock__channel:{a}b}",
		"ключ от дома":   "redisson_lock__channel:{ключ от дома}",
		"a\x00\r\nb\xff": "redisson_lock__channel:{a\x00\r\nb\xff}",
	} {
		l := b.listen(t, channel)
		lease := mustAcquire(t, c, name, AcquireOptions{})
		b.wantFields(t, name, map[string]string{holdOf(lease).field: "1"})
		mustRelease(t, lease)
		if got := fmt.Sprint(l.heard(t)); got != "[0]" {
			t.Errorf("%q: on %q was published %s, want [0]", name, channel, got)
		}
		l.done(t)
	}
}

// 0.2: a hash of one field, <uuid>:<number>, with the count in ASCII and a time to live in milliseconds; no other key.
func TestWire0_2_Keys(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	c := b.client(t)
	owner := regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}:[1-9][0-9]*$`)
	lease := mustAcquire(t, c, "a", AcquireOptions{LeaseTime: 54321 * time.Millisecond})
	inner := mustEnter(t, lease.Context(), c, "a", AcquireOptions{LeaseTime: 30 * time.Second})
	if keys := b.rdb.Keys(bg, "*").Val(); len(keys) != 1 || keys[0] != "a" {
		t.Errorf("keys %q, want only the lock's", keys)
	}
	if kind := b.rdb.Type(bg, "a").Val(); kind != "hash" {
		t.Errorf("a %s, want a hash", kind)
	}
	for field, count := range b.fields(t, "a") {
		if !owner.MatchString(field) {
			t.Errorf("owner %q, want <uuid>:<number>", field)
		}
		if _, err := strconv.ParseInt(field[37:], 10, 64); err != nil {
			t.Errorf("the number of owner %q is no Java long: %v", field, err)
		}
		if count != "2" {
			t.Errorf("count %q, want 2", count)
		}
	}
	if ttl := b.pttl(t, "a"); ttl > 54321*time.Millisecond || ttl <= 54321*time.Millisecond-patience {
		t.Errorf("%v to live, want 54.321s at first", ttl)
	}
	mustRelease(t, inner)
	mustRelease(t, lease)
}

// 0.3: a release to zero publishes 0, once, and nothing else publishes anything.
func TestWire0_3_Messages(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	c := b.client(t)
	l := b.listen(t, "redisson_lock__channel:{a}")
	want := func(what, want string) {
		t.Helper()
		if got := fmt.Sprint(l.heard(t)); got != want {
			t.Errorf("%s: published %s, want %s", what, got, want)
		}
	}
	lease := mustAcquire(t, c, "a", AcquireOptions{LeaseTime: time.Minute})
	inner := mustEnter(t, lease.Context(), c, "a", AcquireOptions{})
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
	newJVM(b).mustLock(t, "a")
	if freed, err := c.Lock("a").ForceUnlock(bg); !freed || err != nil {
		t.Errorf("ForceUnlock: %v, %v", freed, err)
	}
	want("ForceUnlock", "[0]")
	l.done(t)
}

// 0.4: on a single server Redisson listens to plain channels only.
func TestWire0_4_PlainPublishByDefault(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	c, _ := b.proxied(t)
	lease := mustAcquire(t, c, "a", AcquireOptions{})
	if err := b.rdb.ConfigResetStat(bg).Err(); err != nil {
		t.Fatal(err)
	}
	mustRelease(t, lease)
	if calls := b.calls(t); calls["publish"] != 1 || calls["spublish"] != 0 {
		t.Errorf("%d PUBLISH, %d SPUBLISH; want 1 and 0", calls["publish"], calls["spublish"])
	}
}

// 1.1: each keeps the other out, and is told how long.
func TestWire1_1_EachKeepsTheOtherOut(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	c, j := b.client(t), newJVM(b)

	lease := mustAcquire(t, c, "a", AcquireOptions{LeaseTime: time.Minute})
	if ok, ttl := j.tryLock(t, "a"); ok || ttl > time.Minute || ttl < time.Minute-patience {
		t.Errorf("Redisson against our lock: %v, %v", ok, ttl)
	}
	b.wantCount(t, lease, 1)
	mustRelease(t, lease)

	j.mustLock(t, "a")
	_, err := c.Lock("a").Acquire(bg, AcquireOptions{})
	var held *NotAcquiredError
	if !errors.As(err, &held) || held.TTL > jvmLease || held.TTL < jvmLease-patience {
		t.Errorf("we against Redisson's lock: %v", err)
	}
	b.wantFields(t, "a", map[string]string{j.owner: "1"})
	j.mustLock(t, "a")
	b.wantFields(t, "a", map[string]string{j.owner: "2"})
	j.mustUnlock(t, "a", 0)
	wantHeldByOther(t, c, "a")
	j.mustUnlock(t, "a", 1)
	lease = mustAcquire(t, c, "a", AcquireOptions{})
	mustRelease(t, lease)
}

// 1.1, 1.2: HGET name owner is the hold count, as Redisson shows it.
func TestWire1_2_HoldCount(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	c := b.client(t)
	ctx := WithOwner(bg)
	var leases []*Lease
	for n := 1; n <= 4; n++ {
		leases = append(leases, mustEnter(t, ctx, c, "a", AcquireOptions{}))
		if got := b.rdb.HGet(bg, "a", holdOf(leases[0]).field).Val(); got != strconv.Itoa(n) {
			t.Errorf("HGET says %q after %d acquires", got, n)
		}
	}
	for n := 3; n >= 0; n-- {
		mustRelease(t, leases[n])
		got, err := b.rdb.HGet(bg, "a", holdOf(leases[0]).field).Result()
		if n > 0 && got != strconv.Itoa(n) || n == 0 && !errors.Is(err, redis.Nil) {
			t.Errorf("HGET says %q, %v with %d leases left", got, err, n)
		}
	}
	if b.rdb.Exists(bg, "a").Val() != 0 {
		t.Error("the key is still there")
	}
}

// 1.2, 6: a release of the one wakes a waiter of the other; polling is too slow to do it.
func TestWire1_2_ReleasesWakeEachOther(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	c, j := b.client(t, pollInterval(time.Hour)), newJVM(b)

	j.mustLock(t, "a")
	if err := b.rdb.PExpire(bg, "a", time.Hour).Err(); err != nil {
		t.Fatal(err)
	}
	result := acquireAsync(bg, c.Lock("a"), AcquireOptions{WaitTime: patience})
	eventually(t, "we listen", func() bool {
		return b.rdb.PubSubNumSub(bg, "redisson_lock__channel:{a}").Val()["redisson_lock__channel:{a}"] == 1
	})
	j.mustUnlock(t, "a", 1)
	r := await(t, "we get the lock", result)
	if r.err != nil {
		t.Fatal(r.err)
	}

	// Redisson's way: refused, subscribed, refused again, asleep until a message.
	l := b.listen(t, "redisson_lock__channel:{a}")
	if ok, _ := j.tryLock(t, "a"); ok {
		t.Fatal("two holders")
	}
	mustRelease(t, r.lease)
	m, err := l.pubsub.ReceiveMessage(bg)
	if err != nil || m.Payload != "0" {
		t.Fatalf("Redisson is sent %v, %v; want 0", m, err)
	}
	j.mustLock(t, "a")
	j.mustUnlock(t, "a", 1)
	l.done(t)
}

// 1.3: we use no latch: nothing is left beside the lock, at any time.
func TestWire1_3_NoOtherKeys(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	c := b.client(t)
	lease := mustAcquire(t, c, "a", AcquireOptions{})
	inner := mustEnter(t, lease.Context(), c, "a", AcquireOptions{})
	mustRelease(t, inner)
	if n := b.rdb.DBSize(bg).Val(); n != 1 {
		t.Errorf("%d keys, want 1", n)
	}
	mustRelease(t, lease)
	if n := b.rdb.DBSize(bg).Val(); n != 0 {
		t.Errorf("%d keys, want 0", n)
	}
}

// 1.4: Redisson takes our lock away: we learn of it at the next renewal, and leave its next lock alone.
func TestWire1_4_ForcedByRedisson(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	c, j := b.client(t, watchdogTimeout(6*time.Second)), newJVM(b)
	lease := mustAcquire(t, c, "a", AcquireOptions{})
	if n, err := jvmForceUnlock.Run(bg, b.rdb, []string{"a", "redisson_lock__channel:{a}"}).Int(); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	j.mustLock(t, "a")
	await(t, "we learn of it", lease.Done())
	wantErr(t, "Err", lease.Err(), ErrLockLost)
	wantErr(t, "Release", lease.Release(bg), ErrLockLost)
	eventually(t, "the client is idle", func() bool { return c.Stats() == Stats{} })
	b.wantFields(t, "a", map[string]string{j.owner: "1"})
	j.mustUnlock(t, "a", 1)
}

// 1.4: a lease with a LeaseTime is not renewed, and learns of it when it is used, or at its end, as ForceUnlock's doc says.
func TestForceUnlock_FixedLeaseElsewhere(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	c := b.client(t)
	for what, learns := range map[string]func(*Lease) error{
		"Extend":  func(l *Lease) error { return l.Extend(bg, time.Hour) },
		"Release": func(l *Lease) error { return l.Release(bg) },
		"re-entry": func(l *Lease) error {
			_, err := c.Lock("a").Acquire(l.Context(), AcquireOptions{})
			return err
		},
		"its end": func(l *Lease) error {
			await(t, "its time is over", l.Done())
			return l.Err()
		},
	} {
		lease := mustAcquire(t, c, "a", AcquireOptions{LeaseTime: 3 * time.Second})
		if n, err := jvmForceUnlock.Run(bg, b.rdb, []string{"a", "redisson_lock__channel:{a}"}).Int(); n != 1 || err != nil {
			t.Fatal(n, err)
		}
		wantHeld(t, lease)
		wantErr(t, what, learns(lease), ErrLockLost)
	}
}

// 1.4: and we take Redisson's away, with all its levels.
func TestWire1_4_ForcedByUs(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	c, j := b.client(t), newJVM(b)
	j.mustLock(t, "a")
	j.mustLock(t, "a")
	if freed, err := c.Lock("a").ForceUnlock(bg); !freed || err != nil {
		t.Errorf("ForceUnlock: %v, %v", freed, err)
	}
	b.wantFields(t, "a", nil)
}

// 1.5: what we say of Redisson's lock.
func TestWire1_5_QueriesOfRedissonsLock(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	c, j := b.client(t), newJVM(b)
	lock, ctx := c.Lock("a"), WithOwner(bg)
	j.mustLock(t, "a")
	if locked, err := lock.IsLocked(ctx); !locked || err != nil {
		t.Errorf("IsLocked: %v, %v", locked, err)
	}
	if held, err := lock.IsHeld(ctx); held || err != nil {
		t.Errorf("IsHeld: %v, %v", held, err)
	}
	if n, err := lock.HoldCount(ctx); n != 0 || err != nil {
		t.Errorf("HoldCount: %d, %v", n, err)
	}
	if ttl, err := lock.RemainingTTL(ctx); ttl > jvmLease || ttl < jvmLease-patience || err != nil {
		t.Errorf("RemainingTTL: %v, %v", ttl, err)
	}
	j.mustUnlock(t, "a", 1)
}

// 2: a lock without a LeaseTime has the watchdog's time-out, is renewed every third of it, for longer than it would last,
// and no longer than it is held. What is not ours is not renewed.
func TestWire2_Watchdog(t *testing.T) {
	t.Parallel()
	const timeout = 6 * time.Second
	b := newBundle(t)
	c, proxy := b.proxied(t, watchdogTimeout(timeout))
	renewals := counter(proxy, runs(renewScript))
	j := newJVM(b)
	j.mustLock(t, "theirs")

	watched := mustAcquire(t, c, "watched", AcquireOptions{})
	fixed := mustAcquire(t, c, "fixed", AcquireOptions{LeaseTime: timeout})
	if ttl := b.pttl(t, "watched"); ttl > timeout {
		t.Errorf("%v to live, more than the watchdog's time-out", ttl)
	}
	await(t, "the lease with an end runs out", fixed.Done())
	eventually(t, "a renewal every third of the time-out", func() bool { return renewals() >= 4 })
	wantHeld(t, watched)
	b.wantCount(t, watched, 1)
	eventually(t, "the lease with an end is over in Redis as well", func() bool { return len(b.fields(t, "fixed")) == 0 })
	if ttl := b.pttl(t, "theirs"); ttl > jvmLease-time.Second {
		t.Errorf("Redisson's lock was renewed, it has %v to live", ttl)
	}
	mustRelease(t, watched)
	j.mustUnlock(t, "theirs", 1)
	if n := c.Stats().Renewals; n != 0 {
		t.Errorf("%d locks are renewed that nobody holds", n)
	}
}

// 2.1: the default is Redisson's.
func TestWire2_1_DefaultLease(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	lease := mustAcquire(t, b.client(t), "a", AcquireOptions{})
	b.wantPTTL(t, "a", 30*time.Second)
	mustRelease(t, lease)
}

// 6.2: one release wakes one waiter of each client, whatever the message says: nobody stampedes, nobody sleeps on.
func TestWire6_2_OneWaiterOfEachClient(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	c, proxy := b.proxied(t, pollInterval(never))
	j := newJVM(b)
	j.mustLock(t, "a")
	if err := b.rdb.PExpire(bg, "a", time.Hour).Err(); err != nil {
		t.Fatal(err)
	}
	tries := counter(proxy, runs(acquireScript))
	ctx, cancel := context.WithCancel(bg)
	defer cancel()
	var waiting []<-chan acquired
	for range 5 {
		waiting = append(waiting, acquireAsync(ctx, c.Lock("a"), AcquireOptions{WaitTime: WaitForever}))
	}
	channel := "redisson_lock__channel:{a}"
	eventually(t, "all wait", func() bool { return c.Stats().Waiting == 5 })
	listened(t, c, "a") // it has asked again after the subscription
	for i, message := range []string{"0", "1", "gibberish"} {
		if err := b.rdb.Publish(bg, channel, message).Err(); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the first asks again", func() bool { return tries() >= 3+i })
		listened(t, c, "a")
	}
	if n := tries(); n != 5 {
		t.Errorf("%d attempts, want 5: the two at first, and one a message", n)
	}
	cancel()
	for _, result := range waiting {
		await(t, "a waiter goes", result)
	}
	j.mustUnlock(t, "a", 1)
}
