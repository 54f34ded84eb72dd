package claim

// A Failure is what is known when an attempt has ended with an error.
type Failure struct {
	Own      bool // the error concerns this waiter only
	Outlasts bool // the waiter goes on waiting after it
	Out      bool // another goroutine has removed the waiter
}

// A FailureVerdict says what follows from a failed attempt.
type FailureVerdict struct {
	Leaves    bool // the waiter alone leaves the queue
	Dismisses bool // all who had joined before the command was sent get the error, unless they outlast it
	Stays     bool // Acquire does not return
	Sleeps    bool // the waiter tries again after a pause
}

// Verdict decides. The others that had joined would only run into the same error one after another,
// each for a CommandTimeout.
func (f Failure) Verdict() FailureVerdict {
	if f.Own {
		return FailureVerdict{Leaves: true}
	}
	return FailureVerdict{Dismisses: true, Stays: f.Outlasts, Sleeps: f.Outlasts && !f.Out}
}

// A Refusal is what is known when the reply says that another owner has the lock.
type Refusal struct {
	Out      bool // another goroutine has removed the waiter
	NoWait   bool // it makes one attempt
	Queued   bool // Redis keeps the queue
	Position int  // its place in that queue, from 1; 0: it has none yet
	First    bool // no other waiter of this process is before it, so it polls for them
	Hears    bool // its subscription is confirmed
}

// A RefusalVerdict says what follows from a refusal.
type RefusalVerdict struct {
	GivesUp bool
	Sleeps  bool // until the holder's key expires, unless ByPlace
	ByPlace bool // it sleeps the longer, the more are before it
	Join    JoinTime
}

// A JoinTime says when a waiter asks for a place in Redis's queue.
type JoinTime uint8

const (
	NoJoin    JoinTime = iota // it has one, or there is no queue
	JoinNow                   // others can see that it is alive, because it is subscribed
	JoinHeard                 // when the subscription is confirmed, or has taken too long
)

// Verdict decides.
func (r Refusal) Verdict() (v RefusalVerdict) {
	switch {
	case r.Out: // the next plan has the reason
		return v
	case r.NoWait:
		v.GivesUp = true
		return v
	}
	v.Sleeps, v.ByPlace = true, r.Position > 1 && !r.First
	switch {
	case !r.Queued || r.Position > 0:
	case r.Hears:
		v.Join = JoinNow
	default:
		v.Join = JoinHeard
	}
	return v
}
