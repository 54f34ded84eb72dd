package core

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/reqlock/reqlock/core/internal/claim"
	"github.com/reqlock/reqlock/core/internal/lua"
	"github.com/reqlock/reqlock/core/internal/watchdog"
	"github.com/reqlock/reqlock/core/internal/wire"
	"github.com/reqlock/reqlock/internal/lab/redistest"
)

// Readers share, and a writer excludes everyone. Redisson: testMultiRead.
func TestReadWrite_Share(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	c, other := fx.newLocks(t), fx.newLocks(t)
	var readers []*Lease
	for i := range 10 {
		client := c
		if i%2 == 1 {
			client = other
		}
		readers = append(readers, mustAcquire(t, bg, client.ReadWriteLock("a").Read(), AcquireOptions{}))
	}
	wantErr(t, "a writer among readers", tryAcquire(c.ReadWriteLock("a").Write()), ErrNotAcquired)
	writer := acquireAsync(bg, other.ReadWriteLock("a").Write(), forever)
	eventuallyWaiting(t, other)
	for _, r := range readers {
		mustRelease(t, r)
	}
	granted := mustReceiveLease(t, "the writer", writer)
	wantErr(t, "a reader beside a writer", tryAcquire(c.ReadWriteLock("a").Read()), ErrNotAcquired)

	// Readers that waited come in together: none of them releases before all are in. Redisson:
	// testWriteRead.
	var waiting []<-chan acquireResult
	for i := range 20 {
		client := c
		if i%2 == 1 {
			client = other
		}
		waiting = append(waiting, acquireAsync(bg, client.ReadWriteLock("a").Read(), forever))
	}
	eventually(t, "all callers to wait", func() bool { return c.Stats().Waiting == 10 && other.Stats().Waiting == 10 && c.Stats().Channels == 1 })
	mustRelease(t, granted)
	readers = readers[:0]
	for _, w := range waiting {
		next := mustReceiveLease(t, "a reader", w)
		readers = append(readers, next)
	}
	for _, r := range readers {
		mustRelease(t, r)
	}
}

// A writer that reads becomes a reader, which wakes other readers. A reader cannot become a writer.
// Redisson: testWriteReadReentrancy.
func TestReadWrite_DowngradeAndUpgrade(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	c, other := fx.newLocks(t), fx.newLocks(t, pollInterval(time.Hour))
	l := c.ReadWriteLock("a")
	owner := WithOwner(bg)
	write := mustAcquire(t, owner, l.Write(), AcquireOptions{LeaseTime: time.Hour})
	read := mustAcquire(t, owner, l.Read(), AcquireOptions{LeaseTime: time.Hour})
	again := mustAcquire(t, owner, l.Write(), AcquireOptions{LeaseTime: time.Hour})
	mustRelease(t, write)
	wantErr(t, "a reader beside a writer", tryAcquire(other.ReadWriteLock("a").Read()), ErrNotAcquired)

	reader := acquireAsync(bg, other.ReadWriteLock("a").Read(), forever)
	eventuallyWaiting(t, other)
	mustRelease(t, again) // which wakes the reader, though the lock is not free
	next := mustReceiveLease(t, "the reader that waited for the downgrade", reader)
	if fields := fx.hash(t, "a"); fields["mode"] != "read" || len(fields) != 3 {
		t.Errorf("after the downgrade: %v", fields)
	}
	_, err := l.Write().Acquire(owner, forever)
	wantErr(t, "an upgrade", err, ErrUpgrade)
	wantHeld(t, read)
	mustRelease(t, next)
	_, err = l.Write().Acquire(owner, AcquireOptions{})
	wantErr(t, "an upgrade of the only reader", err, ErrUpgrade)
	mustRelease(t, read)
	mustRelease(t, mustAcquire(t, owner, l.Write(), AcquireOptions{}))
}

// A writer enters both sides as it likes, and keeps others out until it has left the write side as
// often. Redisson: testWR, testWriteLock.
func TestReadWrite_BothSides(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	l, other := fx.newLocks(t).ReadWriteLock("a"), fx.newLocks(t).ReadWriteLock("a")
	owner := WithOwner(bg)
	wantKeptOut := func(what string, writers int) {
		t.Helper()
		wantErr(t, what+": a reader", tryAcquire(other.Read()), ErrNotAcquired)
		wantErr(t, what+": a writer", tryAcquire(other.Write()), ErrNotAcquired)
		wantHoldCount(t, owner, l.Write(), writers)
		wantHoldCount(t, WithOwner(bg), l.Write(), 0)
	}
	write := mustAcquire(t, owner, l.Write(), AcquireOptions{})
	wantKeptOut("written", 1)
	read := mustAcquire(t, owner, l.Read(), AcquireOptions{})
	wantKeptOut("read as well", 1)
	mustRelease(t, read)
	wantKeptOut("read no more", 1)
	again := mustAcquire(t, owner, l.Write(), AcquireOptions{})
	wantKeptOut("written twice", 2)
	mustRelease(t, again)
	read = mustAcquire(t, owner, l.Read(), AcquireOptions{})
	wantKeptOut("read again", 1)
	mustRelease(t, write)
	mustRelease(t, mustAcquire(t, bg, other.Read(), AcquireOptions{})) // readers among themselves
	wantErr(t, "a writer beside a reader", tryAcquire(other.Write()), ErrNotAcquired)
	mustRelease(t, read)
	mustRelease(t, mustAcquire(t, bg, other.Write(), AcquireOptions{}))
}

// A stray change of the write side arrives when its owner also reads, or only reads. It must not
// free the read side, which alone keeps writers out then.
func TestReadWrite_StrayOfTheWriter(t *testing.T) {
	t.Parallel()
	for name, early := range map[string]bool{"before the downgrade": true, "after the downgrade": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fx := newRedis(t)
			c, proxy := fx.newProxiedLocks(t, commandTimeout(3*time.Second))
			other := fx.newLocks(t)
			l, owner := c.ReadWriteLock("a"), WithOwner(bg)
			write := mustAcquire(t, owner, l.Write(), AcquireOptions{LeaseTime: time.Hour})
			mustRelease(t, mustAcquire(t, owner, l.Read(), AcquireOptions{})) // the stray knows of a level
			stray := proxy.OnMatch(1, runsScript(readWriteUpdateScript), redistest.HoldRequest)
			if err := write.Extend(bg, 2*time.Hour); err == nil {
				t.Error("it was answered, and was not to be")
			}
			read := mustAcquire(t, owner, l.Read(), AcquireOptions{})
			arrives := func() {
				stray.Release()
				mustReceive(t, "the stray to be executed", stray.Done())
			}
			if early {
				arrives()
			}
			mustRelease(t, write)
			if !early {
				arrives()
			}
			levels := fx.rdb.Keys(bg, "{a}:*").Val()
			if len(levels) != 1 || fx.pttl(t, levels[0]) < time.Second {
				t.Errorf("the reader has the time-out keys %q", levels)
			}
			mustRelease(t, mustAcquire(t, bg, other.ReadWriteLock("a").Read(), AcquireOptions{})) // who leaves looks who is alive
			wantErr(t, "a writer beside a reader", tryAcquire(other.ReadWriteLock("a").Write()), ErrNotAcquired)
			wantHeld(t, read)
			mustRelease(t, read)
		})
	}
}

// A downgrade that Redis did not get is retried until it does: the owner may read on for hours, and
// other readers could not come in.
func TestReadWrite_DowngradeIsRetried(t *testing.T) {
	t.Parallel()
	for name, lease := range map[string]time.Duration{"release": time.Hour, "lease over": 2 * time.Second} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fx := newRedis(t)
			c, proxy := fx.newLossyLocks(t, commandTimeout(time.Second))
			l, owner := c.ReadWriteLock("a"), WithOwner(bg)
			write := mustAcquire(t, owner, l.Write(), AcquireOptions{LeaseTime: lease})
			read := mustAcquire(t, owner, l.Read(), AcquireOptions{LeaseTime: time.Hour})
			down := proxy.OnEvery(runsScript(readWriteUpdateScript), redistest.CutBefore)
			if lease == time.Hour {
				if err := write.Release(bg); err == nil {
					t.Error("the release was told, and was not to be")
				}
			}
			mustReceive(t, "the write side to end", write.Done())
			tries := proxy.Count("EVALSHA")
			eventually(t, "more retries than fit in CommandTimeout", func() bool { return proxy.Count("EVALSHA") > tries+25 })
			down.Remove()
			mustRelease(t, mustReceiveLease(t, "another reader", acquireAsync(bg, fx.newLocks(t).ReadWriteLock("a").Read(), AcquireOptions{WaitTime: patience})))
			wantHeld(t, read)
			mustRelease(t, read)
		})
	}
}

// A renewal that was sent before the downgrade, and arrives after it, finds no writer. That is not
// a loss.
func TestReadWrite_RenewalAfterTheDowngrade(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	c, proxy := fx.newProxiedLocks(t)
	l, owner := c.ReadWriteLock("a"), WithOwner(bg)
	write, read := mustAcquire(t, owner, l.Write(), AcquireOptions{}), mustAcquire(t, owner, l.Read(), AcquireOptions{})
	late := proxy.OnMatch(1, runsScript(renewScript), redistest.HoldRequest)
	c.dog.RenewAll()
	mustReceive(t, "a renewal to be on its way", late.Hit())
	mustRelease(t, write)
	late.Release()
	mustBeRenewed(t, read)
	mustRelease(t, mustAcquire(t, bg, c.ReadWriteLock("a").Read(), AcquireOptions{}))
	mustRelease(t, read)
}

// The same, while the last read lease is being released, and the owner reads again before that: the
// new lease is renewed.
func TestReadWrite_RenewalAfterTheDowngradeBesideAReentry(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	c, proxy := fx.newProxiedLocks(t)
	answered, settle := make(chan []watchdog.Verdict, 1), make(chan struct{})
	var once sync.Once
	dog := watchdog.New(watchdog.Config[*hold]{Interval: c.beat(), Send: func(batch []*watchdog.Item[*hold]) []watchdog.Verdict {
		verdicts := c.renew(batch)
		once.Do(func() { answered <- verdicts; <-settle })
		return verdicts
	}})
	t.Cleanup(dog.Close)
	for i := range c.names.shards {
		c.names.shards[i].dog = dog
	}
	l, owner := c.ReadWriteLock("a"), WithOwner(bg)
	write, read := mustAcquire(t, owner, l.Write(), AcquireOptions{}), mustAcquire(t, owner, l.Read(), AcquireOptions{})
	late := proxy.OnMatch(1, runsScript(renewScript), redistest.HoldRequest)
	dog.RenewAll()
	mustReceive(t, "a renewal to be on its way", late.Hit())
	mustRelease(t, write)

	entered := proxy.OnMatch(1, runsScript(readWriteUpdateScript), redistest.HoldReply)
	again := acquireAsync(owner, l.Read(), AcquireOptions{})
	mustReceive(t, "the re-entry", entered.Hit())
	released := releaseAsync(read)
	h := holdOf(read)
	eventually(t, "the release of the only lease", func() bool {
		h.entry.open()
		defer h.entry.close()
		return h.claim.State() == claim.Freeing
	})
	late.Release()
	if v := mustReceive(t, "the renewal to find no writer", answered); v[0] == watchdog.Renewed {
		t.Fatal("the renewal found the writer")
	}
	entered.Release()
	lease := mustReceiveLease(t, "the re-entry", again)
	if err := mustReceive(t, "the release", released); err != nil {
		t.Error(err)
	}
	close(settle)
	mustBeRenewed(t, lease)
	mustRelease(t, lease)
}

// A renewal that is sent when Redis has downgraded, and the reply is on its way, does not ask for a
// writer.
func TestReadWrite_RenewalDuringTheDowngrade(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	c, proxy := fx.newProxiedLocks(t)
	l, owner := c.ReadWriteLock("a"), WithOwner(bg)
	write, read := mustAcquire(t, owner, l.Write(), AcquireOptions{}), mustAcquire(t, owner, l.Read(), AcquireOptions{})
	down := proxy.OnMatch(1, runsScript(readWriteUpdateScript), redistest.HoldReply)
	defer down.Release()
	released := releaseAsync(write)
	mustReceive(t, "the downgrade to be done", down.Hit())
	c.dog.RenewAll()
	mustBeRenewed(t, read)
	down.Release()
	if err := mustReceive(t, "the writer to release it", released); err != nil {
		t.Error(err)
	}
	mustRelease(t, read)
}

// A stream of readers does not keep out a writer of the same process.
func TestReadWrite_WriterDoesNotStarve(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	c := fx.newLocks(t)
	l := c.ReadWriteLock("a")
	ctx, stop := context.WithCancel(bg)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for ctx.Err() == nil {
				one, err := l.Read().Acquire(bg, AcquireOptions{WaitTime: patience})
				if err != nil {
					t.Errorf("Acquire: %v", err)
					return
				}
				if err := one.Release(bg); err != nil {
					t.Errorf("Release: %v", err)
				}
			}
		})
	}
	for range 20 {
		mustRelease(t, mustAcquire(t, bg, l.Write(), AcquireOptions{WaitTime: patience}))
	}
	stop()
	wg.Wait()
}

// ForceUnlock and IsLocked are about one side. A forced writer loses its read side too. Redisson:
// testForceUnlock, testReadLockIsLocked.
func TestReadWrite_ForceUnlock(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	c := fx.newLocks(t)
	l := c.ReadWriteLock("a")
	force := func(what string, side *Lock, want bool) {
		t.Helper()
		if freed, err := side.ForceUnlock(bg); freed != want || err != nil {
			t.Errorf("%s: %v, %v; want %v", what, freed, err, want)
		}
	}
	locked := func(side *Lock) bool {
		t.Helper()
		is, err := side.IsLocked(bg)
		if err != nil {
			t.Fatal(err)
		}
		return is
	}
	readers := []*Lease{mustAcquire(t, bg, l.Read(), AcquireOptions{}), mustAcquire(t, bg, l.Read(), AcquireOptions{})}
	if !locked(l.Read()) || locked(l.Write()) {
		t.Error("read: one side is locked, the other not")
	}
	force("the write side of readers", l.Write(), false)
	force("the read side of readers", l.Read(), true)
	for _, r := range readers {
		wantErr(t, "the reader", r.Err(), ErrLockLost)
	}
	write := mustAcquire(t, bg, l.Write(), AcquireOptions{})
	if locked(l.Read()) || !locked(l.Write()) {
		t.Error("written: one side is locked, the other not")
	}
	both := mustAcquire(t, write.Context(), l.Read(), AcquireOptions{})
	if !locked(l.Read()) {
		t.Error("the writer reads as well")
	}
	force("the read side of a writer", l.Read(), false)
	force("the write side", l.Write(), true)
	wantErr(t, "the writer", write.Err(), ErrLockLost)
	wantErr(t, "the writer's read side", both.Err(), ErrLockLost)
}

// When the reader with the longest lease leaves, the hash lives no longer than the others need.
// Redisson: testReadLockLeaseTimeout.
func TestRead_HashLivesForTheLongest(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	c := fx.newLocks(t)
	read := c.ReadWriteLock("a").Read()
	long := mustAcquire(t, bg, read, AcquireOptions{LeaseTime: time.Hour})
	short := mustAcquire(t, bg, read, AcquireOptions{LeaseTime: time.Minute})
	if ttl := fx.pttl(t, "a"); ttl < 59*time.Minute {
		t.Errorf("the shorter lease has shortened the lock to %s", ttl)
	}
	mustRelease(t, long)
	if ttl := fx.pttl(t, "a"); ttl > time.Minute || ttl < time.Second {
		t.Errorf("with a lease of a minute left the lock lives for %s", ttl)
	}
	mustRelease(t, short)
}

// Every change of a read hold gives all its levels the longest lease, and drops the keys of
// released levels.
func TestRead_Levels(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	c := fx.newLocks(t)
	read := c.ReadWriteLock("a").Read()
	owner := WithOwner(bg)
	one := mustAcquire(t, owner, read, AcquireOptions{LeaseTime: time.Minute})
	two := mustAcquire(t, owner, read, AcquireOptions{LeaseTime: time.Hour})
	three := mustAcquire(t, owner, read, AcquireOptions{LeaseTime: time.Minute})
	key := func(n int) string { return wire.ReadTimeout("a", holdOf(one).wire, n) }
	want := func(levels int) {
		t.Helper()
		for n := 1; n <= 3; n++ {
			ttl := fx.pttl(t, key(n))
			if n <= levels && ttl < 59*time.Minute || n > levels && ttl > 0 {
				t.Errorf("with %d levels, key %d lives for %s", levels, n, ttl)
			}
		}
		if got := fx.hash(t, "a")[holdOf(one).wire]; got != strconv.Itoa(levels) {
			t.Errorf("the count is %s, want %d", got, levels)
		}
	}
	want(3)
	mustRelease(t, two)
	want(2)
	mustRelease(t, three)
	want(1)
	mustRelease(t, one)
}

// The watchdog renews its own readers and no others. Redisson: testReadLockExpirationRenewal,
// testMultiInstanceReadLockZombieCleanup.
func TestRead_Renewal(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	const timeout, short = 12 * time.Second, 8 * time.Second
	c := fx.newLocks(t, watchdogTimeout(timeout))
	read := c.ReadWriteLock("a").Read()
	leases := []*Lease{mustAcquire(t, bg, read, AcquireOptions{}), mustAcquire(t, bg, read, AcquireOptions{})}
	foreign := wire.ReadTimeout("a", "dead:1", 1)
	if err := errors.Join(fx.rdb.HSet(bg, "a", "dead:1", 1).Err(), fx.rdb.Set(bg, foreign, 1, short).Err()); err != nil {
		t.Fatal(err)
	}
	keys := []string{"a", wire.ReadTimeout("a", holdOf(leases[0]).wire, 1), wire.ReadTimeout("a", holdOf(leases[1]).wire, 1)}
	for _, key := range keys {
		fx.expire(t, key, short)
	}
	for _, key := range keys {
		eventually(t, key+" to be renewed", func() bool { return fx.pttl(t, key) > short })
	}
	if ttl := fx.pttl(t, foreign); ttl > short {
		t.Errorf("the reader of another client was renewed to %s", ttl)
	}
	for _, l := range leases {
		mustRelease(t, l)
	}
	fx.deleteKeys(t, "a", foreign)
}

// A renewal puts back the time-out key of a reader that was evicted or deleted. Without it another
// reader that leaves would take this one for dead, and let a writer in.
func TestRead_TimeoutKeyIsPutBack(t *testing.T) {
	t.Parallel()
	for name, lease := range map[string]time.Duration{"watched": 0, "fixed": time.Hour} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fx := newRedis(t)
			c := fx.newLocks(t, watchdogTimeout(6*time.Second))
			other := fx.newLocks(t)
			l := c.ReadWriteLock("a")
			read := mustAcquire(t, bg, l.Read(), AcquireOptions{LeaseTime: lease})
			key := wire.ReadTimeout("a", holdOf(read).wire, 1)
			if err := fx.rdb.Del(bg, key).Err(); err != nil {
				t.Fatal(err)
			}
			eventually(t, "the time-out key to be put back", func() bool { return fx.pttl(t, key) > 0 })
			mustRelease(t, mustAcquire(t, bg, other.ReadWriteLock("a").Read(), AcquireOptions{}))
			wantErr(t, "a writer beside the reader", tryAcquire(other.ReadWriteLock("a").Write()), ErrNotAcquired)
			wantHeld(t, read)
			mustRelease(t, read)
		})
	}
}

// Redisson's read renewal sets the time to live that all readers share, whatever others need. Our
// readers assert what they need again, also with a LeaseTime.
func TestRead_ReassertsWhatOthersShorten(t *testing.T) {
	t.Parallel()
	const beat = 2 * time.Second
	for name, lease := range map[string]time.Duration{"watched": 0, "fixed": time.Hour} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fx := newRedis(t)
			c := fx.newLocks(t, watchdogTimeout(3*beat))
			read := mustAcquire(t, bg, c.ReadWriteLock("a").Read(), AcquireOptions{LeaseTime: lease})
			timeout := wire.ReadTimeout("a", holdOf(read).wire, 1)
			want := 2 * beat
			if lease > 0 {
				want = lease - patience
			}
			for _, keys := range [][]string{{"a"}, {"a", timeout}} { // up to 4.3.1 it sets the time-out keys of others, too
				for _, key := range keys {
					if err := fx.rdb.PExpire(bg, key, 2*beat).Err(); err != nil {
						t.Fatal(err)
					}
				}
				for _, key := range keys {
					eventually(t, key+" to have its time again", func() bool { return fx.pttl(t, key) > want })
				}
			}
			wantHeld(t, read)
			mustRelease(t, read)
		})
	}
}

// A stray re-entry has set the time-out key of a reader anew, for its own short lease. The next
// change of the levels restores the TTL. Before the downgrade, the write side keeps others out.
func TestReadWrite_DowngradeKeepsTheLease(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	c := fx.newLocks(t) // the watchdog is too slow to help
	l, owner := c.ReadWriteLock("a"), WithOwner(bg)
	write := mustAcquire(t, owner, l.Write(), AcquireOptions{LeaseTime: time.Hour})
	read := mustAcquire(t, owner, l.Read(), AcquireOptions{LeaseTime: time.Hour})
	timeout := wire.ReadTimeout("a", holdOf(read).wire, 1)
	fx.expire(t, timeout, 5*time.Second)
	mustRelease(t, write)
	if ttl := fx.pttl(t, timeout); ttl < time.Hour-patience {
		t.Errorf("the reader has %v left in Redis, want about an hour", ttl)
	}
	fx.expire(t, timeout, 5*time.Second)
	again := mustAcquire(t, owner, l.Read(), AcquireOptions{LeaseTime: time.Minute})
	if ttl := fx.pttl(t, timeout); ttl < time.Hour-patience {
		t.Errorf("after a re-entry for a minute, the reader has %v left in Redis, want about an hour", ttl)
	}
	mustRelease(t, again)
	mustRelease(t, read)
}

// If the leases of a hold differ, Redis keeps it for the longest, and it ends when that does.
func TestRead_BeatWithSeveralLeases(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	const lease = 6 * time.Second
	c := fx.newLocks(t, watchdogTimeout(lease))
	l, owner := c.ReadWriteLock("a").Read(), WithOwner(bg)
	long := mustAcquire(t, owner, l, AcquireOptions{LeaseTime: time.Hour})
	watched := mustAcquire(t, owner, l, AcquireOptions{})
	if err := fx.rdb.PExpire(bg, "a", lease/2).Err(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the long lease's time to live", func() bool { return fx.pttl(t, "a") > time.Minute })
	mustBeRenewed(t, watched)
	mustRelease(t, long)
	mustBeRenewed(t, watched)
	if left := watched.Remaining(); left > lease {
		t.Errorf("the lease that the watchdog keeps has %v left, want at most %v", left, lease)
	}
	watched.StopRenewal()
	if n := c.Stats().Renewals; n != 1 { // as a reader, for as long as it lasts
		t.Errorf("%d renewals", n)
	}
	mustReceive(t, "it to end by itself", watched.Done())
	if n := c.Stats().Renewals; n != 0 {
		t.Errorf("%d renewals after the end", n)
	}
}

// A reader whose LeaseTime is shorter than a beat is not renewed.
func TestRead_ShortLeaseIsNotRenewed(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	c := fx.newLocks(t)
	read := mustAcquire(t, bg, c.ReadWriteLock("a").Read(), AcquireOptions{LeaseTime: time.Second})
	write := mustAcquire(t, bg, c.ReadWriteLock("b").Write(), AcquireOptions{LeaseTime: time.Hour})
	if n := c.Stats().Renewals; n != 0 {
		t.Errorf("%d renewals", n)
	}
	if err := read.Extend(bg, time.Hour); err != nil {
		t.Fatal(err)
	}
	if n := c.Stats().Renewals; n != 1 {
		t.Errorf("%d renewals after it was extended", n)
	}
	mustRelease(t, read)
	mustRelease(t, write)
}

// Dead readers keep a writer out while a reader lives, and no longer, even if there are more than
// one release looks at.
func TestRead_ManyDeadReadersAreRemoved(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	c := fx.newLocks(t)
	l := c.ReadWriteLock("a")
	live := mustAcquire(t, bg, l.Read(), AcquireOptions{})
	fx.addReaders(t, "a", 200, func(int) time.Duration { return time.Millisecond })
	if err := fx.rdb.PExpire(bg, "a", time.Hour).Err(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "their keys to expire", func() bool { return len(fx.rdb.Keys(bg, "{a}:*").Val()) == 1 })
	wantErr(t, "a writer", tryAcquire(l.Write()), ErrNotAcquired)
	mustRelease(t, mustAcquire(t, bg, l.Read(), AcquireOptions{}))
	wantHeld(t, live)
	mustRelease(t, live)
	mustRelease(t, mustAcquire(t, bg, l.Write(), AcquireOptions{}))
}

// The cost of a reader in Redis does not depend on the number of readers.
func TestRead_CostsTheSameBesideThousands(t *testing.T) {
	t.Parallel()
	work := func(t *testing.T, readers int, leases func(i int) time.Duration) map[string]int {
		fx := newRedis(t)
		c := fx.newLocks(t)
		lock := c.ReadWriteLock("a").Read()
		fx.addReaders(t, "a", readers, leases)
		mustRelease(t, mustAcquire(t, bg, lock, AcquireOptions{})) // loads the scripts
		before := fx.commandStats(t)
		lease := mustAcquire(t, bg, lock, AcquireOptions{LeaseTime: time.Hour})
		if err := lease.Extend(bg, 2*time.Hour); err != nil {
			t.Fatal(err)
		}
		mustRelease(t, lease)
		after := fx.commandStats(t)
		for cmd := range after {
			after[cmd] -= before[cmd]
		}
		fx.rdb.FlushAll(bg)
		return after
	}
	for name, leases := range map[string]func(i int) time.Duration{
		"equal leases":     func(int) time.Duration { return 3 * time.Hour },
		"shorter leases":   func(int) time.Duration { return time.Minute },
		"different leases": func(i int) time.Duration { return time.Minute + time.Duration(i)*time.Second },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			few, many := work(t, 20, leases), work(t, 5000, leases)
			for cmd, n := range many {
				switch cmd {
				case "info", "config|resetstat", "command", "hello", "client|setinfo":
					continue
				case "hgetall", "hkeys", "hvals", "keys", "hscan":
					if n > 0 {
						t.Errorf("%s looks at all of them", cmd)
					}
				}
				if n > 2*few[cmd]+20 {
					t.Errorf("%s is called %d times beside 5,000 readers, %d times beside 20", cmd, n, few[cmd])
				}
			}
		})
	}
}

// addReaders adds readers of other clients to Redis.
func (fx *redisFixture) addReaders(t testing.TB, name string, n int, lease func(i int) time.Duration) {
	t.Helper()
	longest := time.Duration(0)
	_, err := fx.rdb.Pipelined(bg, func(p redis.Pipeliner) error {
		p.HSet(bg, name, "mode", "read")
		for i := range n {
			owner := fmt.Sprint("another client:", i)
			p.HSet(bg, name, owner, "1")
			p.Set(bg, wire.ReadTimeout(name, owner, 1), "1", lease(i))
			longest = max(longest, lease(i))
		}
		return nil
	})
	if err == nil && fx.rdb.PTTL(bg, name).Val() < longest {
		err = fx.rdb.PExpire(bg, name, longest).Err()
	}
	if err != nil {
		t.Fatal(err)
	}
}

// commandStats returns how often each command was called, by scripts too.
func (fx *redisFixture) commandStats(t testing.TB) map[string]int {
	t.Helper()
	text, err := fx.rdb.Info(bg, "commandstats").Result()
	if err != nil {
		t.Fatal(err)
	}
	stats := make(map[string]int)
	for line := range strings.Lines(text) {
		if rest, ok := strings.CutPrefix(line, "cmdstat_"); ok {
			cmd, values, _ := strings.Cut(rest, ":calls=")
			calls, _, _ := strings.Cut(values, ",")
			if stats[cmd], err = strconv.Atoi(calls); err != nil {
				t.Fatalf("%q: %v", line, err)
			}
		}
	}
	return stats
}

// A renewal that was sent before a read re-entry was known does not prolong the new level's timeout
// key, so it must not move the deadline. The next renewal does.
func TestRead_RenewalBesideAReentry(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	c := fx.newLocks(t)
	read := c.ReadWriteLock("a").Read()
	outer := mustAcquire(t, bg, read, AcquireOptions{})
	h := holdOf(outer)
	asked := h.renewable()
	inner := mustAcquire(t, outer.Context(), read, AcquireOptions{})
	before := inner.Remaining()
	sent := c.clock().Add(time.Hour) // as if long after the re-entry
	if h.handleRenewed(sent, c.leaseTime(0), asked, lua.Renewal{Renewed: true}) {
		t.Error("the renewal counts for a level that it did not know")
	}
	if after := inner.Remaining(); after > before {
		t.Errorf("the inner lease went from %v to %v", before, after)
	}
	if !h.handleRenewed(sent, c.leaseTime(0), h.renewable(), lua.Renewal{Renewed: true}) || inner.Remaining() <= before {
		t.Error("the next renewal does not count")
	}
	mustRelease(t, inner)
	mustRelease(t, outer)
}
