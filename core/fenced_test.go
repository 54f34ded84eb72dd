package core

import (
	"errors"
	"strconv"
	"testing"
	"time"

	"github.com/reqlock/reqlock/core/internal/wire"
	"github.com/reqlock/reqlock/internal/redistest"
)

// Each acquisition of any client draws the next token. Re-entries and refusals draw none. Redisson:
// testTokenIncrease.
func TestFenced_EachAcquisitionDrawsTheNextToken(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	clients := []*Client{b.client(t), b.client(t)}
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
			if err := second(other.FencedLock("a")); !errors.Is(err, ErrNotAcquired) {
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
	plain := mustAcquire(t, clients[0], "b", AcquireOptions{})
	if token, ok := plain.Token(); ok || token != 0 {
		t.Errorf("a plain lock has token %d", token)
	}
	mustRelease(t, plain)
}

// A retry after a lost reply draws another token, and the lease has the last one.
func TestFenced_TokenAfterALostReply(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	c, proxy := b.lossy(t)
	first := mustTake(t, bg, c.FencedLock("a"), AcquireOptions{})
	before, _ := first.Token()
	mustRelease(t, first)
	proxy.OnMatch(1, runs(fencedAcquireScript), redistest.DropReply)
	lease := mustTake(t, bg, c.FencedLock("a"), AcquireOptions{})
	token, _ := lease.Token()
	if counter := b.rdb.Get(bg, wire.TokenCounter("a")).Val(); token <= before || counter != strconv.FormatUint(token, 10) {
		t.Errorf("token %d after %d, with the counter at %s", token, before, counter)
	}
	wantErr(t, "another owner", second(b.client(t).FencedLock("a")), ErrNotAcquired)
	mustRelease(t, lease)
}
