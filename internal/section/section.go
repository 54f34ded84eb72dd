// Package section is the state that a guard shares with the handler it runs. The handler's context
// leads to it: package guard reads it for handlers, package adapter writes it for adapters.
package section

import (
	"context"
	"fmt"
	"net/http"
	"sync"

	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/internal/ctxvalue"
	"github.com/reqlock/reqlock/internal/lineage"
	"github.com/reqlock/reqlock/internal/request"
)

// A Section is what one guard holds for one request. Its lease belongs to it until Release, Detach,
// ReleaseBy or the end of the handler takes it, whichever comes first. It is the context of the
// handler.
type Section struct {
	context.Context

	// Server is the one that received the request. nil: it is unknown.
	Server *http.Server
	// Pattern belongs to the route around which the guard is. It is empty if that is unknown.
	Pattern string
	// Answer belongs to the request. nil: neither the guard nor one around it has a MaxHold.
	Answer *Answer
	// OnTake is called when the lease is taken, perhaps twice. nil: there is nothing to do.
	OnTake func()

	mu sync.Mutex
	// lease covers all locks of the request.
	lease *core.Lease
	// failure was given to ReleaseBy.
	failure error
	// status was given to SetStatus.
	status int
	// interrupted was given to Interrupt.
	interrupted error
}

type contextKey struct{}

// From returns the innermost section of ctx, which may be a framework's own context; nil: none.
func From(ctx context.Context) *Section {
	s, _ := ctxvalue.Of(ctx, contextKey{}).(*Section)
	return s
}

// Value returns s for the key of this package. It knows the server, too: in guards inside each
// other, a lookup of what all of them ask for must not go through all of them.
func (s *Section) Value(key any) any {
	switch key {
	case contextKey{}:
		return s
	case http.ServerContextKey:
		return request.ServerValue(s.Server)
	}
	return s.Context.Value(key)
}

// String avoids a data race when fmt prints the context.
func (s *Section) String() string { return fmt.Sprint(s.Context, ".guard") }

// Hold gives s its lease, before the handler runs.
func (s *Section) Hold(lease *core.Lease) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lease = lease
}

// Lease returns the lease; nil: there is none, or none any more.
func (s *Section) Lease() *core.Lease {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lease
}

// Take returns the lease and removes it; nil: there is none, or not any more.
func (s *Section) Take() *core.Lease {
	lease := s.remove()
	if lease != nil && s.OnTake != nil {
		s.OnTake()
	}
	return lease
}

func (s *Section) remove() *core.Lease {
	s.mu.Lock()
	defer s.mu.Unlock()
	lease := s.lease
	s.lease = nil
	return lease
}

// Detach is Take for a lease that outlives the handler. Contexts that the handler has, such as ctx,
// no longer enter its lock again.
func (s *Section) Detach(ctx context.Context) *core.Lease {
	lease := s.Take()
	if lease == nil {
		return nil
	}
	own := lineage.From(s.Context)
	for l := lineage.From(ctx); l != nil && own != nil; l = l.Outer {
		if l.Lease == lease {
			l.Detach()
		}
		if l == own {
			break
		}
	}
	return lease
}

// StopRenewal lets the lease expire, and reports whether there was one.
func (s *Section) StopRenewal() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lease != nil {
		s.lease.StopRenewal()
	}
	return s.lease != nil
}

// ReleaseBy takes the lease and calls release with it. The error is what release returns, and is
// kept for Failure; core.ErrNotHeld if there is no lease. If release panics, s has the lease again.
func (s *Section) ReleaseBy(release func(*core.Lease) error) error {
	lease := s.Take()
	if lease == nil {
		return core.ErrNotHeld
	}
	returned := false
	defer func() {
		if !returned { // a panic, or runtime.Goexit: the guard releases
			s.Hold(lease)
		}
	}()
	err := release(lease)
	returned = true
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failure = err
	return err
}

// Failure returns the error of ReleaseBy.
func (s *Section) Failure() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failure
}

// Interrupt says why the context of a handler that a guard further in runs has ended before that
// handler returned.
func (s *Section) Interrupt(cause error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.interrupted = cause
}

// Interruption returns what Interrupt was told; nil: nothing.
func (s *Section) Interruption() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.interrupted
}

// SetStatus sets the status of the handler's answer; 0: unknown.
func (s *Section) SetStatus(status int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.status = status
}

// Status returns the status that SetStatus set; 0: unknown.
func (s *Section) Status() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.status
}
