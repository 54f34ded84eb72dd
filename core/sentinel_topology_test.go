package core

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/reqlock/reqlock/internal/redistest"
)

func TestSentinel(t *testing.T) {
	t.Parallel()
	s := redistest.StartSentinel(t, 2)
	top := onSentinel(s)
	t.Run("kinds", top.testKinds)
	top.empty(t)
	t.Run("the master dies under load", func(t *testing.T) {
		top.testFailover(t, "failover", time.Hour, func(t testing.TB) {
			old := s.AwaitMaster(t, nil) // and all replicas have the lock
			old.Kill(t)
			s.AwaitMaster(t, old)
		})
	})
	top.empty(t)
	t.Run("the master dies with what no replica has", func(t *testing.T) { testUnreplicated(t, s, top) })
	top.empty(t)
}

// cutOff has a master go on without its replicas.
func cutOff(t *testing.T, master *redistest.Server) {
	t.Helper()
	rdb := master.Client(t)
	err := errors.Join(
		rdb.Do(t.Context(), "ACL", "SETUSER", "default", "-psync", "-sync").Err(), // or the replicas would be back at once
		rdb.ClientKillByFilter(t.Context(), "TYPE", "replica").Err(),
	)
	if err != nil {
		t.Fatal(err)
	}
}

// A lock that the new master has not heard of is free there. Its holder is told, though not before somebody else can have it:
// with the next renewal, or at its deadline.
func testUnreplicated(t *testing.T, s *redistest.Sentinel, top *topology) {
	holder := top.client(t, commandTimeout(3*time.Second), watchdogTimeout(15*time.Second))
	other := top.client(t, commandTimeout(time.Second))
	old := s.AwaitMaster(t, nil)
	cutOff(t, old)
	lease := mustTake(t, bg, holder.Lock("unheard of"), AcquireOptions{})
	old.Kill(t)
	s.AwaitMaster(t, old)

	second, err := insist(t.Context(), other.Lock("unheard of"), AcquireOptions{})
	if err != nil {
		t.Fatal(err)
	}
	await(t, "the first holder is told", lease.Done())
	wantErr(t, "cause of its context", context.Cause(lease.Context()), ErrLockLost)
	if err := second.Err(); err != nil {
		t.Errorf("the second holder: %v", err)
	}
	mustRelease(t, second)
}
