package guard

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/keyfuncs"
)

// A PolicyFunc decides how a request is guarded. p comes with the values of the Config, and without
// keys. Its error is treated like a key function's; an *Error is answered as it is.
type PolicyFunc func(r *http.Request, p *Policy) error

// A Policy says what to lock for one request, and how.
type Policy struct {
	// Keys has at least one key, unless Lock or Skip is set.
	Keys []string
	// Mode, Fenced, WaitTime and LeaseTime are those of the Config, unless the policy changes them.
	Mode      Mode
	Fenced    bool
	WaitTime  time.Duration
	LeaseTime time.Duration
	// Skip runs the handler without a lock.
	Skip bool

	// Lock is the lock itself, in place of Keys, Mode, Config.Name and Config.Locker. Its errors
	// are treated as those of a lock of Config.Locker. nil: the lock has the name of the keys.
	Lock core.Locker
}

var (
	errNoKeys      = errors.New("Policy has set neither Keys nor Lock nor Skip")
	errKeysAndLock = errors.New("Policy has set both Keys and Lock; use one of them")
)

// policy decides how the request is guarded.
func (x *exchange) policy() (p Policy, refused error) {
	g, r := x.g, x.r
	p = Policy{Mode: g.cfg.Mode, Fenced: g.cfg.Fenced, WaitTime: g.cfg.WaitTime, LeaseTime: g.cfg.LeaseTime}
	var err error
	body := trackBody(r, &x.bodies)
	// Even after a panic: net/http needs its own body to answer a client that waits for 100
	// Continue.
	defer body.restore(r)
	if g.cfg.Policy != nil {
		decided := p // p itself stays off the heap
		err = g.cfg.Policy(r, &decided)
		p = decided
		p.Keys = slices.Clone(p.Keys)
	} else {
		p.Keys, err = keys(r, g.cfg.Keys, x.key[:0])
	}
	switch {
	case errors.Is(err, keyfuncs.ErrSkip):
		return Policy{Skip: true}, nil
	case err != nil:
		return p, g.keyError(r, err, body.failure)
	case p.Skip:
		return p, nil
	}
	return p, g.checkPolicy(p)
}

// keys appends the keys of the request to none.
func keys(r *http.Request, funcs []keyfuncs.Func, none []string) ([]string, error) {
	keys := none
	for _, f := range funcs {
		key, err := f(r)
		if err != nil {
			return nil, err
		}
		keys = append(keys, key)
	}
	return keys, nil
}

// checkPolicy refuses what a key function or a policy must not return.
func (g *Guard) checkPolicy(p Policy) error {
	problems := checkTimes(p.WaitTime, p.LeaseTime)
	if err := p.Mode.check(len(p.Keys), g.cfg.Locker != nil || p.Lock != nil, p.Fenced); err != nil {
		problems = append(problems, err)
	}
	switch {
	case len(p.Keys) == 0 && p.Lock == nil:
		problems = append(problems, errNoKeys)
	case len(p.Keys) > 0 && p.Lock != nil:
		problems = append(problems, errKeysAndLock)
	}
	if len(problems) > 0 {
		return g.misconfigured(fmt.Errorf("reqlock: guard: %w", errors.Join(problems...)))
	}
	if slices.Contains(p.Keys, "") {
		return g.refusal(ProblemKeyMissing, keyfuncs.ErrMissing)
	}
	return nil
}

// names turns keys into the names of the locks, in place, sorted and each once.
func (g *Guard) names(keys []string) []string {
	names := keys
	for i, key := range keys {
		names[i] = g.cfg.Name(encodeKey(key))
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// keyError turns the error of a key function or a policy into an answer. unread is why the body
// could not be read; nil: it could.
func (g *Guard) keyError(r *http.Request, err, unread error) error {
	if own := g.ownAnswer(err); own != nil {
		return own
	}
	var tooLarge *http.MaxBytesError
	end := r.Context().Err()
	switch {
	case errors.Is(end, context.Canceled):
		return g.refusal(ProblemClientGone, err)
	case end != nil && errors.Is(err, end): // a deadline, whose client waits for the answer
		return g.refusal(ProblemBackendUnavailable, err)
	case errors.As(err, &tooLarge):
		return g.refusal(ProblemBodyTooLarge, err)
	case errors.Is(err, keyfuncs.ErrBusy):
		return g.refusal(ProblemBusy, err)
	case unread != nil && errors.Is(err, unread):
		return g.refusal(ProblemBodyUnreadable, err)
	case errors.Is(err, keyfuncs.ErrNoRoute):
		return g.misconfigured(err)
	case errors.Is(err, keyfuncs.ErrMissing):
		return g.refusal(ProblemKeyMissing, err)
	case errors.Is(err, keyfuncs.ErrInvalid):
		return g.refusal(ProblemKeyInvalid, err)
	case end != nil: // what the deadline has ended may say so in its own words
		return g.refusal(ProblemBackendUnavailable, err)
	default:
		if n, ok := g.lines.Count("key function", 1); ok {
			g.cfg.Logger.Warn("reqlock: guard: a key function failed, the request gets 400", "error", err, "requests", n)
		}
		return g.refusal(ProblemKeyInvalid, err)
	}
}

// ownAnswer returns the *Error in err; nil: err has none.
func (g *Guard) ownAnswer(err error) *Error {
	var own *Error
	if !errors.As(err, &own) || own.canBeSent() {
		return own
	}
	return g.misconfigured(fmt.Errorf("reqlock: guard: an *Error needs a Status from 200 to 999: %w", err))
}

// misconfigured logs the mistake, which clients must not see.
func (g *Guard) misconfigured(err error) *Error {
	change := remedy(err)
	if n, ok := g.lines.Count(change, 1); ok {
		g.cfg.Logger.Error("reqlock: guard is misconfigured, requests get 500", "error", err, "change", change, "requests", n)
	}
	return g.refusal(ProblemMisconfigured, err)
}
