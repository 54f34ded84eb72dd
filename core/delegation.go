package core

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/reqlock/reqlock/core/internal/kinds"
	"github.com/reqlock/reqlock/delegation"
	"github.com/reqlock/reqlock/internal/lineage"
)

// mostDelegated is how many tokens a call carries, and how many of those that it carries are read.
const mostDelegated = 16

// Delegate returns a token with which the service called audience may enter the lock as a guest of this
// lease's hold; see WithDelegation. The token is signed with the first key of Options.Delegation, and
// ends with the lease as far as it is proven now. So make a new one for each call. From then on the
// hold goes to no waiter of this process by a hand-over, because guests may be in.
//
// The tokens of a MultiLock are those of its members, separated by commas. A guest may delegate on.
// Delegate fails with ErrInvalidOptions without keys, for a Once or a RedLock, and if the tokens are too
// many or too long, and with ErrNotHeld if the lease has ended.
func (l *Lease) Delegate(audience string) (string, error) {
	levels, err := l.backend.invites()
	if err == nil {
		err = l.Err() // The members of a MultiLock are released after it has ended.
	}
	if err == nil && len(levels) == 0 {
		err = invalid(ErrInvalidOptions, "the lock of a core.Once cannot be delegated; the callee takes its own")
	}
	var tokens string
	if err == nil {
		tokens, err = invite(levels, audience)
	}
	if err != nil {
		return "", opErr("delegate", l.label(), err)
	}
	return tokens, nil
}

// Delegation returns the tokens of Lease.Delegate for all live leases that ctx comes from, separated by
// commas. It is empty if there is none. Leases of a Once do not count: the callee takes its own.
// The errors are those of Lease.Delegate.
func Delegation(ctx context.Context, audience string) (string, error) {
	var levels []*level
	for link := lineage.From(ctx); link != nil; link = link.Outer {
		l, ok := link.Lease.(*Lease)
		if !ok || link.Detached() || l.Err() != nil {
			continue
		}
		more, err := l.backend.invites()
		if err != nil {
			return "", opErr("delegate", l.label(), err)
		}
		for _, one := range more {
			if !slices.ContainsFunc(levels, func(other *level) bool { return other.hold == one.hold }) {
				levels = append(levels, one)
			}
		}
	}
	tokens, err := invite(levels, audience)
	if err != nil {
		return "", fmt.Errorf("reqlock: delegate the leases of a context: %w", err)
	}
	return tokens, nil
}

// WithDelegation returns a child of ctx whose Acquires enter the holds that the tokens are for, as
// guests. tokens come from Lease.Delegate or Delegation of a caller.
//
// A guest has its own hold and lease, and the caller's fencing token. Others get the lock when the caller
// and all guests have left, in any order. Guests of one hold do not keep each other out. Acquire makes
// one attempt: it returns ErrParentLost if the caller's hold is over by then, and ErrUpgrade if the
// caller only reads and the guest wants to write. If the caller's hold is lost later, the guest keeps
// the lock.
//
// Acquire ignores tokens for other locks, and tokens that Options.Delegation does not verify: forged,
// expired, or for another service. It then waits like anyone. Client.Counters counts those that are not
// verified, and the log has a line a minute at most for each reason.
func WithDelegation(ctx context.Context, tokens string) context.Context {
	if tokens == "" {
		return ctx
	}
	c := &linkContext{Context: ctx}
	c.link.Continue(lineage.From(ctx))
	c.link.Tokens = tokens
	return c
}

// invite returns a token for the hold of each lease.
func invite(levels []*level, audience string) (string, error) {
	if len(levels) > mostDelegated {
		return "", invalid(ErrInvalidOptions, "%d leases would be delegated; use at most %d in a call", len(levels), mostDelegated)
	}
	var tokens []string
	for _, l := range levels {
		token, err := l.invite(audience)
		if err != nil {
			return "", err
		}
		tokens = append(tokens, token)
	}
	return strings.Join(tokens, ", "), nil
}

// invites returns the lease whose hold may have guests.
func (l *level) invites() ([]*level, error) {
	if !l.hold.kind.Invites() {
		return nil, nil
	}
	return []*level{l}, nil
}

// invites returns those of the members.
func (s *set) invites() (all []*level, err error) {
	if s.quorum < len(s.members) {
		return nil, invalid(ErrInvalidOptions, "a core.RedLock cannot be delegated, because a guest would need a majority of its members")
	}
	for _, m := range s.present() {
		more, err := m.backend.invites()
		if err != nil {
			return nil, err
		}
		all = append(all, more...)
	}
	return all, nil
}

// invite returns a token for the hold.
func (l *level) invite(audience string) (string, error) {
	h, keys := l.hold, l.hold.engine().opts.Delegation.Keys
	if keys == nil {
		return "", invalid(ErrInvalidOptions, "core.Options.Delegation has no keys to sign with")
	}
	if err := l.Err(); err != nil {
		return "", err
	}
	h.entry.open()
	err, left, kind := l.err, l.leftLocked(), h.kind
	if h.downgraded(h.countsLocked()) {
		kind = h.kind.Downgraded
	}
	h.invites = h.invites || err == nil
	h.entry.close()
	if err != nil {
		return "", err
	}
	token, err := keys.Sign(delegation.Grant{
		Lock:     delegation.LockIDOf(h.entry.key),
		Kind:     kind.Name,
		Owner:    h.wire,
		Fence:    h.token,
		Permits:  kind.Takes,
		Permit:   kind.Permit,
		Expires:  time.Now().Add(left),
		Audience: audience,
	})
	if err != nil {
		return "", invalid(ErrInvalidOptions, "%w", err)
	}
	return token, nil
}

// Invitation returns the owner of the hold that Acquire with ctx would enter as a guest. false: there is
// none, or ctx comes from a lease of the lock.
func (c *Client) Invitation(ctx context.Context, name string) (owner string, ok bool) {
	l := c.newLock(kinds.Plain, name)
	link := lineage.From(ctx)
	if l.err != nil || c.heldBy(link, l.key) != nil {
		return "", false
	}
	g, ok := c.invitation(link, l.key)
	return g.Owner, ok
}

// invitation returns the first grant for a lock that the lineage has tokens of.
func (c *Client) invitation(link *lineage.Link, key string) (g delegation.Grant, found bool) {
	service := c.opts.Delegation
	if service.Keys == nil {
		return g, false
	}
	id, left := delegation.LockIDOf(key), mostDelegated
	for ; link != nil; link = link.Outer {
		if link.Tokens == "" {
			continue
		}
		for token := range strings.SplitSeq(link.Tokens, ",") {
			if left--; left < 0 {
				return g, false
			}
			g, err := service.Keys.Verify(strings.TrimSpace(token), service.Name, time.Now())
			if err != nil {
				c.ignoreToken(err)
			} else if g.Lock == id {
				return g, true
			}
		}
	}
	return g, false
}

// ignoreToken counts a token that is not verified, and logs each reason once a minute.
func (c *Client) ignoreToken(err error) {
	c.counters.tokensIgnored.Add(1)
	for _, why := range []error{delegation.ErrSignature, delegation.ErrAudience, delegation.ErrExpired, delegation.ErrMalformed} {
		if !errors.Is(err, why) {
			continue
		}
		if n, ok := c.ignoredTokens.Count(why.Error(), 1); ok {
			c.opts.Logger.Warn("reqlock: delegation tokens ignored; their callers wait like anyone", "error", why, "tokens", n)
		}
		return
	}
}

// enterAsGuest makes w enter the hold of a grant, in one attempt.
func (w *waiter) enterAsGuest(g delegation.Grant) error {
	host := kinds.Named(g.Kind)
	if host == nil || !host.Invites() {
		return ErrWrongKind
	}
	if fenced := host.WithTokens(); g.Fence > 0 && fenced != nil {
		host = fenced
	}
	switch {
	case !w.kind.Reenters(host):
		return ErrWrongKind
	case host.Shared && !w.kind.Shared:
		return ErrUpgrade
	case w.kind.Takes > g.Permits:
		return invalid(ErrInvalidOptions, "the caller delegates %d permits, and %d are wanted; take at most those of the caller", g.Permits, w.kind.Takes)
	}
	terms := kinds.GuestTerms{Host: g.Owner, Token: g.Fence}
	if host.Counted {
		terms.Permit = cmp.Or(g.Permit, g.Owner)
	}
	w.kind = host.Guest(terms)
	w.kind.Takes = g.Permits
	w.aside, w.NoWait, w.Deadline = nil, true, w.began
	return nil
}

// countGuest counts how an attempt to enter as a guest has ended.
func (c *Client) countGuest(w *waiter, err error) {
	switch {
	case !w.kind.Invited():
	case err == nil:
		c.counters.guests.Add(1)
	case errors.Is(err, ErrParentLost):
		c.counters.parentsLost.Add(1)
	}
}

// family reports whether the hash may have other holds that exclude all but each other.
func (h *hold) family() bool { return h.invites || h.kind.Invited() }

// familyLasts is how long a family is expected to last at most. Each of its holds renews the hash, and
// with it what is left of the others, whose leases may have expired long ago.
const familyLasts = 24 * time.Hour
