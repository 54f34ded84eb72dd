package claim

// A Renewal is what is known when a renewal that Redis has executed is read.
type Renewal struct {
	Watched  bool // it was sent for a lease that the watchdog renews
	Known    int  // the shared levels it was sent for
	Shared   int  // the shared levels of the leases now
	Excess   bool // the hash lives for too long, as far as is known now
	Shortens bool // the excess was known before
}

// A RenewalVerdict says what follows from a renewal.
type RenewalVerdict struct {
	Prolongs bool // the leases that the watchdog renews last longer
	Again    bool // the hold is to be renewed at once
}

// Verdict decides. A read level that the renewal did not know has a time-out key that was not
// prolonged, so the deadline that all levels share must stay. An excess is shortened by the next
// renewal.
func (r Renewal) Verdict() (v RenewalVerdict) {
	v.Again = r.Excess && !r.Shortens
	switch {
	case !r.Watched:
	case r.Shared > r.Known:
		v.Again = true
	default:
		v.Prolongs = true
	}
	return v
}

// A Missing is what is known when a renewal has not found its hold.
type Missing struct {
	State HoldState
	Same  bool // the hold still has the field that the renewal asked for
}

// A MissingVerdict says what follows from a renewal that has not found its hold.
type MissingVerdict uint8

const (
	Ignored MissingVerdict = iota // the last lease was just released
	IsLost
	RenewAgain // the writer became a reader, and a renewal on another connection arrived after that
)

// Verdict decides.
func (m Missing) Verdict() MissingVerdict {
	switch {
	case m.State != Held:
		return Ignored
	case m.Same:
		return IsLost
	}
	return RenewAgain
}
