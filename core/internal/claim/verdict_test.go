package claim

import (
	"errors"
	"testing"
)

var (
	errDown    = errors.New("no reply")
	errReplica = errors.New("too few replicas")
	errCaller  = errors.New("the caller has left")
)

// bits returns the values of n conditions in the combination with that number.
func bits(combination int) func() bool {
	return func() bool {
		bit := combination&1 == 1
		combination >>= 1
		return bit
	}
}

// errIf returns err if a condition holds.
func errIf(yes bool, err error) error {
	if yes {
		return err
	}
	return nil
}

// All that can be known of a hand-over: what Redis may have of either side is held, kept or cleaned
// up, and each side has one outcome.
func TestHandOver_AllVerdicts(t *testing.T) {
	t.Parallel()
	for reply := HandedOver; reply <= Unknown; reply++ {
		for combination := range 1 << 13 {
			b := bits(combination)
			o := HandOver{
				Reply: reply, Unproven: errIf(b(), errReplica), Unanswered: b(), EndedBy: errIf(b(), ErrLockLost), HoldStray: b(),
				LeaseLeft: b(), Here: b(), Queued: b(), Earlier: Leftovers{There: b(), Stray: b()}, Forced: b(), Late: b(), Fewer: b(),
			}
			if reply != HandedOver {
				o.Unproven = nil
			}
			o.Unanswered = (o.Unanswered || reply == Unknown) && reply != NotExecuted
			if reply >= NotExecuted {
				o.Err = errDown
			}
			if !o.Queued {
				o.Earlier = Leftovers{}
			}
			checkHandOver(t, o, o.Verdict())
			if t.Failed() {
				return
			}
		}
	}
}

func checkHandOver(t *testing.T, o HandOver, v HandOverVerdict) {
	t.Helper()
	counts := o.Reply == HandedOver && o.Unproven == nil && o.Here && !o.Forced && !o.Late
	for what, wrong := range map[string]bool{
		"the heir holds the lock exactly if the grant counts":     v.Accepted != counts,
		"the heir has two outcomes":                               v.Accepted && (v.HeirErr != nil || v.Dismiss != nil || v.KeepsOn || !v.CleanHeir.None()),
		"what the heir may have is forgotten":                     (o.Reply == HandedOver || o.Unanswered) && !v.Accepted && !v.KeepsOn && !v.CleanHeir.There,
		"what an heir that keeps its wire owner has is forgotten": (o.Reply == HandedOver || o.Unanswered) && v.KeepsOn && !v.HeirLeftovers.There,
		"a stray of the heir is forgotten":                        o.Unanswered && (!(v.Accepted || v.KeepsOn) && !v.CleanHeir.Stray || (v.Accepted || v.KeepsOn) && !v.HeirLeftovers.Stray),
		"a stray of the heir's place is forgotten":                (v.Accepted || v.KeepsOn) && o.Earlier.Stray && !v.HeirLeftovers.Stray,
		"the place of a waiter is freed":                          (v.Accepted || v.KeepsOn) && !v.CleanHeir.None(),
		"what was cleaned up is kept":                             !v.HeirLeftovers.None() && !v.CleanHeir.None(),
		"a command that failed for sure ends the hold":            o.Reply == NotExecuted && o.EndedBy == nil && (v.Over || !v.CleanHold.None()),
		"the hold does not end":                                   o.Reply != NotExecuted && !v.Over,
		"a hold that ended before returns another error":          o.EndedBy != nil && v.Err != o.EndedBy,
		"a hold that may be there is forgotten":                   v.Over && o.Err != nil && !v.CleanHold.There,
		"a stray of the hold is forgotten":                        v.Over && o.HoldStray && !v.CleanHold.Stray,
		"a lost hold is released":                                 o.Reply == NotHeld && o.EndedBy == nil && !o.Unanswered && v.Err != ErrLockLost,
		"a hold that a retry missed is lost":                      o.Reply == NotHeld && o.EndedBy == nil && o.Unanswered && o.LeaseLeft && v.Err != nil,
		"an unknown outcome is nobody's error":                    o.Reply == Unknown && (v.Dismiss != errDown || o.EndedBy == nil && v.Err != errDown),
		"too few replicas are nobody's error":                     o.Unproven != nil && v.Dismiss != errReplica,
		"nobody tries":                                            v.Over && !v.Accepted && o.Reply != FreedInstead && !v.Wake,
		"somebody tries in vain":                                  v.Accepted && v.Wake && !o.Fewer,
		"a permit stays free beside the next one":                 v.Accepted && o.Fewer && !v.Wake,
	} {
		if wrong {
			t.Errorf("%s: %+v: %+v", what, o, v)
		}
	}
}

// All that can be known of a grant: it counts only if nothing stands against it.
func TestGrant_AllVerdicts(t *testing.T) {
	t.Parallel()
	for combination := range 1 << 7 {
		b := bits(combination)
		g := Grant{
			Asks: b(), OwnerHas: b(), Removed: errIf(b(), errDown), CallerErr: errIf(b(), errCaller), Forced: b(), Late: b(), Outrun: b(),
		}
		v := g.Verdict()
		var want GrantVerdict
		switch {
		case g.Asks && g.OwnerHas && g.CallerErr == nil:
			want.Sleeps = true
		case g.Removed != nil:
			want.Err = errDown
		case g.CallerErr != nil:
			want.Err = errCaller
		case g.Forced:
			want.Err = ErrForced
		case g.Late:
			want.Err = ErrLate
		case g.Outrun:
			want = GrantVerdict{Err: ErrOutrun, Displaces: true}
		default:
			want.Displaces = true
		}
		if v != want {
			t.Errorf("%+v: %+v, want %+v", g, v, want)
		}
	}
}

// All that can be known of a release: what Redis may have is cleaned up, and Release returns why the
// hold has ended if it was lost.
func TestRelease_AllVerdicts(t *testing.T) {
	t.Parallel()
	for combination := range 1 << 11 {
		b := bits(combination)
		r := Release{
			Err: errIf(b(), errDown), Loss: ErrLockLost, There: b(), Leftovers: b(), Unanswered: b(), WrongKind: b(), Failed: b(),
			EndedBy: errIf(b(), ErrLockLost), LeaseLeft: b(), Strays: b(), Records: b(), RecordOld: b(),
		}
		if r.Err == nil {
			r.WrongKind, r.Failed = false, false
		}
		v := r.Verdict()
		earlier := r.Unanswered && (r.LeaseLeft && !r.Records || r.RecordOld && r.Records)
		missing := r.Err == nil && !r.There && !earlier
		for what, wrong := range map[string]bool{
			"a hold that ended before has a second end": r.EndedBy != nil && v != ReleaseVerdict{Err: r.EndedBy, WasOver: true},
			"a command's error is lost":                 r.EndedBy == nil && r.Err != nil && v.Err != errDown,
			"a hold that is missing was not lost":       r.EndedBy == nil && missing && v.Err != ErrLockLost,
			"a hold is lost that was there":             r.EndedBy == nil && r.Err == nil && !missing && v.Err != nil,
			"a hold that may be there is forgotten":     r.EndedBy == nil && (r.Err != nil || r.Leftovers) && !v.Clean.There,
			"a stray is forgotten":                      r.EndedBy == nil && v.Clean.Stray != r.Strays,
			"a record is delivered that is not there":   v.Deliver && (v.Err != nil || !r.Records),
			"a record is not delivered":                 r.EndedBy == nil && r.Records && v.Err == nil && !v.Deliver,
			"a marker goes that must stay":              r.EndedBy == nil && missing && v.Call != PlainCall,
			"a marker stays that must go":               r.EndedBy == nil && r.Err == nil && !missing && v.Call != GoneCall,
			"an unanswered release is not repeated":     r.EndedBy == nil && r.Err != nil && !r.WrongKind && !(r.Records && r.Failed) && v.Call != SameCall,
			"a record that failed is stored later":      r.EndedBy == nil && r.Records && r.Failed && v.Call != PlainCall,
			"a key of another type fails the clean-up":  r.EndedBy == nil && r.WrongKind && !v.Alone,
		} {
			if wrong {
				t.Errorf("%s: %+v: %+v", what, r, v)
			}
		}
	}
}

// All that can be known when a lease has left its hold: a hand-over needs an heir that can take the
// very thing that is left.
func TestExit_AllVerdicts(t *testing.T) {
	t.Parallel()
	for combination := range 1 << 10 {
		b := bits(combination)
		x := Exit{WasOver: b(), HandsOver: b(), Heir: b(), SameKind: b(), Queued: b(), HeirEarlier: Leftovers{There: b(), Stray: b()}}
		if b() {
			x.Counts = Counts{1, 0}
		}
		if b() {
			x.Counts.Shared = 2
		}
		if b() {
			x.Deepest = 1
		}
		want := FreesHold
		switch inPlace := x.HeirEarlier.There || !x.Queued; {
		case x.WasOver:
			want = AlreadyOver
		case x.Counts != Counts{}:
			want = LowersCount
		case x.HandsOver && x.Heir && x.SameKind && x.Deepest == 0 && inPlace:
			want = HandsOver
		}
		if got := x.Verdict(); got != want {
			t.Errorf("%+v: %d, want %d", x, got, want)
		}
	}
}

// All that can be known of an attempt: what Redis may have stays with the wire owner or is cleaned
// up, and a lease takes all of it along.
func TestAttempt_AllVerdicts(t *testing.T) {
	t.Parallel()
	for combination := range 1 << 6 {
		b := bits(combination)
		a := Attempt{Granted: b(), Unanswered: b(), Looks: b(), Keeps: b(), Earlier: Leftovers{There: b(), Stray: b()}}
		left := a.Earlier
		if !a.Looks && (a.Granted || a.Unanswered) {
			left = Leftovers{There: true, Stray: a.Unanswered || a.Earlier.Stray}
		}
		want := AttemptVerdict{Clean: left}
		if a.Keeps {
			want = AttemptVerdict{Kept: left}
		}
		if v := a.Verdict(); v != want || v.Leftovers() != left {
			t.Errorf("%+v: %+v with %+v, want %+v", a, v, v.Leftovers(), want)
		}
	}
}

// All that can be known of a change: a level counts if Redis has it and its caller gets the lease,
// and one that Redis may have without a lease is taken back.
func TestUpdate_AllVerdicts(t *testing.T) {
	t.Parallel()
	errEnded, errLease := errors.New("the hold has ended"), errors.New("the lease has ended")
	for combination := range 1 << 9 {
		b := bits(combination)
		u := Update{
			Err: errIf(b(), errDown), Loss: ErrLockLost, There: b(), EndedBy: errIf(b(), errEnded), Downgrades: b(), CountOnly: b(),
			CallerLeft: b(), Unproven: errIf(b(), errReplica), LeaseEndedBy: errIf(b(), errLease), Late: b(),
		}
		v := u.Verdict()
		answered := u.Err == nil
		accepted := answered && u.There && u.EndedBy == nil
		usable := !u.CallerLeft && u.Unproven == nil && u.LeaseEndedBy == nil && !u.Late
		for what, wrong := range map[string]bool{
			"a command's error is lost":                     !answered && v.Err != errDown,
			"a hold is lost that was not missing":           v.Loss != nil && (!answered || u.There),
			"a missing hold is not lost":                    answered && !u.There && u.EndedBy == nil && v.Loss != ErrLockLost,
			"a hold that ended before ends again":           u.EndedBy != nil && v.Loss != nil,
			"a hold that ended before has another error":    answered && u.EndedBy != nil && v.Err != errEnded,
			"the levels of Redis are not noted":             v.Confirms != accepted,
			"a lease counts without Redis":                  v.Applies && !accepted,
			"a lease counts that must not":                  v.Applies && !usable,
			"a lease does not count that must":              accepted && usable && (!v.Applies || v.Err != nil),
			"a lease that does not count has no error":      accepted && !usable && !u.CallerLeft && v.Err == nil,
			"a level that nobody has stays":                 accepted && (u.CallerLeft || u.Unproven != nil) && !v.Resends,
			"a late level stays":                            accepted && u.Late && u.LeaseEndedBy == nil && !v.Resends,
			"a count is sent again in vain":                 v.Resends && (!accepted || v.Applies),
			"readers are not told that they may enter":      v.Admits != (accepted && u.Downgrades),
			"a downgrade without an answer is not repeated": v.Retries != (!answered && u.Downgrades && u.CountOnly),
		} {
			if wrong {
				t.Errorf("%s: %+v: %+v", what, u, v)
			}
		}
	}
}

func TestFailure_AllVerdicts(t *testing.T) {
	t.Parallel()
	for combination := range 1 << 3 {
		b := bits(combination)
		f := Failure{Own: b(), Outlasts: b(), Out: b()}
		want := FailureVerdict{Dismisses: true, Stays: f.Outlasts, Sleeps: f.Outlasts && !f.Out}
		if f.Own {
			want = FailureVerdict{Leaves: true}
		}
		if v := f.Verdict(); v != want {
			t.Errorf("%+v: %+v, want %+v", f, v, want)
		}
	}
}

func TestRefusal_Verdicts(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		what string
		r    Refusal
		want RefusalVerdict
	}{
		{"removed meanwhile", Refusal{Out: true, NoWait: true, Queued: true}, RefusalVerdict{}},
		{"a single attempt", Refusal{NoWait: true}, RefusalVerdict{GivesUp: true}},
		{"no queue in Redis", Refusal{}, RefusalVerdict{Sleeps: true}},
		{"no place yet, and it hears", Refusal{Queued: true, Hears: true}, RefusalVerdict{Sleeps: true, Join: JoinNow}},
		{"no place yet, and it is deaf", Refusal{Queued: true, First: true}, RefusalVerdict{Sleeps: true, Join: JoinHeard}},
		{"first in the queue", Refusal{Queued: true, Position: 1}, RefusalVerdict{Sleeps: true}},
		{"behind others", Refusal{Queued: true, Position: 2}, RefusalVerdict{Sleeps: true, ByPlace: true}},
		{"behind others, and it polls for those here", Refusal{Queued: true, Position: 2, First: true}, RefusalVerdict{Sleeps: true}},
	} {
		if v := test.r.Verdict(); v != test.want {
			t.Errorf("%s: %+v, want %+v", test.what, v, test.want)
		}
	}
}

func TestRenewal_Verdicts(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		what string
		r    Renewal
		want RenewalVerdict
	}{
		{"a watched lease", Renewal{Watched: true}, RenewalVerdict{Prolongs: true}},
		{"no watched lease when it was sent", Renewal{}, RenewalVerdict{}},
		{"a read level it did not know", Renewal{Watched: true, Known: 1, Shared: 2}, RenewalVerdict{Again: true}},
		{"a read level that has gone", Renewal{Watched: true, Known: 2, Shared: 1}, RenewalVerdict{Prolongs: true}},
		{"a hash that lives for too long", Renewal{Watched: true, Excess: true}, RenewalVerdict{Prolongs: true, Again: true}},
		{"one that still does", Renewal{Watched: true, Excess: true, Shortens: true}, RenewalVerdict{Prolongs: true}},
		{"one that does no more", Renewal{Watched: true, Shortens: true}, RenewalVerdict{Prolongs: true}},
	} {
		if v := test.r.Verdict(); v != test.want {
			t.Errorf("%s: %+v, want %+v", test.what, v, test.want)
		}
	}
}

func TestMissing_Verdicts(t *testing.T) {
	t.Parallel()
	for state := Held; state <= Lost; state++ {
		for _, same := range []bool{false, true} {
			want := Ignored
			switch {
			case state == Held && same:
				want = IsLost
			case state == Held:
				want = RenewAgain
			}
			if v := (Missing{State: state, Same: same}).Verdict(); v != want {
				t.Errorf("%s, same field %v: %d, want %d", state, same, v, want)
			}
		}
	}
}

// A name whose waiters rest goes through the phases in order. In tests, any other change panics.
func TestPhase_RefusesWhatTheMachineDoesNotHave(t *testing.T) {
	t.Parallel()
	allowed := map[[2]phase]bool{
		{running, running}: true, {running, yielding}: true, {yielding, running}: true, {yielding, pausing}: true, {pausing, running}: true,
	}
	for from := running; from <= pausing; from++ {
		for to := running; to <= pausing; to++ {
			r := rotation{phase: from}
			refused := panics(func() { r.move(to) })
			if refused == allowed[[2]phase{from, to}] {
				t.Errorf("%s to %s: refused %v", from, to, refused)
			}
		}
	}
}

// What commands of one wire owner leave is merged, and never forgotten.
func TestLeft(t *testing.T) {
	t.Parallel()
	for combination := range 1 << 4 {
		b := bits(combination)
		one, other := Leftovers{There: b(), Stray: b()}, Leftovers{There: b(), Stray: b()}
		if got, want := one.Or(other), (Leftovers{There: one.There || other.There, Stray: one.Stray || other.Stray}); got != want {
			t.Errorf("%+v or %+v: %+v", one, other, got)
		}
		if got, want := one.Queueing(), (Leftovers{There: true, Stray: one.Stray}); got != want {
			t.Errorf("%+v queueing: %+v", one, got)
		}
		granted, stray := one.There, one.Stray
		if got := AfterAcquire(granted, stray); got != (Leftovers{There: granted || stray, Stray: stray}) || got.None() != (!granted && !stray) {
			t.Errorf("after an acquire, granted %v, stray %v: %+v", granted, stray, got)
		}
	}
	if got := AfterLoss(false); got != (Leftovers{There: true}) {
		t.Errorf("after a loss: %+v", got)
	}
}
