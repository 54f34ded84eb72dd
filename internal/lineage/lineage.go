// Package lineage records which leases and owners a context comes from. Package core decides by it
// which locks a caller may enter again. Package guard marks where a request begins, and which
// leases it has given away.
package lineage

import (
	"context"
	"sync/atomic"

	"github.com/reqlock/reqlock/internal/ctxvalue"
)

// Key is the key of the nearest *Link in a context.
type Key struct{}

// A Link is one step in the lineage of a context. The zero value begins a lineage. Its fields do
// not change once a context has it, so walking the links needs no mutex and no code of the caller.
type Link struct {
	Outer *Link // the next link further out; nil: there is none
	Lease any   // *core.Lease that the context was made for; nil: none
	// Owner is the owner of core.WithOwner for all contexts from this link on; 0: none.
	Owner uint64
	// PastQueue makes Acquire try once, without queueing.
	PastQueue bool
	// Tokens are those of core.WithDelegation, separated by commas; "": none.
	Tokens string

	origin   *Link // nil: this link
	detached atomic.Bool
}

// From returns the nearest link of ctx, which may be a framework's own context; nil: none.
func From(ctx context.Context) *Link {
	l, _ := ctxvalue.Of(ctx, Key{}).(*Link)
	return l
}

// Continue makes l, which is new, follow outer, with its owner and its origin. outer may be nil.
func (l *Link) Continue(outer *Link) {
	if outer != nil {
		l.Outer, l.Owner, l.origin = outer, outer.Owner, outer.Origin()
	}
}

// Origin returns the link that the lineage began with. Contexts of one request have one origin.
func (l *Link) Origin() *Link {
	if l.origin == nil {
		return l
	}
	return l.origin
}

// Detach makes the lease of l count no longer for contexts that come from l.
func (l *Link) Detach() { l.detached.Store(true) }

// Detached reports whether Detach was called.
func (l *Link) Detached() bool { return l.detached.Load() }
