package core

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/reqlock/reqlock/core/internal/wire"
	"github.com/reqlock/reqlock/internal/lab/redistest"
)

// Each acquisition of any client draws the next token. Re-entries and refusals draw none. Redisson:
// testTokenIncrease.
func TestFenced_EachAcquisitionDrawsTheNextToken(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	clients := []*Client{fx.newLocks(t), fx.newLocks(t)}
	options := []AcquireOptions{forever, {WaitTime: patience}, {WaitTime: patience, LeaseTime: time.Minute}}
	var tokens []uint64 // guarded by the lock
	inParallel(6, func(i int) {
		c, other := clients[i%2], clients[1-i%2]
		for round := range 10 {
			lease, err := c.FencedLock("a").Acquire(bg, options[(i+round)%len(options)])
			if err != nil {
				t.Errorf("Acquire: %v", err)
				return
			}
			again, err := c.FencedLock("a").Acquire(lease.Context(), AcquireOptions{})
			if err != nil {
				t.Errorf("re-entry: %v", err)
				return
			}
			if err := tryAcquire(other.FencedLock("a")); !errors.Is(err, ErrNotAcquired) {
				t.Errorf("another owner: %v", err)
			}
			token, ok := lease.Token()
			if same, _ := again.Token(); !ok || same != token {
				t.Errorf("the token is %d, %v; in the re-entry %d", token, ok, same)
			}
			tokens = append(tokens, token)
			if err := errors.Join(again.Release(bg), lease.Release(bg)); err != nil {
				t.Error(err)
			}
		}
	})
	for i, token := range tokens {
		if token != uint64(i+1) {
			t.Fatalf("tokens %v, want 1 to 60", tokens)
		}
	}
	if len(tokens) != 60 {
		t.Errorf("%d tokens, want 60", len(tokens))
	}
	plain := mustAcquire(t, bg, clients[0].Lock("b"), AcquireOptions{})
	if token, ok := plain.Token(); ok || token != 0 {
		t.Errorf("a plain lock has token %d", token)
	}
	mustRelease(t, plain)
}

// A retry after a lost reply draws another token, and the lease has the last one.
func TestFenced_TokenAfterALostReply(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	c, proxy := fx.newLossyLocks(t)
	first := mustAcquire(t, bg, c.FencedLock("a"), AcquireOptions{})
	before, _ := first.Token()
	mustRelease(t, first)
	proxy.OnMatch(1, runsScript(fencedAcquireScript), redistest.DropReply)
	lease := mustAcquire(t, bg, c.FencedLock("a"), AcquireOptions{})
	token, _ := lease.Token()
	if counter := fx.rdb.Get(bg, wire.TokenCounter("a")).Val(); token <= before || counter != strconv.FormatUint(token, 10) {
		t.Errorf("token %d after %d, with the counter at %s", token, before, counter)
	}
	wantErr(t, "another owner", tryAcquire(fx.newLocks(t).FencedLock("a")), ErrNotAcquired)
	mustRelease(t, lease)
}

// fencedLockKinds is every kind of lock with fencing tokens.
var fencedLockKinds = []string{"fenced", "fenced-fair", "fenced-write"}

// eachFencedKind runs a test for each of these kinds.
func eachFencedKind(t *testing.T, test func(t *testing.T, lock func(c *Client, name string) *Lock)) {
	for _, name := range fencedLockKinds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, lockKinds[name].lock)
		})
	}
}

func mustToken(t *testing.T, lease *Lease) uint64 {
	t.Helper()
	token, ok := lease.Token()
	if !ok || token == 0 {
		t.Fatalf("the lease has token %d, %v", token, ok)
	}
	return token
}

// A waiter to which the lock is handed over has the next token, drawn in the same command. A
// re-entry keeps the token.
func TestFenced_HandOverDrawsTheNextToken(t *testing.T) {
	t.Parallel()
	eachFencedKind(t, func(t *testing.T, lock func(c *Client, name string) *Lock) {
		fx := newRedis(t)
		c, proxy := fx.newProxiedLocks(t, pollInterval(time.Hour))
		first := mustAcquire(t, bg, lock(c, "a"), AcquireOptions{})
		waiter := acquireAsync(bg, lock(c, "a"), forever)
		eventuallyAsleep(t, c, "a")
		handed := countCommands(proxy, runsHandOver())
		tried := countCommands(proxy, runsScript(fencedAcquireScript, fencedFairAcquireScript, fencedWriteAcquireScript))
		mustRelease(t, first)
		second := mustReceiveLease(t, "the waiter", waiter)
		if handed() != 1 || tried() != 0 {
			t.Errorf("%d hand-overs and %d attempts, want one hand-over", handed(), tried())
		}
		again := mustAcquire(t, second.Context(), lock(c, "a"), AcquireOptions{})
		if before, token := mustToken(t, first), mustToken(t, second); token != before+1 || mustToken(t, again) != token {
			t.Errorf("token %d after %d, and %d in the re-entry", token, before, mustToken(t, again))
		}
		mustRelease(t, again)
		mustRelease(t, second)
	})
}

// All fenced handles of a name draw from one counter, which is in the cluster slot of the name.
// Tokens grow when the lock was taken by force, and when a hold was lost.
func TestFenced_TokensGrowAcrossKindsAndLosses(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	holder, other := fx.newLocks(t), fx.newLocks(t)
	last := uint64(0)
	wantGreater := func(lease *Lease) {
		t.Helper()
		token := mustToken(t, lease)
		if token <= last {
			t.Errorf("token %d after %d", token, last)
		}
		last = token
	}
	for _, name := range append(fencedLockKinds, fencedLockKinds...) {
		lock := lockKinds[name].lock
		forced := mustAcquire(t, bg, lock(holder, "a"), AcquireOptions{})
		wantGreater(forced)
		mustForce(t, lock(other, "a"))
		next := mustAcquire(t, bg, lock(other, "a"), AcquireOptions{})
		wantGreater(next)
		wantLost(t, forced)
		_ = forced.Release(bg)
		fx.rdb.Del(bg, "a") // Another program may do that.
		after := mustAcquire(t, bg, lock(holder, "a"), AcquireOptions{})
		wantGreater(after)
		wantErr(t, name+": the release of a lost hold", next.Release(bg), ErrLockLost)
		mustRelease(t, after)
	}
	if got := fx.rdb.Get(bg, wire.TokenCounter("a")).Val(); got != fmt.Sprint(last) {
		t.Errorf("the counter is at %s, want %d", got, last)
	}
	if wire.Slot(wire.TokenCounter("a")) != wire.Slot("a") {
		t.Error("the counter is in another slot")
	}
}

// An Acquire that ended while its command was under way leaves nothing held, and the next token is
// greater than the one that the command drew.
func TestFenced_CleanedUpTokensAreSkipped(t *testing.T) {
	t.Parallel()
	eachFencedKind(t, func(t *testing.T, lock func(c *Client, name string) *Lock) {
		fx := newRedis(t)
		c, proxy := fx.newProxiedLocks(t)
		reply := proxy.OnMatch(1, runsScript(fencedAcquireScript, fencedFairAcquireScript, fencedWriteAcquireScript), redistest.HoldReply)
		ctx, cancel := context.WithCancel(bg)
		result := acquireAsync(ctx, lock(c, "a"), AcquireOptions{})
		mustReceive(t, "Redis to grant the lock", reply.Hit())
		cancel()
		wantErr(t, "the Acquire", mustReceive(t, "Acquire to return", result).err, context.Canceled)
		reply.Release()
		eventually(t, "the hold to be cleaned up", func() bool { return fx.rdb.Exists(bg, "a").Val() == 0 })
		drawn, err := fx.rdb.Get(bg, wire.TokenCounter("a")).Uint64()
		if err != nil || drawn == 0 {
			t.Fatalf("the counter: %d, %v", drawn, err)
		}
		lease := mustAcquire(t, bg, lock(fx.newLocks(t), "a"), AcquireOptions{})
		if token := mustToken(t, lease); token <= drawn {
			t.Errorf("token %d, and %d was drawn before", token, drawn)
		}
		mustRelease(t, lease)
	})
}

// Readers have no tokens of their own. One below a fenced writer has the writer's, and keeps it
// when the writer leaves.
func TestFenced_Readers(t *testing.T) {
	t.Parallel()
	c := newRedis(t).newLocks(t)
	rw := c.ReadWriteLock("a")
	if _, err := rw.Read().Fenced().Acquire(bg, AcquireOptions{}); !errors.Is(err, ErrInvalidOptions) {
		t.Errorf("a fenced read side: %v", err)
	}
	if _, err := c.ReadWriteLock("").Read().Fenced().Acquire(bg, AcquireOptions{}); !errors.Is(err, ErrInvalidName) {
		t.Errorf("a fenced read side without a name: %v", err)
	}
	reader := mustAcquire(t, bg, rw.Read(), AcquireOptions{})
	if token, ok := reader.Token(); ok {
		t.Errorf("a reader has token %d", token)
	}
	_, err := rw.Write().Fenced().Acquire(reader.Context(), AcquireOptions{})
	wantErr(t, "a fenced writer inside a reader", err, ErrUpgrade)
	mustRelease(t, reader)

	writer := mustAcquire(t, bg, rw.Write().Fenced(), AcquireOptions{})
	below := mustAcquire(t, writer.Context(), rw.Read(), AcquireOptions{})
	token := mustToken(t, writer)
	mustRelease(t, writer)
	if mustToken(t, below) != token {
		t.Errorf("the reader has token %d, and its writer %d", mustToken(t, below), token)
	}
	mustRelease(t, below)
}

// FencedLock is Lock with Fenced, and Fenced of a fenced lock is the same lock.
func TestFenced_Handles(t *testing.T) {
	t.Parallel()
	c := newRedis(t).newLocks(t)
	if *c.Lock("a").Fenced() != *c.FencedLock("a") || *c.FencedLock("a").Fenced() != *c.FencedLock("a") {
		t.Error("Lock with Fenced is another lock than FencedLock")
	}
	if *c.FairLock("a").Fenced().Fenced() != *c.FairLock("a").Fenced() {
		t.Error("Fenced twice is another lock")
	}
	plain := c.FairLock("a")
	plain.Fenced()
	lease := mustAcquire(t, bg, plain, AcquireOptions{})
	if token, ok := lease.Token(); ok {
		t.Errorf("Fenced has changed its receiver, whose lease has token %d", token)
	}
	mustRelease(t, lease)
}
