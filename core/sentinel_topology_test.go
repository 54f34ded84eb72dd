package core

import (
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
}
