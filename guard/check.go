package guard

import (
	"errors"
	"fmt"
	"time"

	"github.com/reqlock/reqlock/core"
)

// ErrInvalidConfig matches the errors of Validate.
var ErrInvalidConfig = errors.New("reqlock: guard: invalid Config")

// Validate reports everything in the Config that can never work.
func (c Config) Validate() error {
	var problems []error
	refuse := func(wrong bool, format string, args ...any) {
		if wrong {
			problems = append(problems, fmt.Errorf(format, args...))
		}
	}
	ways := 0
	for _, set := range []bool{c.Key != nil, len(c.Keys) > 0, c.Policy != nil} {
		if set {
			ways++
		}
	}
	refuse(ways != 1, "set exactly one of Key, Keys and Policy; %d are set", ways)
	for i, key := range c.Keys {
		refuse(key == nil, "Keys[%d] is nil", i)
	}
	problems = append(problems, checkTimes(c.WaitTime, c.LeaseTime)...)
	// A number without a unit is nanoseconds. A policy may compute what is left of a deadline, so this
	// is no check of checkTimes.
	refuse(c.WaitTime > 0 && c.WaitTime < time.Millisecond, "WaitTime is %s; use 0 for 409 at once, or at least 1ms, such as 2 * time.Second", c.WaitTime)
	refuse(c.MaxHold != 0 && c.MaxHold < time.Millisecond, "MaxHold is %s; use 0 for no end, or at least 1ms, such as 30 * time.Second", c.MaxHold)
	refuse(c.MaxWaiters < -1, "MaxWaiters is %d; use 0 for 1024, -1 for no bound, or a positive number", c.MaxWaiters)
	refuse(c.BufferBody < 0, "BufferBody is %d; use 0 for off, or a number of bytes", c.BufferBody)
	refuse(c.RetryAfter != 0 && c.RetryAfter < time.Millisecond, "RetryAfter is %s; use 0 for %s, or at least 1ms, such as 5 * time.Second", c.RetryAfter, defaultRetryAfter)
	refuse(!c.Delegates.known(), "Delegates is %d; use DelegatesNone, DelegatesTogether or DelegatesOneAtATime", int(c.Delegates))
	refuse(c.Delegates == DelegatesOneAtATime && c.Locker != nil, "Delegates is OneAtATime, and Locker makes the lock; use DelegatesTogether, or leave Locker out")
	problems = append(problems, checkSiblings(c.Delegates, c.Mode, c.Fenced)...)
	if err := c.Mode.check(len(c.Keys), c.Locker != nil, c.Fenced); err != nil {
		problems = append(problems, err)
	}
	problems = append(problems, checkLimit(c.Limit, c.Mode, c.Fenced, c.Locker != nil)...)
	refuse(c.Fenced && c.Mode == ModeRead && c.Policy == nil, "Fenced is set with ModeRead, but readers have no tokens; leave Fenced out, or use ModeReadWrite")
	if len(problems) == 0 {
		return nil
	}
	return fmt.Errorf("%w: %w", ErrInvalidConfig, errors.Join(problems...))
}

// checkTimes serves both Config and Policy.
func checkTimes(wait, lease time.Duration) (problems []error) {
	switch {
	case wait == core.WaitForever:
		problems = append(problems, errors.New("WaitTime is WaitForever; a request cannot wait forever: use a duration, or 0 for 409 at once"))
	case wait < 0:
		problems = append(problems, fmt.Errorf("WaitTime is %s; use 0 for 409 at once, or a positive duration", wait))
	}
	if lease != 0 && lease < time.Millisecond {
		problems = append(problems, fmt.Errorf("LeaseTime is %s; use 0 for the watchdog, or at least 1ms", lease))
	}
	return problems
}

// check reports why m cannot be used with so many keys. It serves both Config and Policy.
func (m Mode) check(keys int, locker, fenced bool) error {
	switch {
	case !m.known():
		return fmt.Errorf("Mode is %d; use one of the constants, such as ModeExclusive", int(m))
	case m != ModeExclusive && locker:
		return fmt.Errorf("Mode is %s, but Config.Locker or Policy.Lock makes the lock; have it make locks of that kind, and leave Mode at ModeExclusive", m)
	case fenced && locker:
		return errors.New("the option Fenced is set, but Config.Locker or Policy.Lock makes the lock; have it make fenced locks (core.Lock.Fenced)")
	case fenced && keys > 1:
		return errors.New("the option Fenced is set, but several locks have no common token; use one key, or leave Fenced out")
	case m == ModeFenced && keys > 1:
		return errors.New("Mode is Fenced, but several locks have no common token; use one key, or ModeExclusive")
	}
	return nil
}

// checkSiblings reports why guests cannot exclude each other and have tokens. It serves both Config and
// Policy.
func checkSiblings(d Delegates, mode Mode, fenced bool) (problems []error) {
	if d == DelegatesOneAtATime && (fenced || mode == ModeFenced) {
		problems = append(problems, errors.New("Delegates is OneAtATime, and the lock has fencing tokens: a guest holds a second lock then, and two locks have no common token; use DelegatesTogether, or leave Fenced out"))
	}
	return problems
}

// checkLimit reports why a limit can never work. It serves both Config and Policy.
func checkLimit(limit int, mode Mode, fenced, locker bool) (problems []error) {
	refuse := func(wrong bool, format string, args ...any) {
		if wrong {
			problems = append(problems, fmt.Errorf(format, args...))
		}
	}
	refuse(limit < 0, "Limit is %d; use 0 for a lock, or let 2 or more requests in at a time", limit)
	refuse(limit == 1, "Limit is 1, which is not a lock: it has other keys in Redis, and nothing re-enters it; leave Limit out for a lock, or let 2 or more requests in at a time")
	if limit <= 0 {
		return problems
	}
	refuse(mode == ModeFair, "Mode is Fair, but permits are first come, first served only within a process; leave Mode or Limit out")
	refuse(mode != ModeExclusive && mode != ModeFair, "Mode is %s, which is a kind of lock, and Limit makes no locks; leave Mode or Limit out", mode)
	refuse(fenced, "the option Fenced is set, but several requests are inside at a time, so none has a token; leave Fenced or Limit out")
	refuse(locker, "Limit is %d, but Config.Locker or Policy.Lock makes the lock; have it make a core.Semaphore, and leave Limit out", limit)
	return problems
}

var (
	errNoKeys      = errors.New("Policy has set neither Keys nor Lock nor Skip")
	errKeysAndLock = errors.New("Policy has set both Keys and Lock; use one of them")
)

// checkPolicy refuses what a policy must not return.
func (g *Guard) checkPolicy(p Policy) error {
	problems := checkTimes(p.WaitTime, p.LeaseTime)
	if err := p.Mode.check(len(p.Keys), g.cfg.Locker != nil || p.Lock != nil, p.Fenced); err != nil {
		problems = append(problems, err)
	}
	problems = append(problems, checkSiblings(g.cfg.Delegates, p.Mode, p.Fenced)...)
	problems = append(problems, checkLimit(p.Limit, p.Mode, p.Fenced, g.cfg.Locker != nil || p.Lock != nil)...)
	switch {
	case len(p.Keys) == 0 && p.Lock == nil:
		problems = append(problems, errNoKeys)
	case len(p.Keys) > 0 && p.Lock != nil:
		problems = append(problems, errKeysAndLock)
	}
	if len(problems) > 0 {
		return g.misconfigured(fmt.Errorf("reqlock: guard: %w", errors.Join(problems...)))
	}
	return nil
}
