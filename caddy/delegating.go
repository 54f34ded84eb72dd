package caddylock

import (
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"slices"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/delegation"
)

// Delegating is how a handler lets requests enter locks of their callers, and lets the service enter
// its own.
type Delegating struct {
	// Let a request that brings a token of its caller's lock in, as a guest of the caller:
	// `together` with other guests, or `one_at_a_time`. It needs `delegation` of the app, and
	// `trusted_delegators`. Default: `none`.
	Delegates string `json:"delegates,omitempty"`
	// The addresses, or ranges of them (CIDR), of peers whose header Reqlock-Delegation counts;
	// `private_ranges` stands for all private ones. The peer is who has connected to Caddy, whatever
	// X-Forwarded-For says. Without `delegates` and `delegate_to`, the service gets that header. The
	// header of everyone else is removed. Default: none.
	TrustedDelegators []string `json:"trusted_delegators,omitempty"`
	// The name of the service behind this handler, as in its own keys. The request that goes on to
	// it has the header Reqlock-Delegation, with which the service enters the lock. It needs
	// `delegation` of the app. Default: there is no such header.
	DelegateTo string `json:"delegate_to,omitempty"`

	delegators []netip.Prefix
}

// check reports what can never work, and reads the addresses.
func (d *Delegating) check() (err error) {
	if d.delegators, err = parseDelegators(d.TrustedDelegators); err != nil {
		return err
	}
	audience := delegation.Service{Keys: new(delegation.Keys), Name: d.DelegateTo}
	switch {
	case d.delegates() && len(d.delegators) == 0:
		return errors.New("delegates is set, but no caller is trusted; add a line such as trusted_delegators 10.0.0.0/8")
	case d.DelegateTo == "":
		return nil
	case audience.Check() != nil:
		return fmt.Errorf("delegate_to is %q; want the name of a service: 1 to 64 bytes of visible ASCII without ','", d.DelegateTo)
	}
	return nil
}

// delegates reports whether the handler takes tokens.
func (d *Delegating) delegates() bool { return d.Delegates != "" && d.Delegates != "none" }

func parseDelegators(texts []string) (prefixes []netip.Prefix, err error) {
	for _, text := range texts {
		expressions := []string{text}
		if text == "private_ranges" {
			expressions = caddyhttp.PrivateRangesCIDR()
		}
		for _, expression := range expressions {
			prefix, err := caddyhttp.CIDRExpressionToPrefix(expression)
			if err != nil {
				return nil, fmt.Errorf("trusted_delegators has %q; want an address, a range such as 10.0.0.0/8, or private_ranges", text)
			}
			prefixes = append(prefixes, prefix)
		}
	}
	return prefixes, nil
}

// trusts reports whether the tokens of a peer count.
func (d *Delegating) trusts(peer string) bool {
	from, err := netip.ParseAddrPort(peer)
	if err != nil {
		return false
	}
	addr := from.Addr().Unmap().WithZone("")
	return slices.ContainsFunc(d.delegators, func(p netip.Prefix) bool { return p.Contains(addr) })
}

// admit removes tokens that the guard must not see: those of a peer that is not trusted, and those
// that a handler further out has made for the service.
func (d *Delegating) admit(x *exchange, r *http.Request) {
	if x.tokens != "" || !d.trusts(r.RemoteAddr) {
		r.Header.Del(delegation.Header)
	}
}

// delegate gives the request the tokens with which the service enters the lock, until retract is
// called. Those that have let the request in do not go on.
func (d *Delegating) delegate(x *exchange, r *http.Request) (retract func(), err error) {
	if d.DelegateTo != "" {
		if x.tokens, err = core.Delegation(r.Context(), d.DelegateTo); err != nil {
			return nil, caddyhttp.Error(http.StatusInternalServerError, err)
		}
	}
	if d.delegates() || d.DelegateTo != "" {
		r.Header.Del(delegation.Header)
	}
	if x.tokens == "" {
		return func() {}, nil
	}
	r.Header.Set(delegation.Header, x.tokens)
	return func() { r.Header.Del(delegation.Header) }, nil
}
