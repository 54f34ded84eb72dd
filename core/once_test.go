package core

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/reqlock/reqlock/core/internal/kinds"
	"github.com/reqlock/reqlock/internal/lab/redistest"
)

// outcome is what Once.Acquire returned.
type outcome struct {
	lease  *OnceLease
	record string
	bytes  []byte // of the record
	err    error
}

func acquireOnce(ctx context.Context, o *Once, opts AcquireOptions) (r outcome) {
	lease, record, err := o.Acquire(ctx, opts)
	return outcome{lease, string(record), record, err}
}

func acquireOnceAsync(ctx context.Context, o *Once, opts AcquireOptions) <-chan outcome {
	result := make(chan outcome, 1)
	go func() { result <- acquireOnce(ctx, o, opts) }()
	return result
}

// mustBegin acquires the lock of a Once for a new owner.
func mustBegin(t testing.TB, o *Once, opts AcquireOptions) *OnceLease {
	t.Helper()
	r := acquireOnce(bg, o, opts)
	if r.err != nil || r.lease == nil || r.record != "" {
		t.Fatalf("Acquire: %+v, want the lock", r)
	}
	return r.lease
}

func mustRecord(t testing.TB, lease *OnceLease, record string, ttl time.Duration) {
	t.Helper()
	if err := lease.ReleaseWith(bg, []byte(record), ttl); err != nil {
		t.Fatalf("ReleaseWith: %v", err)
	}
}

// wantRecord checks that there is a record in place of the lock.
func wantRecord(t testing.TB, o *Once, want string) {
	t.Helper()
	if r := acquireOnce(bg, o, AcquireOptions{}); r.err != nil || r.lease != nil || r.record != want {
		t.Fatalf("Acquire: %+v, want the record %q", r, want)
	}
}

// wantOnceLocked checks that the lock is held.
func wantOnceLocked(t testing.TB, o *Once) {
	t.Helper()
	if r := acquireOnce(bg, o, AcquireOptions{}); !errors.Is(r.err, ErrNotAcquired) || r.lease != nil || r.record != "" {
		t.Fatalf("Acquire: %+v, want ErrNotAcquired", r)
	}
}

// wantStored checks what is in Redis beside the lock, which must be free. A test calls deleteRecord
// at its end.
func (fx *redisFixture) wantStored(t testing.TB, name, want string, ttl time.Duration) {
	t.Helper()
	fx.wantFields(t, name, nil)
	key := "{" + name + "}:record"
	if got := fx.rdb.HGet(bg, key, "record").Val(); got != want {
		t.Fatalf("stored: %q, want %q", got, want)
	}
	if left := fx.pttl(t, key); want != "" && (left > ttl || left < ttl-patience) {
		t.Errorf("the record has %v to live, want %v", left, ttl)
	}
}

func (fx *redisFixture) deleteRecord(t testing.TB, name string) {
	t.Helper()
	if err := fx.rdb.Del(bg, "{"+name+"}:record").Err(); err != nil {
		t.Fatal(err)
	}
}

// A first run costs two round trips. A replay costs one, and takes no lock.
func TestOnce_RoundTrips(t *testing.T) {
	t.Parallel()
	for _, marker := range []bool{false, true} {
		t.Run(fmt.Sprintf("marker %v", marker), func(t *testing.T) {
			t.Parallel()
			fx := newRedis(t)
			c, proxy := fx.newProxiedLocks(t)
			defer fx.deleteRecord(t, "a")
			once := c.Once("a")
			if marker {
				once = once.WithMarker([]byte("running"), time.Hour)
			}
			commands := countCommands(proxy, func(args []string) bool { return strings.HasPrefix(args[0], "EVAL") })
			lease := mustBegin(t, once, AcquireOptions{})
			mustRecord(t, lease, "done", time.Hour)
			if n := commands(); n != 2 {
				t.Errorf("a first run costs %d commands", n)
			}
			l := fx.subscribe(t, kinds.Plain.Channel("a", ""))
			for range 10 {
				wantRecord(t, once, "done")
				fx.wantFields(t, "a", nil)
			}
			if n := commands(); n != 2+10 {
				t.Errorf("10 replays cost %d commands", n-2)
			}
			if got := l.messages(t); len(got) != 0 {
				t.Errorf("a replay has published %q", got)
			}
			l.close(t)
		})
	}
}

// Waiters in the holder's process get the record from the holder, without a command, even if the
// message about the release comes before the reply.
func TestOnce_WaitersOfTheHoldersProcess(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	c, proxy := fx.newProxiedLocks(t, pollInterval(never), commandTimeout(patience))
	defer fx.deleteRecord(t, "a")
	once := c.Once("a")
	lease := mustBegin(t, once, AcquireOptions{LeaseTime: time.Hour})
	waiters := waitForRecord(t, c, once, 100)
	eventuallyAsleep(t, c, "a")
	commands := countCommands(proxy, runsScript())
	rule := proxy.OnMatch(1, runsScript(onceRecordScript), redistest.HoldReply)
	released := make(chan error, 1)
	before := wakeCount(c, "a")
	go func() { released <- lease.ReleaseWith(bg, []byte("done"), time.Hour) }()
	mustReceive(t, "Redis to have the record", rule.Hit())
	eventually(t, "the first waiter to see the message", func() bool {
		e := c.names.open("a", false)
		defer e.close()
		first := e.queue.Waiters()[0]
		wakes, _ := first.Wakes()
		return wakes != before && len(first.Item.signal) == 0
	})
	waiters = append(waiters, waitForRecord(t, c, once, 10)...)
	rule.Release()
	if err := mustReceive(t, "ReleaseWith to return", released); err != nil {
		t.Fatal(err)
	}
	wantRecords(t, waiters, "done")
	if n := commands(); n != 1 {
		t.Errorf("%d commands for a release and 110 waiters, want 1", n)
	}

	// Another time the queue is empty when the holder begins to leave.
	fx.deleteRecord(t, "a")
	lease = mustBegin(t, once, AcquireOptions{LeaseTime: time.Hour})
	rule = proxy.OnMatch(1, runsScript(onceRecordScript), redistest.HoldReply)
	go func() { released <- lease.ReleaseWith(bg, []byte("done"), time.Hour) }()
	mustReceive(t, "Redis to have the record", rule.Hit())
	fx.deleteRecord(t, "a") // another attempt would get the lock
	waiters = waitForRecord(t, c, once, 10)
	rule.Release()
	if err := mustReceive(t, "ReleaseWith to return", released); err != nil {
		t.Fatal(err)
	}
	wantRecords(t, waiters, "done")
}

// waitForRecord adds n waiters for a held lock.
func waitForRecord(t *testing.T, c *Client, once *Once, n int) (waiters []<-chan outcome) {
	t.Helper()
	return waitForRecordWith(t, c, once, n, WaitForever)
}

func waitForRecordWith(t *testing.T, c *Client, once *Once, n int, wait time.Duration) (waiters []<-chan outcome) {
	t.Helper()
	all := c.Stats().Waiting + n
	for range n {
		waiters = append(waiters, acquireOnceAsync(bg, once, AcquireOptions{WaitTime: wait, LeaseTime: time.Hour}))
	}
	eventually(t, "all callers to wait", func() bool { return c.Stats().Waiting == all })
	return waiters
}

func wantRecords(t *testing.T, waiters []<-chan outcome, want string) {
	t.Helper()
	for _, w := range waiters {
		if r := mustReceive(t, "a waiter to be told", w); r.err != nil || r.record != want {
			t.Fatalf("a waiter has got %+v, want the record %q", r, want)
		}
	}
}

// Waiters in another process get the record by one message and one command.
func TestOnce_WaitersOfAnotherProcess(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	holder := fx.newLocks(t)
	c, proxy := fx.newProxiedLocks(t, pollInterval(never), commandTimeout(patience))
	defer fx.deleteRecord(t, "a")
	lease := mustBegin(t, holder.Once("a"), AcquireOptions{LeaseTime: time.Hour})
	waiters := waitForRecord(t, c, c.Once("a"), 100)
	eventuallyAsleep(t, c, "a")
	commands := countCommands(proxy, runsScript())
	mustRecord(t, lease, "done", time.Hour)
	wantRecords(t, waiters, "done")
	if n := commands(); n != 1 {
		t.Errorf("%d commands for 100 waiters, want 1", n)
	}
}

// A holder may change its record after it has left it. Those who wait in one process share the
// bytes.
func TestOnce_SharedRecord(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	c := fx.newLocks(t, pollInterval(never))
	defer fx.deleteRecord(t, "a")
	lease := mustBegin(t, c.Once("a"), AcquireOptions{})
	waiters := waitForRecord(t, c, c.Once("a"), 2)
	eventuallyAsleep(t, c, "a") // a reply that is under way would have the record, too
	mine := []byte("done")
	if err := lease.ReleaseWith(bg, mine, time.Hour); err != nil {
		t.Fatal(err)
	}
	copy(mine, "XXXX")
	var records [][]byte
	for _, w := range waiters {
		r := mustReceive(t, "a waiter to be told", w)
		if r.err != nil || r.record != "done" {
			t.Fatalf("a waiter has got %+v, want the record", r)
		}
		records = append(records, r.bytes)
	}
	if &records[0][0] != &records[1][0] {
		t.Error("each waiter has a copy of its own")
	}
}

// Callers that do not wait get a record also while others of their process are asking for it.
func TestOnce_TheQueueDoesNotHideTheRecord(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	c, proxy := fx.newProxiedLocks(t, commandTimeout(patience))
	defer fx.deleteRecord(t, "a")
	once := c.Once("a")
	mustRecord(t, mustBegin(t, once, AcquireOptions{}), "done", time.Hour)

	rule := proxy.OnMatch(1, runsScript(onceAcquireScript), redistest.HoldReply)
	first := acquireOnceAsync(bg, once, AcquireOptions{})
	mustReceive(t, "the first to ask", rule.Hit())
	wantRecord(t, once, "done")
	second := acquireOnceAsync(bg, once, AcquireOptions{WaitTime: patience, MaxWaiters: 1})
	eventually(t, "the second to wait", func() bool { return c.Stats().Waiting == 2 })
	if r := acquireOnce(bg, once, AcquireOptions{WaitTime: patience, MaxWaiters: 1}); r.record != "done" {
		t.Errorf("one too many: %+v", r)
	}
	rule.Release()
	wantRecords(t, []<-chan outcome{first, second}, "done")

	// Without a record, they hear what they would hear of any lock.
	fx.deleteRecord(t, "a")
	lease := mustBegin(t, once, AcquireOptions{})
	waiters := waitForRecord(t, c, once, 1)
	wantOnceLocked(t, once)
	if r := acquireOnce(bg, once, AcquireOptions{WaitTime: patience, MaxWaiters: 1}); !errors.Is(r.err, ErrTooManyWaiters) {
		t.Errorf("one too many: %+v", r)
	}
	mustRecord(t, lease, "done", time.Hour)
	wantRecords(t, waiters, "done")
}

// A waiter for the plain lock of the same name gets the lock, and not the record.
func TestOnce_PlainLock(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	c := fx.newLocks(t)
	defer fx.deleteRecord(t, "a")
	lease := mustBegin(t, c.Once("a"), AcquireOptions{})
	plain := acquireAsync(bg, c.Lock("a"), AcquireOptions{WaitTime: patience})
	eventually(t, "it to wait", func() bool { return c.Stats().Waiting == 1 })
	waiters := append(waitOneMore(t, c, 2), waitOneMore(t, c, 3)...)
	mustRecord(t, lease, "done", time.Hour)
	wantRecords(t, waiters, "done")
	next := mustReceiveLease(t, "the waiter to be handed the lock", plain)
	wantOnceLocked(t, c.Once("a")) // the lock comes first
	wantErr(t, "ReleaseWith of a plain lock", (&OnceLease{next}).ReleaseWith(bg, []byte("x"), time.Hour), ErrInvalidOptions)
	mustRelease(t, next)
	wantRecord(t, c.Once("a"), "done")
}

func waitOneMore(t *testing.T, c *Client, total int) []<-chan outcome {
	t.Helper()
	w := acquireOnceAsync(bg, c.Once("a"), AcquireOptions{WaitTime: patience})
	eventually(t, "it to wait", func() bool { return c.Stats().Waiting == total })
	return []<-chan outcome{w}
}

// When a holder fails the next waiter runs, and the rest gets its record.
func TestOnce_Failure(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	defer fx.deleteRecord(t, "a")
	var clients []*Client
	for range 3 {
		clients = append(clients, fx.newLocks(t))
	}
	var runs, failures, replays atomic.Int64
	var callers sync.WaitGroup
	for i := range 60 {
		once := clients[i%3].Once("a")
		if i%2 == 0 {
			once = once.WithMarker([]byte("running"), time.Hour)
		}
		callers.Go(func() {
			r := acquireOnce(bg, once, AcquireOptions{WaitTime: patience})
			switch {
			case r.err != nil:
				t.Error(r.err)
			case r.lease == nil:
				if r.record != "done" {
					t.Errorf("record %q", r.record)
				}
				replays.Add(1)
			case failures.Add(1) <= 5:
				if err := r.lease.Release(bg); err != nil {
					t.Error(err)
				}
			default:
				runs.Add(1)
				if err := r.lease.ReleaseWith(bg, []byte("done"), time.Hour); err != nil {
					t.Error(err)
				}
			}
		})
	}
	callers.Wait()
	if runs.Load() != 1 || replays.Load() != 60-6 {
		t.Errorf("%d runs and %d replays, want 1 and 54", runs.Load(), replays.Load())
	}
}
