//go:build interop

package redisson

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/reqlock/reqlock/core"
)

// forEver is the score of a permit of Redisson without a lease.
const forEver = 922337203685477

// testPermits tests semaphores that both sides use. The JVM's are RPermitExpirableSemaphore.
func (topo *topology) testPermits(t *testing.T) {
	single, several := topo.name == "single", !topo.version.before(hasSetPermits)
	for _, test := range []struct {
		name string
		here bool
		run  func(t *testing.T)
	}{
		{"taken", true, topo.testPermitsTaken},
		{"several at once", several, topo.testPermitsSeveral},
		{"expired", true, topo.testPermitsExpired},
		{"wake-ups", true, topo.testPermitsWakeUps},
		{"set", several, topo.testPermitsSet},
		{"set in code", true, topo.testPermitsInCode},
		{"for ever", true, topo.testPermitsForEver},
		{"ids", true, topo.testPermitIDs},
		{"updated", true, topo.testPermitsUpdated},
		{"guests", !topo.apart, topo.testPermitGuests},
		{"clock ahead, renewed", single, topo.testPermitsClockAhead},
		{"clock too far ahead", single, topo.testPermitsClockTooFarAhead},
		{"hammer", true, topo.testPermitsHammer},
	} {
		if test.here {
			t.Run(test.name, func(t *testing.T) {
				t.Parallel()
				test.run(t)
			})
		}
	}
}

// shared is a semaphore of both sides. Its methods that begin with jvm ask the JVM.
type shared struct {
	*core.Semaphore
	topo   *topology
	peer   *peer
	name   string
	thread string
}

// share returns a semaphore with permits that the JVM has set. Ours takes what Redis has.
func (topo *topology) share(t *testing.T, permits int) shared {
	t.Helper()
	name := newName("permits")
	s := shared{topo.clients(t)[0].Semaphore(name, 0), topo, topo.peer, name, newName("thread")}
	if permits > 0 {
		s.jvmWant(t, true, "trySetPermits", permits)
	}
	return s
}

func (s shared) jvm(t *testing.T, command string, args ...any) string {
	t.Helper()
	return s.peer.ask(t, s.thread, command, append([]any{semaphore.name, s.name}, args...)...)
}

func (s shared) jvmWant(t *testing.T, want any, command string, args ...any) {
	t.Helper()
	s.peer.want(t, want, s.thread, command, append([]any{semaphore.name, s.name}, args...)...)
}

// jvmTake takes one permit and returns its id.
func (s shared) jvmTake(t *testing.T, lease time.Duration) string {
	t.Helper()
	id := s.jvm(t, "tryAcquire", 0, lease.Milliseconds(), 1)
	if id == "" {
		t.Fatal("the JVM was refused a permit that is free")
	}
	return id
}

// jvmWait starts a thread that waits for permits without a lease. It returns once the thread sleeps.
func (s shared) jvmWait(t *testing.T, permits int) *reply {
	t.Helper()
	thread := newName("waiter")
	got := s.peer.send(t, thread, "acquire", semaphore.name, s.name, -1, permits)
	await(t, "the JVM to wait", func() bool { return s.peer.ask(t, thread, "waits") != "no" })
	return got
}

// jvmWoken returns what a thread got that waited. It has been woken: it would try again by itself
// only when the next permit expires.
func (s shared) jvmWoken(t *testing.T, got *reply) string {
	t.Helper()
	select {
	case <-got.done:
	case <-time.After(watchdog / 2):
		t.Fatal("the JVM was not woken")
	}
	id, err := s.peer.result(t, got)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// take takes permits for as long as the watchdog renews them.
func (s shared) take(t *testing.T, n int) *core.Lease {
	t.Helper()
	l, err := s.AcquireN(t.Context(), n, core.AcquireOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// wait waits for a permit, and returns once it listens.
func (s shared) wait(t *testing.T) <-chan *core.Lease {
	t.Helper()
	got := make(chan *core.Lease, 1)
	go func() {
		l, err := s.Acquire(context.Background(), core.AcquireOptions{WaitTime: patience})
		if err != nil {
			t.Error(err)
		}
		got <- l
	}()
	await(t, "us to listen", func() bool { return s.topo.listeners(t, s.name) > 0 })
	return got
}

// refused checks that neither side gets n permits.
func (s shared) refused(t *testing.T, n int) {
	t.Helper()
	if _, err := s.AcquireN(t.Context(), n, core.AcquireOptions{}); !errors.Is(err, core.ErrNotAcquired) {
		t.Errorf("we asked for %d permits: %v, want a refusal", n, err)
	}
	s.jvmWant(t, "", "tryAcquire", 0, lease.Milliseconds(), n)
}

// want checks that both sides see so many permits, and so many free ones, and that Redis has ids of
// the others.
func (s shared) want(t *testing.T, permits, free int) {
	t.Helper()
	if n, err := s.Permits(t.Context()); n != permits || err != nil {
		t.Errorf("%d permits for us (%v), want %d", n, err, permits)
	}
	if n, err := s.Available(t.Context()); n != max(free, 0) || err != nil {
		t.Errorf("%d free permits for us (%v), want %d", n, err, free)
	}
	s.jvmWant(t, free, "availablePermits")
	if !s.topo.version.before(hasSetPermits) {
		s.jvmWant(t, permits, "getPermits")
	}
	if n := len(s.taken(t)); n != permits-free {
		t.Errorf("Redis has %d ids, want %d", n, permits-free)
	}
}

// taken returns the permits in Redis by their ids.
func (s shared) taken(t *testing.T) map[string]int64 {
	t.Helper()
	all, err := s.topo.rdbs[0].ZRangeWithScores(t.Context(), "{"+s.name+"}:timeout", 0, -1).Result()
	if err != nil {
		t.Fatal(err)
	}
	scores := make(map[string]int64)
	for _, z := range all {
		scores[z.Member.(string)] = int64(z.Score)
	}
	return scores
}

// inRedis returns the id of a permit of the JVM as Redis has it.
func (s shared) inRedis(t *testing.T, id string) string {
	t.Helper()
	if s.topo.version.before(textPermitIDs) {
		return id
	}
	raw, err := hex.DecodeString(id)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// Permits that one side has taken are refused to the other, and those that it gives back are free
// for both.
func (topo *topology) testPermitsTaken(t *testing.T) {
	s := topo.share(t, 2)
	s.want(t, 2, 2)
	ours, theirs := s.take(t, 1), s.jvmTake(t, lease)
	s.want(t, 2, 0)
	s.refused(t, 1)
	mustRelease(t, ours)
	s.want(t, 2, 1)
	second := s.jvmTake(t, lease)
	s.refused(t, 1)
	s.jvm(t, "release", theirs)
	ours = s.take(t, 1)
	s.refused(t, 1)
	s.jvmWant(t, false, "tryRelease", theirs) // a second time
	s.want(t, 2, 0)
	s.jvm(t, "release", second)
	mustRelease(t, ours)
	s.want(t, 2, 2)
}

// Each side takes several permits or none.
func (topo *topology) testPermitsSeveral(t *testing.T) {
	s := topo.share(t, 5)
	ours := []*core.Lease{s.take(t, 3)}
	if topo.version.before(wakesForSeveral) {
		mustRelease(t, ours[0])
		ours = []*core.Lease{s.take(t, 1), s.take(t, 2)}
	}
	s.want(t, 5, 2)
	s.refused(t, 3)
	theirs := s.jvm(t, "acquire", lease.Milliseconds(), 2)
	s.want(t, 5, 0)
	s.refused(t, 1)

	// A thread that wants two permits is woken by the message that three are free. In old versions it
	// waits for as many messages as it wants permits.
	waiting := s.jvmWait(t, 2)
	for _, l := range ours {
		mustRelease(t, l)
	}
	got := s.jvmWoken(t, waiting)
	s.want(t, 5, 1)
	s.jvm(t, "release", theirs)
	last := s.take(t, 3)
	s.refused(t, 1)
	s.jvm(t, "release", got)
	mustRelease(t, last)
	s.want(t, 5, 5)
}

// A permit that has expired is free for the other side, and no sooner.
func (topo *topology) testPermitsExpired(t *testing.T) {
	s := topo.share(t, 1)
	rest := func(id string) time.Duration { return time.Until(time.UnixMilli(s.taken(t)[id])) }
	id := s.jvmTake(t, 700*time.Millisecond)
	began := rest(s.inRedis(t, id))
	start := time.Now()
	ours := mustAcquire(t, t.Context(), s.Semaphore)
	if took := time.Since(start); took < began-50*time.Millisecond {
		t.Errorf("we took the JVM's permit after %v, %v before its end", took, began)
	}
	s.jvmWant(t, false, "tryRelease", id)
	s.want(t, 1, 0)
	mustRelease(t, ours)

	ours, err := s.Acquire(t.Context(), core.AcquireOptions{LeaseTime: 700 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	id = s.jvm(t, "acquire", lease.Milliseconds(), 1)
	if ours.Err() == nil {
		t.Error("the JVM has our permit, and our lease has not ended")
	}
	if err := ours.Release(t.Context()); !errors.Is(err, core.ErrLockLost) {
		t.Errorf("Release of an expired permit: %v, want ErrLockLost", err)
	}
	s.want(t, 1, 0)
	s.jvm(t, "release", id)
	s.want(t, 1, 1)
}

// A waiter is woken by whatever makes a permit free, long before it would poll: permits are set on
// a name that has none, released, or added.
func (topo *topology) testPermitsWakeUps(t *testing.T) {
	s := topo.share(t, 0)
	hears := func(what string, got <-chan *core.Lease) *core.Lease {
		t.Helper()
		select {
		case l := <-got:
			return l
		case <-time.After(poll / 2):
			t.Fatalf("we were not woken when %s", what)
			return nil
		}
	}
	got := s.wait(t)
	s.jvmWant(t, true, "trySetPermits", 1)
	ours := hears("the JVM set permits", got)

	waiting := s.jvmWait(t, 1)
	mustRelease(t, ours)
	id := s.jvmWoken(t, waiting)
	got = s.wait(t)
	s.jvm(t, "release", id)
	ours = hears("the JVM released a permit", got)

	got = s.wait(t)
	s.jvm(t, "addPermits", 1)
	second := hears("the JVM added a permit", got)

	waiting = s.jvmWait(t, 1)
	if err := s.SetPermits(t.Context(), 3); err != nil {
		t.Fatal(err)
	}
	id = s.jvmWoken(t, waiting)
	s.want(t, 3, 0)
	s.jvm(t, "release", id)
	mustRelease(t, ours)
	mustRelease(t, second)

	// The first use of a number in code makes permits for a JVM that waits for some.
	first := shared{s.Semaphore, topo, topo.peer, newName("permits"), s.thread}
	first.Semaphore = topo.clients(t)[0].Semaphore(first.name, 2)
	waiting = first.jvmWait(t, 1)
	ours = first.take(t, 1)
	first.jvmWoken(t, waiting)
	first.want(t, 2, 0)
	mustRelease(t, ours)
}

// Either side sets how many permits there are. Holders keep theirs if there are fewer.
func (topo *topology) testPermitsSet(t *testing.T) {
	s := topo.share(t, 2)
	ours, theirs := s.take(t, 1), s.jvmTake(t, lease)
	if err := s.SetPermits(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	s.want(t, 1, -1)
	s.refused(t, 1)
	mustRelease(t, ours)
	s.refused(t, 1)
	s.jvm(t, "release", theirs)
	s.want(t, 1, 1)

	s.jvm(t, "setPermits", 3)
	s.want(t, 3, 3)
	ours = s.take(t, 2)
	s.jvm(t, "setPermits", 1)
	s.want(t, 1, -1)
	s.refused(t, 1)
	s.jvm(t, "addPermits", 3)
	s.want(t, 4, 2)
	mustRelease(t, ours)
	s.jvmWant(t, false, "trySetPermits", 9)
	s.want(t, 4, 4)
	if ttl := topo.rdbs[0].PTTL(t.Context(), s.name).Val(); ttl != -1 {
		t.Errorf("a key that a JVM has made expires in %v", ttl)
	}
}

// A number in code is in force whatever the JVM takes and gives back meanwhile. If a JVM sets
// another, the next Acquire corrects that.
func (topo *topology) testPermitsInCode(t *testing.T) {
	s := topo.share(t, 0)
	s.Semaphore = topo.clients(t)[0].Semaphore(s.name, 3)
	for range 3 {
		ours, first, second := s.take(t, 1), s.jvmTake(t, lease), s.jvmTake(t, lease)
		s.want(t, 3, 0)
		s.refused(t, 1)
		s.jvm(t, "release", first)
		mustRelease(t, ours)
		ours = s.take(t, 2)
		s.refused(t, 1)
		s.jvm(t, "release", second)
		s.want(t, 3, 1)
		mustRelease(t, ours)
		s.want(t, 3, 3)
	}
	id := s.jvmTake(t, lease)
	for _, key := range []string{s.name, "{" + s.name + "}:timeout", "{" + s.name + "}:permits"} {
		if ttl := topo.rdbs[0].PTTL(t.Context(), key).Val(); ttl < 23*time.Hour || ttl > 24*time.Hour {
			t.Errorf("%s expires in %v, want a day", key, ttl)
		}
	}
	s.jvm(t, "addPermits", 2)
	ours := s.take(t, 1)
	s.want(t, 3, 1)
	mustRelease(t, ours)
	s.jvm(t, "release", id)
	s.want(t, 3, 3)
}

// A permit without a lease stays, whatever expires around it.
func (topo *topology) testPermitsForEver(t *testing.T) {
	s := topo.share(t, 2)
	id := s.jvm(t, "acquire", -1, 1)
	raw := s.inRedis(t, id)
	if score := s.taken(t)[raw]; score != forEver {
		t.Fatalf("the score is %d, want %d", score, int64(forEver))
	}
	for range 2 {
		_, err := s.Acquire(t.Context(), core.AcquireOptions{LeaseTime: 100 * time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		ours := mustAcquire(t, t.Context(), s.Semaphore) // after the end of the first
		s.refused(t, 1)
		mustRelease(t, ours)
	}
	second := s.jvm(t, "acquire", -1, 1)
	_, err := s.Acquire(t.Context(), core.AcquireOptions{WaitTime: 100 * time.Millisecond})
	var refused *core.NotAcquiredError
	if !errors.As(err, &refused) || refused.TTL > 0 {
		t.Errorf("behind permits for ever: %v, want that no end is known", err)
	}
	if score := s.taken(t)[raw]; score != forEver {
		t.Errorf("the score is %d, want %d", score, int64(forEver))
	}
	got := s.wait(t)
	s.jvm(t, "release", second)
	mustRelease(t, <-got)
	s.jvm(t, "release", id)
	s.want(t, 2, 2)
}

// Ids of the JVM are left as they are: text in old versions, 16 bytes of any value in new ones. Ours
// are readable, and no JVM takes them for its own.
func (topo *topology) testPermitIDs(t *testing.T) {
	s := topo.share(t, 40)
	theirs := make(map[string]string)
	for range 20 { // some of them have bytes that are no text
		id := s.jvmTake(t, lease)
		theirs[s.inRedis(t, id)] = id
	}
	ours, err := s.AcquireN(t.Context(), 20, core.AcquireOptions{LeaseTime: lease})
	if err != nil {
		t.Fatal(err)
	}
	s.refused(t, 1)
	if err := ours.Extend(t.Context(), 2*lease); err != nil {
		t.Error(err)
	}
	mine := 0
	for id := range s.taken(t) {
		_, known := theirs[id]
		switch {
		case known && topo.version.before(textPermitIDs) && len(id) != 32, known && !topo.version.before(textPermitIDs) && len(id) != 16:
			t.Errorf("an id of the JVM has %d bytes", len(id))
		case !known && strings.Count(id, ":") > 0:
			mine++
			if topo.version.before(textPermitIDs) {
				continue
			}
			if _, err := s.peer.result(t, s.peer.send(t, s.thread, "tryRelease", semaphore.name, s.name, id)); err == nil {
				t.Errorf("the JVM accepts %q as an id", id)
			}
		case !known:
			t.Errorf("nobody knows the id %q", id)
		}
	}
	if mine != 20 || len(s.taken(t)) != 40 {
		t.Errorf("%d ids in Redis, %d of them ours; want 40, and 20", len(s.taken(t)), mine)
	}
	mustRelease(t, ours)
	if n := len(s.taken(t)); n != 20 {
		t.Errorf("%d ids after our release, want 20", n)
	}
	for _, id := range theirs {
		s.jvm(t, "release", id)
	}
	s.want(t, 40, 40)
}

// The JVM may prolong its permits, and shorten them.
func (topo *topology) testPermitsUpdated(t *testing.T) {
	s := topo.share(t, 1)
	id := s.jvmTake(t, lease)
	s.jvmWant(t, true, "updateLeaseTime", id, 2*lease.Milliseconds())
	_, err := s.Acquire(t.Context(), core.AcquireOptions{})
	var refused *core.NotAcquiredError
	if !errors.As(err, &refused) || refused.TTL <= lease || refused.TTL > 2*lease {
		t.Errorf("after a longer lease: %v, want more than %v", err, lease)
	}
	s.jvmWant(t, true, "updateLeaseTime", id, 200)
	ours := mustAcquire(t, t.Context(), s.Semaphore)
	s.jvmWant(t, false, "updateLeaseTime", id, lease.Milliseconds())
	s.want(t, 1, 0)
	mustRelease(t, ours)
}

// ahead returns a semaphore with one permit that we hold, and a JVM whose clock is ahead.
func (topo *topology) ahead(t *testing.T, ahead, watchdog time.Duration) (shared, *core.Lease) {
	t.Helper()
	s := topo.share(t, 1)
	s.Semaphore = topo.clients(t, func(o *core.Options) { o.WatchdogTimeout = watchdog })[0].Semaphore(s.name, 0)
	s.peer = topo.newPeer(t, func(o *peerOptions) { o.ahead = ahead })
	free := s.jvmTake(t, lease)
	for _, score := range s.taken(t) {
		if off := time.Until(time.UnixMilli(score)) - lease - ahead; off.Abs() > 5*time.Second {
			t.Fatalf("the JVM's clock is %v ahead, want %v", off+ahead, ahead)
		}
	}
	s.jvm(t, "release", free)
	return s, s.take(t, 1)
}

// A JVM whose clock is 20s ahead does not take a permit that the watchdog renews every 20s for 60s:
// 40s of it are left at any time.
func (topo *topology) testPermitsClockAhead(t *testing.T) {
	s, ours := topo.ahead(t, 20*time.Second, time.Minute)
	waiting := s.jvmWait(t, 1)
	renewed := func(before map[string]int64) map[string]int64 {
		now := before
		await(t, "a renewal", func() bool {
			s.jvmWant(t, 0, "availablePermits") // this expires permits, too
			now = s.taken(t)
			for id, score := range now {
				return score > before[id]
			}
			return true
		})
		return now
	}
	first := s.taken(t)
	second := renewed(first)
	for id := range first {
		if second[id] == 0 {
			t.Errorf("%s is gone", id)
		}
	}
	if err := ours.Err(); err != nil {
		t.Error(err)
	}
	s.refused(t, 1)
	mustRelease(t, ours)
	if _, err := s.peer.result(t, waiting); err != nil {
		t.Error(err)
	}
}

// A JVM whose clock is further ahead than a permit lasts between renewals takes it. The holder
// learns that from the next renewal, which finds the permit gone.
func (topo *topology) testPermitsClockTooFarAhead(t *testing.T) {
	s, ours := topo.ahead(t, 25*time.Second, 30*time.Second)
	began := time.Now()
	id := s.jvm(t, "acquire", lease.Milliseconds(), 1)
	taken := time.Since(began)
	select {
	case <-ours.Done():
	case <-time.After(patience):
		t.Fatal("the holder has not learnt of the loss")
	}
	t.Logf("taken after %v; the holder learnt of it %v later", taken, time.Since(began)-taken)
	if taken > 20*time.Second {
		t.Errorf("the JVM took the permit after %v, want after 5s, when 25s of it are left", taken)
	}
	if cause := context.Cause(ours.Context()); !errors.Is(cause, core.ErrLockLost) {
		t.Errorf("the lease ended with %v, want ErrLockLost", cause)
	}
	if since := time.Since(began); since > 15*time.Second {
		t.Errorf("the holder learnt of it %v after its acquire, want the next renewal, after 10s", since)
	}
	if err := ours.Release(t.Context()); !errors.Is(err, core.ErrLockLost) {
		t.Errorf("Release: %v, want ErrLockLost", err)
	}
	s.want(t, 1, 0)
	s.jvm(t, "release", id)
}

const (
	hammeredPermits = 3
	hammerTime      = 10 * time.Second
)

// testPermitsHammer lets 4 threads and 4 goroutines share 3 permits. Each counts itself in and out.
func (topo *topology) testPermitsHammer(t *testing.T) {
	s, key := topo.share(t, hammeredPermits), newName("inside")
	var replies []*reply
	for range 4 {
		replies = append(replies, s.peer.send(t, newName("hammer"), "hammer", semaphore.name, s.name,
			hammerLease.Milliseconds(), hammerTime.Milliseconds(), hammeredPermits, key))
	}
	var ours sync.WaitGroup
	var rounds [4]int
	for i := range rounds {
		ours.Go(func() {
			for end := time.Now().Add(hammerTime); time.Now().Before(end); rounds[i]++ {
				err := core.Do(context.Background(), s, core.AcquireOptions{WaitTime: patience, LeaseTime: hammerLease}, func(ctx context.Context) error {
					return countIn(ctx, topo.rdbs[0], key)
				})
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	ours.Wait()
	var theirs []int
	for _, r := range replies {
		value, err := s.peer.result(t, r)
		if err != nil {
			t.Error(err)
			continue
		}
		n, err := strconv.Atoi(value)
		if err != nil || n == 0 {
			t.Errorf("a thread had %q permits (%v)", value, err)
		}
		theirs = append(theirs, n)
	}
	t.Logf("permits of each goroutine %v, of each thread %v", rounds, theirs)
	for i, n := range rounds {
		if n == 0 {
			t.Errorf("goroutine %d had no permit", i)
		}
	}
	s.want(t, hammeredPermits, hammeredPermits)
}

// countIn counts a holder in and out.
func countIn(ctx context.Context, rdb redis.UniversalClient, key string) error {
	in, err := rdb.Incr(ctx, key).Result()
	if err != nil {
		return err
	}
	if err := rdb.Decr(ctx, key).Err(); err != nil {
		return err
	}
	if in > hammeredPermits {
		return fmt.Errorf("%d are in with %d permits", in, hammeredPermits)
	}
	return nil
}
