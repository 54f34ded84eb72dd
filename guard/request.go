package guard

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"

	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/internal/framework"
)

// ErrMaxHold is the cause of a handler's context that ended because of Config.MaxHold.
var ErrMaxHold = errors.New("reqlock: guard: the request has held its lock for MaxHold")

// A section is what one guard holds for one request. Its lease belongs to it until one of Release, Detach and the end
// of the handler takes it, whichever is first. It is the context of the handler.
type section struct {
	context.Context

	server *http.Server // which the request came by

	mu     sync.Mutex
	lease  *core.Lease // of all locks of the request
	failed error       // what ReleaseBy has failed with
	status int         // what SetStatus was called with
}

type sectionKey struct{}

func (s *section) Value(key any) any {
	if key == (sectionKey{}) {
		return s
	}
	return s.Context.Value(key)
}

// String is what package context has for contexts of its own. Without it, fmt would read what others write.
func (s *section) String() string { return fmt.Sprint(s.Context, ".guard") }

func sectionFrom(ctx context.Context) *section {
	s, _ := framework.Value(ctx, sectionKey{}).(*section)
	return s
}

// take takes the lease; nil: there is none any more.
func (s *section) take() *core.Lease {
	s.mu.Lock()
	defer s.mu.Unlock()
	lease := s.lease
	s.lease = nil
	return lease
}

// giveBack undoes take.
func (s *section) giveBack(lease *core.Lease) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lease = lease
}

// stopRenewal lets the lease run out; false: there is none any more.
func (s *section) stopRenewal() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lease != nil {
		s.lease.StopRenewal()
	}
	return s.lease != nil
}

// SetStatus tells the innermost guard the status of the handler's answer, for Outcome.Status. It is
// for adapters, inside the next of Guard.Serve and after the handler. 0: not known.
func SetStatus(ctx context.Context, status int) {
	if s := sectionFrom(ctx); s != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.status = status
	}
}

// answered is the status that SetStatus was called with.
func (s *section) answered() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.status
}

// LeaseFrom returns the lease that the innermost guard holds for the request of ctx; where there are several keys, it stands
// for all their locks (core.MultiLock). There is none outside a guard, when the guard ran the handler without a lock, and
// after Release and Detach.
func LeaseFrom(ctx context.Context) (*core.Lease, bool) {
	s := sectionFrom(ctx)
	if s == nil {
		return nil, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lease, s.lease != nil
}

// Release gives up the lock of the innermost guard before the handler returns: before a long stream, say, that needs no
// protection. The handler's context goes on. core.ErrNotHeld: there is no lock to release; other errors are those of
// core.Lease.Release.
func Release(ctx context.Context) error {
	lease, ok := Detach(ctx)
	if !ok {
		return core.ErrNotHeld
	}
	return lease.Release(ctx)
}

// ReleaseBy is Release in another way than by core.Lease.Release: by core.Lease.ReleaseWith, say. release has to give the lease
// up. What it returns becomes the guard's Outcome.Err, and a loss is logged, as if the guard had released by itself. If it panics,
// the guard does release by itself.
func ReleaseBy(ctx context.Context, release func(*core.Lease) error) error {
	s := sectionFrom(ctx)
	if s == nil {
		return core.ErrNotHeld
	}
	lease := s.take()
	if lease == nil {
		return core.ErrNotHeld
	}
	returned := false
	defer func() {
		if !returned { // a panic, or the end of the goroutine: the guard releases
			s.giveBack(lease)
		}
	}()
	err := release(lease)
	returned = true
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failed = err
	return err
}

// failure is what ReleaseBy has failed with.
func (s *section) failure() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failed
}

// Detach takes the lock over from the innermost guard: it outlives the request, and whoever called Detach releases it. That
// is for connections that are hijacked, and work that goes on in the background; use Lease.Bind for a context that ends when
// the lock is lost. The handler's context still ends when the handler returns, and MaxHold no longer matters from then on.
// false: there is no lock.
func Detach(ctx context.Context) (*core.Lease, bool) {
	s := sectionFrom(ctx)
	if s == nil {
		return nil, false
	}
	lease := s.take()
	return lease, lease != nil
}
