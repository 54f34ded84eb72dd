package core

import (
	"errors"
	"testing"
	"time"

	"github.com/reqlock/reqlock/internal/lab/redistest"
)

func TestSentinel(t *testing.T) {
	t.Parallel()
	s := redistest.StartSentinel(t, 2)
	top := onSentinel(s)
	t.Run("kinds", top.testKinds)
	top.wantEmpty(t)
	t.Run("the master dies under load", func(t *testing.T) {
		top.testFailover(t, "failover", time.Hour, top.failOver("failover", (*redistest.Server).Kill))
	})
	top.wantEmpty(t)
	t.Run("the master dies with what no replica has", func(t *testing.T) { top.testUnreplicated(t, "unheard of:") })
	top.wantEmpty(t)
}

// isolateMaster separates a master from its replicas.
func isolateMaster(t *testing.T, master *redistest.Server) {
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
