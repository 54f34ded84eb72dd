package claim

import "cmp"

// An Update is what is known when the reply to a change of a hold that goes on has been read: a
// re-entry, an extension, or a release of one of several leases.
type Update struct {
	Err        error // the command's error; nil: Redis has answered
	Loss       error // what a hold that is missing was lost by
	There      bool  // Redis had the hold
	EndedBy    error // why the hold has ended meanwhile; nil: it has not
	Downgrades bool  // its levels turn a writer's hold into a reader's
	CountOnly  bool  // it only lowers the count: it is for no lease

	CallerLeft   bool  // the caller has left, and wants the lease no more
	Unproven     error // why the replicas may not have what Redis has
	LeaseEndedBy error // why the lease of the command has ended, or must not begin; nil: it has not
	Late         bool  // the lease would be over before it begins
}

// An UpdateVerdict says what follows from a change.
type UpdateVerdict struct {
	Err      error
	Loss     error // the hold is lost by it; nil: it is not
	Confirms bool  // Redis has the levels that were sent
	Admits   bool  // readers may enter now
	Applies  bool  // the lease begins or lasts longer; the count is right
	// Resends means that the count is sent again: Redis may have a level that no lease is for.
	Resends bool
	// Retries means that the count is sent until Redis accepts it: no reader can enter before that.
	// The next change, which would send it too, may be hours away.
	Retries bool
}

// Verdict decides.
func (u Update) Verdict() (v UpdateVerdict) {
	switch {
	case u.Err != nil:
		v.Err, v.Retries = u.Err, u.Downgrades && u.CountOnly
	case !u.There:
		v.Err = cmp.Or(u.EndedBy, u.Loss)
		if u.EndedBy == nil {
			v.Loss = u.Loss
		}
	case u.EndedBy != nil:
		v.Err = u.EndedBy
	default:
		v.Confirms, v.Admits = true, u.Downgrades
		switch {
		case u.CallerLeft:
			v.Resends = true
		case u.Unproven != nil:
			v.Err, v.Resends = u.Unproven, true
		case u.LeaseEndedBy != nil:
			v.Err = u.LeaseEndedBy
		case u.Late:
			v.Err, v.Resends = ErrLate, true
		default:
			v.Applies = true
		}
	}
	return v
}
