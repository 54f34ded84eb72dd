package guard

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

// A section is what one guard holds for one request. Its lease belongs to it until Release, Detach,
// ReleaseBy or the end of the handler takes it, whichever comes first. It is the context of the
// handler, and so what a handler's context leads to.
type section struct {
	context.Context

	// server is the one that received the request. nil: it is unknown.
	server *http.Server
	// pattern belongs to the route around which the guard is. It is empty if that is unknown.
	pattern string
	// answer belongs to the request. nil: neither the guard nor one around it has a MaxHold.
	answer *answer
	// onTake is called when the lease is taken, perhaps twice. nil: there is nothing to do.
	onTake func()

	mu sync.Mutex
	// lease covers all locks of the request.
	lease *core.Lease
	// failure was given to ReleaseBy.
	failure error
	// status was given to SetStatus.
	status int
	// interruption was given to interrupt.
	interruption error
}

type sectionKey struct{}

// sectionOf returns the innermost section of ctx, which may be a framework's own context; nil: none.
func sectionOf(ctx context.Context) *section {
	s, _ := ctxvalue.Of(ctx, sectionKey{}).(*section)
	return s
}

// Value returns s for sectionKey. It knows the server, too: in guards inside each other, a lookup of
// what all of them ask for must not go through all of them.
func (s *section) Value(key any) any {
	switch key {
	case sectionKey{}:
		return s
	case http.ServerContextKey:
		return request.ServerValue(s.server)
	}
	return s.Context.Value(key)
}

// String avoids a data race when fmt prints the context.
func (s *section) String() string { return fmt.Sprint(s.Context, ".guard") }

// begin prepares s for a request, and returns the section of the guard around this one; nil: there
// is none. A section of another server belongs to a handler whose context became the BaseContext of
// this server.
func (s *section) begin(r *http.Request) (outer *section) {
	ctx := r.Context()
	s.server, s.pattern = request.Server(ctx), r.Pattern
	if outer = sectionOf(ctx); outer == nil || outer.server != s.server {
		return nil
	}
	s.answer = outer.answer
	return outer
}

// leavings are what a handler and its adapter have left in a section.
type leavings struct {
	// lease is for the guard to release. nil: the handler has given it up.
	lease *core.Lease
	// failure is the error of ReleaseBy.
	failure error
	// status is that of the answer; 0: unknown.
	status int
}

// finish ends s when the handler has returned or panicked. It tells the guard around this one, if
// there is one, that the context of the handler has ended before, or that of one further in: it may
// record an answer, and must not take that for one that the handler gave in order.
func (s *section) finish(outer *section) leavings {
	lease := s.take()
	s.mu.Lock()
	cause, left := s.interruption, leavings{lease, s.failure, s.status}
	s.mu.Unlock()
	if s.Err() != nil {
		cause = context.Cause(s.Context)
	}
	if outer != nil && cause != nil {
		outer.interrupt(cause)
	}
	return left
}

// hold gives s its lease, before the handler runs.
func (s *section) hold(lease *core.Lease) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lease = lease
}

// held returns the lease; nil: there is none, or none any more.
func (s *section) held() *core.Lease {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lease
}

// take returns the lease and removes it; nil: there is none, or not any more.
func (s *section) take() *core.Lease {
	lease := s.remove()
	if lease != nil && s.onTake != nil {
		s.onTake()
	}
	return lease
}

func (s *section) remove() *core.Lease {
	s.mu.Lock()
	defer s.mu.Unlock()
	lease := s.lease
	s.lease = nil
	return lease
}

// detach is take for a lease that outlives the handler. Contexts that the handler has, such as ctx,
// no longer enter its lock again.
func (s *section) detach(ctx context.Context) *core.Lease {
	lease := s.take()
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

// stopRenewal lets the lease expire, and reports whether there was one.
func (s *section) stopRenewal() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lease != nil {
		s.lease.StopRenewal()
	}
	return s.lease != nil
}

// releaseBy takes the lease and calls release with it. The error is what release returns, and is
// kept for the Outcome; core.ErrNotHeld if there is no lease. If release panics, s has the lease again.
func (s *section) releaseBy(release func(*core.Lease) error) error {
	lease := s.take()
	if lease == nil {
		return core.ErrNotHeld
	}
	returned := false
	defer func() {
		if !returned { // a panic, or runtime.Goexit: the guard releases
			s.hold(lease)
		}
	}()
	err := release(lease)
	returned = true
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failure = err
	return err
}

// interrupt says why the context of a handler that a guard further in runs has ended before that
// handler returned.
func (s *section) interrupt(cause error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.interruption = cause
}

// interrupted returns what interrupt was told; nil: nothing.
func (s *section) interrupted() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.interruption
}

// setStatus sets the status of the handler's answer; 0: unknown.
func (s *section) setStatus(status int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.status = status
}
