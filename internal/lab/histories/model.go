package histories

import (
	"fmt"
	"slices"

	"github.com/anishathalye/porcupine"
)

// model is a lock in one process. A history must look to its callers as if they used it.
var model = porcupine.Model{
	Init: func() any { return state{} },
	Step: func(s, in, _ any) (bool, any) { return s.(state).step(in.(step)) },
	Equal: func(a, b any) bool {
		x, y := a.(state), b.(state)
		return x.token == y.token && x.record == y.record && slices.Equal(x.levels, y.levels)
	},
	DescribeOperation: func(in, _ any) string { return in.(step).String() },
	DescribeState: func(s any) string {
		return fmt.Sprintf("held by %v, token %d, record %q", s.(state).levels, s.(state).token, s.(state).record)
	},
}

// A state is the state of one lock.
type state struct {
	// levels are in the order of their holds.
	levels []level
	// token is the last one.
	token  uint64
	record string
}

// A level is a grant that is still held.
type level struct {
	hold, owner string
	shared      bool
	// takes is how many permits of a semaphore it has, and permits how many there are. They are 0 for
	// a lock.
	takes, permits int
}

// A step is an operation of a history.
type step struct {
	what stepKind
	// level is the one that begins or ends. For a refusal, it is the one that was asked for.
	level
	// token is 0 if the kind has none.
	token uint64
	// Found, or left behind.
	record string
	// Of a release: a fault may have hidden the reply to an earlier try. The retry then finds nothing
	// and counts as done, also if the data was lost before.
	blind bool
}

type stepKind string

const (
	grant  stepKind = "grant"
	flash  stepKind = "grant and lose" // The lease was over before its owner saw it.
	refuse stepKind = "refuse"
	find   stepKind = "find a record"
	leave  stepKind = "release" // The release is confirmed. The record may be "".
	gone   stepKind = "end"     // The hold ends without a confirmed release.
	record stepKind = "leave a record"
	wipe   stepKind = "lose all data"
	// The lock begins with a record.
	survive stepKind = "keep a record"
)

func (s step) String() string {
	text := fmt.Sprintf("%s %s of %s", s.what, s.hold, s.owner)
	if s.shared {
		text += " for reading"
	}
	if s.permits > 0 {
		text += fmt.Sprintf(", %d of %d permits", s.takes, s.permits)
	}
	if s.token > 0 {
		text += fmt.Sprintf(", token %d", s.token)
	}
	if s.record != "" {
		text += fmt.Sprintf(", record %q", s.record)
	}
	return text
}

// step returns the state after an operation, and whether the lock allows it.
func (s state) step(op step) (bool, state) {
	switch op.what {
	case grant, flash:
		return s.granted(op)
	case refuse:
		return s.blocks(op.level), s
	case find:
		return s.record == op.record, s
	case leave:
		next, was := s.without(op.hold)
		if op.record != "" {
			next.record = op.record
		}
		return was || op.blind, next
	case gone:
		next, _ := s.without(op.hold) // a wipe may have ended it
		return true, next
	case record:
		next := s
		next.record = op.record
		return len(s.levels) == 0, next
	case survive:
		return s.record == "" && len(s.levels) == 0, state{token: s.token, record: op.record}
	case wipe:
		return true, state{}
	}
	panic("histories: unknown step " + op.what)
}

func (s state) granted(op step) (bool, state) {
	again := slices.ContainsFunc(s.levels, func(l level) bool { return l.owner == op.owner })
	if s.blocks(op.level) || s.record != "" {
		return false, s
	}
	switch {
	case op.token == 0:
	case again && op.token != s.token, !again && op.token <= s.token:
		return false, s
	}
	next := s
	next.token = max(s.token, op.token)
	if op.what == grant {
		next.levels = append(slices.Clone(s.levels), op.level)
		slices.SortFunc(next.levels, func(a, b level) int { return compare(a.hold, b.hold) })
	}
	return true, next
}

// blocks reports whether a holder keeps another owner out, or for a semaphore, all holders together.
func (s state) blocks(asked level) bool {
	if asked.permits > 0 {
		taken := 0
		for _, l := range s.levels {
			taken += l.takes
		}
		return taken+asked.takes > asked.permits
	}
	return slices.ContainsFunc(s.levels, func(l level) bool { return l.owner != asked.owner && !(l.shared && asked.shared) })
}

// without ends a level. was reports whether the level existed.
func (s state) without(hold string) (next state, was bool) {
	next = s
	i := slices.IndexFunc(s.levels, func(l level) bool { return l.hold == hold })
	if i < 0 {
		return next, false
	}
	next.levels = slices.Delete(slices.Clone(s.levels), i, i+1)
	return next, true
}

func compare(a, b string) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}
