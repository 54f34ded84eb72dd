package routes

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/reqlock/reqlock/guard"
	"github.com/reqlock/reqlock/keyfuncs"
)

// What each value must be, for errors.
const (
	wantDuration = "a duration such as 2s or 1m30s"
	wantLease    = "a duration of at least 1ms, or 0 to renew the lock"
	wantLimit    = "2 or more, or 0 for a lock, which lets one in at a time"
	wantPatience = "a duration of at least 1ms, or 0 for 30s"
	wantStale    = "a duration from 1ms to 1h, or 0 for none"
	wantKeep     = "a duration from 1ms to 1h, or 0 for 2s"
	wantErrorFor = "a duration from 1ms to 1h, 0 for 1s, or -1 to share no errors"
	wantWaiters  = "a number, -1 for no bound, or 0 for 1024"
)

const leastLease = time.Millisecond

// modes are the names of guard's modes in files.
var modes = map[string]guard.Mode{
	"":           guard.ModeExclusive,
	"exclusive":  guard.ModeExclusive,
	"fair":       guard.ModeFair,
	"fenced":     guard.ModeFenced,
	"read":       guard.ModeRead,
	"write":      guard.ModeWrite,
	"read_write": guard.ModeReadWrite,
}

var (
	modeNames    = []string{"exclusive", "fair", "fenced", "read", "write", "read_write"}
	unknownNames = []string{"rerun", "refuse"}
	guestNames   = []string{"none", "together", "one_at_a_time"} // by guard.Delegates
)

// ParseMode returns the mode that has a name in files. "" is exclusive.
func ParseMode(name string) (guard.Mode, error) {
	mode, ok := modes[name]
	if !ok {
		return 0, fmt.Errorf("mode is %q; want %s", name, either(modeNames))
	}
	return mode, nil
}

// CheckOnUnknown refuses a value that on_unknown cannot have. "" is rerun.
func CheckOnUnknown(name string) error {
	if name != "" && !slices.Contains(unknownNames, name) {
		return fmt.Errorf("on_unknown is %q; want %s", name, either(unknownNames))
	}
	return nil
}

// ParseScope returns the scope of a file: a template, which parse reads, or ScopeGlobal, which is
// nil. It refuses a text without a source, since all callers would share their keys by mistake.
// example is a source that names the caller.
func ParseScope(scope, example string, parse func(template string) (keyfuncs.Func, error)) (keyfuncs.Func, error) {
	switch scope {
	case ScopeGlobal:
		return nil, nil
	case "":
		return nil, fmt.Errorf("there is no scope; want a source that names the caller, such as %s, or %s", example, ScopeGlobal)
	}
	fn, err := parse(scope)
	if err != nil {
		return nil, fmt.Errorf("scope: %w", err)
	}
	if !strings.Contains(scope, "{") {
		return nil, fmt.Errorf("scope is %q, the same for all callers; want a source such as %s, or %s", scope, example, ScopeGlobal)
	}
	return fn, nil
}

// ParseUser returns the user of a file: a template, which parse reads. It is nil for UserEveryone, and
// for "": nothing says who asks. It refuses a text without a source, since all users would share by
// mistake. example is a source that names the caller.
func ParseUser(user, example string, parse func(template string) (keyfuncs.Func, error)) (keyfuncs.Func, error) {
	if user == "" || user == UserEveryone {
		return nil, nil
	}
	fn, err := parse(user)
	if err != nil {
		return nil, fmt.Errorf("user: %w", err)
	}
	if !strings.Contains(user, "{") {
		return nil, fmt.Errorf("user is %q, the same for all; want a source such as %s, or %s", user, example, UserEveryone)
	}
	return fn, nil
}

// either lists names.
func either(names []string) string {
	last := len(names) - 1
	return strings.Join(names[:last], ", ") + " or " + names[last]
}

// Check returns an error that names the first field whose value can never work.
func (l Lock) Check() error {
	for _, d := range []struct {
		name  string
		value Duration
	}{{"wait", l.Wait}, {"max_hold", l.MaxHold}} {
		if d.value < 0 {
			return fmt.Errorf("%s is %s; want %s", d.name, d.value, wantDuration)
		}
	}
	switch {
	case l.Lease != 0 && time.Duration(l.Lease) < leastLease:
		return fmt.Errorf("lease is %s; want %s", l.Lease, wantLease)
	case l.MaxWaiters < -1:
		return fmt.Errorf("max_waiters is %d; want %s", l.MaxWaiters, wantWaiters)
	}
	return nil
}

// checkTokens refuses fencing tokens that the holders cannot have.
func (r Route) checkTokens(mode guard.Mode) error {
	several := len(r.Keys) > 1
	switch {
	case mode == guard.ModeFenced && several:
		return errors.New("mode is fenced, but several locks have no common token; use one key, or exclusive")
	case r.Fenced && several:
		return errors.New("fenced is set, but several locks have no common token; use one key, or leave fenced out")
	case r.Fenced && mode == guard.ModeRead:
		return errors.New("fenced is set with mode read, but readers have no tokens; leave fenced out, or use read_write, whose writers have them")
	}
	return nil
}

// checkLimit refuses a limit beside what is only for locks.
func (r Route) checkLimit() error {
	switch {
	case r.Limit < 0 || r.Limit == 1:
		return fmt.Errorf("limit is %d; want %s", r.Limit, wantLimit)
	case r.Limit > 0 && r.Mode != "":
		return errors.New("the route has both mode and limit; a mode is a kind of lock, and a limit takes no lock, so leave one of them out")
	case r.Limit > 0 && r.Fenced:
		return errors.New("fenced is set with a limit, but several requests are inside at a time, so none has a token; leave one of them out")
	}
	return nil
}

// Guard returns the guard.Config of a route, without keys and plugin. It refuses values that can
// never work.
func (r Route) Guard(opts Options) (guard.Config, error) {
	mode, err := ParseMode(r.Mode)
	if err != nil {
		return guard.Config{}, err
	}
	if err := r.Check(); err != nil {
		return guard.Config{}, err
	}
	if err := r.checkTokens(mode); err != nil {
		return guard.Config{}, err
	}
	if err := r.checkLimit(); err != nil {
		return guard.Config{}, err
	}
	delegates := guard.Delegates(max(0, slices.Index(guestNames, r.Delegates)))
	if r.Delegates != "" && !slices.Contains(guestNames, r.Delegates) {
		return guard.Config{}, fmt.Errorf("delegates is %q; want %s", r.Delegates, either(guestNames))
	}
	return guard.Config{
		WaitTime:      time.Duration(r.Wait),
		LeaseTime:     time.Duration(r.Lease),
		MaxHold:       time.Duration(r.MaxHold),
		MaxWaiters:    r.MaxWaiters,
		FailOpen:      r.FailOpen,
		BufferBody:    r.BufferBody,
		Mode:          mode,
		Fenced:        r.Fenced,
		Limit:         r.Limit,
		Delegates:     delegates,
		RetryAfter:    time.Duration(r.RetryAfter),
		PassPreflight: r.PassPreflight,
		ErrorHandler:  opts.ErrorHandler,
		Logger:        opts.Logger,
		Observe:       opts.Observe,
	}, nil
}
