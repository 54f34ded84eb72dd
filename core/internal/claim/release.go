package claim

// A Release is what is known when the reply to the release of a hold has been read.
type Release struct {
	Err        error // the command's error; nil: Redis has answered
	Loss       error // what a hold that is missing was lost by
	There      bool  // Redis had the hold
	Leftovers  bool  // keys beside the lock's hash may be left
	Unanswered bool  // a try had no answer
	WrongKind  bool  // Err says that a key has another type
	Failed     bool  // Err is of a kind that may follow a write

	EndedBy   error // why the hold has ended meanwhile; nil: it has not
	LeaseLeft bool  // the released lease would still last
	Strays    bool  // what Hold.Strays returns

	Records   bool // the release stores a record
	RecordOld bool // the record may have expired since the command was sent
}

// A CleanUpCall is what a clean-up sends.
type CleanUpCall uint8

const (
	SameCall  CleanUpCall = iota // the release again
	PlainCall                    // a release without a record: what was done has none, so a marker must stay
	GoneCall                     // one that also removes the marks of the grant
)

// A ReleaseVerdict says what follows from a release.
type ReleaseVerdict struct {
	Err     error
	WasOver bool // the hold had ended before, and nothing else follows
	Deliver bool // waiters get the record
	Clean   Leftovers
	Call    CleanUpCall
	Alone   bool // the clean-up leaves out the keys beside the lock's
}

// Verdict decides.
func (r Release) Verdict() (v ReleaseVerdict) {
	if r.EndedBy != nil {
		return ReleaseVerdict{Err: r.EndedBy, WasOver: true}
	}
	// A try of this release whose reply was lost may have freed the hold. With a record, a later
	// try finds that until it has expired.
	freedEarlier := r.Unanswered && r.LeaseLeft
	if r.Records {
		freedEarlier = r.Unanswered && r.RecordOld
	}
	missing := r.Err == nil && !r.There && !freedEarlier
	if v.Err = r.Err; missing {
		v.Err = r.Loss
	}
	answered := r.Err == nil
	v.Deliver = v.Err == nil && r.Records
	v.Clean = AfterRelease(answered, r.Leftovers, r.Strays)
	switch {
	case missing, r.Records && r.Failed, r.WrongKind:
		v.Call, v.Alone = PlainCall, r.WrongKind
	case answered:
		v.Call = GoneCall
	}
	return v
}
