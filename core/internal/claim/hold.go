package claim

import "github.com/reqlock/reqlock/core/internal/machine"

// A HoldState is the state of a hold.
type HoldState uint8

const (
	Held     HoldState = iota // has leases, or is about to have its first
	Freeing                   // the last lease was released; Redis does not know yet
	Released                  // Redis confirmed the release, or the release failed
	Lost                      // missing in Redis, expired, force-unlocked, or the client was closed
)

var holdStates = machine.New("a hold",
	machine.Transition[HoldState]{From: Held, To: Freeing, When: "its last lease is released, and the command is under way"},
	machine.Transition[HoldState]{From: Freeing, To: Held, When: "a re-entry gets the turn before that command, which then only lowers the count"},
	machine.Transition[HoldState]{From: Freeing, To: Released, When: "Redis has answered, or time is up"},
	machine.Transition[HoldState]{From: Held, To: Lost, When: isLost},
	machine.Transition[HoldState]{From: Freeing, To: Lost, When: isLost},
)

const isLost = "a reply says so, its last lease expires, ForceUnlock, Close, or a grant to another owner proves it"

func (s HoldState) String() string { return [...]string{"held", "freeing", "released", "lost"}[s] }

// A Hold is an owner's stay in the lock, from the grant to the last release or the loss.
type Hold struct {
	levels  Counts // one for each lease that is neither released nor expired
	sure    Counts // Redis has at least these levels
	deepest int32  // highest number of shared levels ever sent to Redis
	state   HoldState
	stray   bool // an acquire may still arrive at Redis
	Turn    Turn
}

// NewHold returns the hold of an owner that is about to be granted the lock. left is what the owner's
// commands may leave in Redis beside the grant.
func NewHold(shared bool, left Leftovers) Hold {
	h := Hold{sure: Counts{}.Plus(shared), stray: left.Stray}
	h.deepest = h.sure.Shared
	return h
}

// State returns the state of the hold.
func (h *Hold) State() HoldState { return h.state }

// Ended reports whether the hold was released or lost.
func (h *Hold) Ended() bool { return h.state >= Released }

// Counts returns one level for each lease.
func (h *Hold) Counts() Counts { return h.levels }

// Sure returns the levels that Redis has at least.
func (h *Hold) Sure() Counts { return h.sure }

// Deepest returns the highest number of shared levels that Redis may ever have had.
func (h *Hold) Deepest() int32 { return h.deepest }

func (h *Hold) move(to HoldState) bool { return holdStates.Move(&h.state, to) }

// Enter adds the level of a lease.
func (h *Hold) Enter(shared bool) {
	h.levels = h.levels.Plus(shared)
	if h.state == Freeing {
		h.move(Held)
	}
}

// Leave removes the level of a lease. last reports whether it was the last one.
func (h *Hold) Leave(shared bool) (last bool) {
	h.levels = h.levels.Minus(shared)
	if last = h.levels.Total() == 0; last {
		h.move(Freeing)
	}
	return last
}

// Release ends a hold whose last lease was released.
func (h *Hold) Release() { h.move(Released) }

// Lose ends a hold and all its levels. It reports whether the hold had not ended before.
func (h *Hold) Lose() bool {
	if h.Ended() {
		return false
	}
	h.levels = Counts{}
	return h.move(Lost)
}

// An Addition is one more level that an owner asks for.
type Addition uint8

const (
	NoAddition Addition = iota
	AddsExclusive
	AddsShared
)

// AdditionOf returns the addition of a level that is shared, or is not.
func AdditionOf(shared bool) Addition {
	if shared {
		return AddsShared
	}
	return AddsExclusive
}

// Plan returns the levels to send to Redis: one for each lease, and the one that more adds. The
// caller has the turn. ok is false if the owner may not enter: a reader cannot become a writer.
func (h *Hold) Plan(more Addition) (_ Counts, ok bool) {
	if machine.Strict && !h.Turn.Taken() {
		panic("claim: a command was planned without the turn")
	}
	if more == AddsExclusive && h.sure.Exclusive == 0 {
		return Counts{}, false
	}
	to := h.levels
	if more != NoAddition {
		to = to.Plus(more == AddsShared)
	}
	// A level given up here may be gone from now on, whatever the outcome of the command.
	if to.Total() > 0 {
		h.sure = h.sure.min(to)
	}
	h.deepest = max(h.deepest, to.Shared)
	return to, true
}

// Confirm records the levels that Redis has, by the reply to a planned command.
func (h *Hold) Confirm(n Counts) { h.sure = n }

// Downgraded reports whether levels turn a writer's hold into a reader's. shared is the kind that the
// hold began with.
func Downgraded(shared bool, n Counts) bool { return !shared && n.Exclusive == 0 && n.Shared > 0 }

// MayStray records that an acquire of the hold may still arrive at Redis.
func (h *Hold) MayStray(left Leftovers) { h.stray = h.stray || left.Stray }

// Strays reports whether a command that was given up may still give the owner something in Redis.
// freed means that Redis has freed the hold, so that only an acquire can. Otherwise, the renewal of a
// read level may put back the level's time-out key.
func (h *Hold) Strays(freed bool) bool { return h.stray || !freed && h.deepest > 0 }
