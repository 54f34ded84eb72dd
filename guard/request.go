package guard

import (
	"context"
	"errors"
	"net/http"
	"sync"

	"github.com/reqlock/reqlock/core"
)

// ErrMaxHold is the cause of a handler's context that ended because of Config.MaxHold.
var ErrMaxHold = errors.New("reqlock: guard: the request has held its lock for MaxHold")

// A section is what one guard holds for one request. Its leases belong to it until one of Release, Detach and the end
// of the handler takes them, whichever is first.
type section struct {
	server *http.Server // which the request came by

	mu     sync.Mutex
	leases []*core.Lease // in the order in which they were acquired
}

type sectionKey struct{}

func sectionFrom(ctx context.Context) *section {
	if s, ok := ctx.Value(sectionKey{}).(*section); ok {
		return s
	}
	if request, ok := ctx.Value(core.ContextKey).(context.Context); ok {
		s, _ := request.Value(sectionKey{}).(*section)
		return s
	}
	return nil
}

// take takes all the leases; nil: there are none any more.
func (s *section) take() []*core.Lease {
	s.mu.Lock()
	defer s.mu.Unlock()
	leases := s.leases
	s.leases = nil
	return leases
}

// stopRenewal lets the leases run out; false: there are none any more.
func (s *section) stopRenewal() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, lease := range s.leases {
		lease.StopRenewal()
	}
	return len(s.leases) > 0
}

// LeaseFrom returns the lease that the innermost guard holds for the request of ctx: the first one, if it holds several. There is
// none outside a guard, when the guard ran the handler without a lock, and after Release and Detach.
func LeaseFrom(ctx context.Context) (*core.Lease, bool) {
	s := sectionFrom(ctx)
	if s == nil {
		return nil, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.leases) == 0 {
		return nil, false
	}
	return s.leases[0], true
}

// Release gives up the lock of the innermost guard before the handler returns: before a long stream, say, that needs no
// protection. The handler's context goes on. core.ErrNotHeld: there is no lock to release; other errors are those of
// core.Lease.Release.
func Release(ctx context.Context) error {
	s := sectionFrom(ctx)
	if s == nil {
		return core.ErrNotHeld
	}
	leases := s.take()
	if len(leases) == 0 {
		return core.ErrNotHeld
	}
	return releaseAll(ctx, leases)
}

// Detach takes the lock over from the innermost guard: it outlives the request, and whoever called Detach releases it. That
// is for connections that are hijacked, and work that goes on in the background; use Lease.Bind for a context that ends when
// the lock is lost. The handler's context still ends when the handler returns, and MaxHold no longer matters from then on.
// false: there is no lock, or there are several, which no single lease stands for.
func Detach(ctx context.Context) (*core.Lease, bool) {
	s := sectionFrom(ctx)
	if s == nil {
		return nil, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.leases) != 1 {
		return nil, false
	}
	lease := s.leases[0]
	s.leases = nil
	return lease, true
}

// releaseAll releases the latest first.
func releaseAll(ctx context.Context, leases []*core.Lease) error {
	var errs []error
	for i := len(leases) - 1; i >= 0; i-- {
		errs = append(errs, leases[i].Release(ctx))
	}
	return errors.Join(errs...)
}
