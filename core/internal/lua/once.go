package lua

import (
	_ "embed"
	"time"
)

var (
	//go:embed once_acquire.lua
	onceAcquireSource string
	//go:embed once_count.lua
	onceCountSource string
	//go:embed once_look.lua
	onceLookSource string
	//go:embed once_record.lua
	onceRecordSource string
	//go:embed once_release.lua
	onceReleaseSource string

	onceAcquire = script("once_acquire", function(acquire)+onceAcquireSource, acquires)
	onceCount   = script("once_count", onceCountSource, 0)
	onceLook    = script("once_look", onceLookSource, 0)
	onceRecord  = script("once_record", function(release)+onceRecordSource, 0)
	onceRelease = script("once_release", function(release)+onceReleaseSource, 0)
)

// A Record is a value that a hold stores under its name for some time.
type Record struct {
	Value string
	TTL   time.Duration
	// Stale is how much longer it lives. Meanwhile it is stale: one caller renews it.
	Stale time.Duration
	// Spare is stored in its place if Redis refuses it. If Spare is empty, nothing is.
	Spare string
}

// Marks are what a grant leaves under its name for TTL: a record that stays if its holder dies, and
// what the name is bound to. Each may be empty.
type Marks struct {
	Marker, Binding string
	TTL             time.Duration
}

// OnceAcquire returns the record if there is one. Otherwise it takes the lock and stores the marks;
// see once_acquire.lua. ReadRecord reads its reply, then ReadAcquire if there is no record.
func OnceAcquire(key, recordKey, owner string, lease time.Duration, m Marks) Call {
	c := call(onceAcquire, 2, 5)
	c.add(key, recordKey, owner, lease.Milliseconds(), m.Marker, m.Binding, m.TTL.Milliseconds())
	return c
}

// OnceLook returns the record, and takes no lock; see once_look.lua. Its reply is read like that of
// OnceAcquire.
func OnceLook(key, recordKey, binding string) Call {
	c := call(onceLook, 2, 1)
	c.add(key, recordKey, binding)
	return c
}

// OnceRecord stores a record and sets the count of a hold, or frees the hold with its last level;
// see once_record.lua. ReadUpdate reads its reply, or ReadRelease if it frees the hold.
func OnceRecord(key, recordKey, owner string, count int, r Record, a Announcement) Call {
	c := call(onceRecord, 2, 9)
	c.add(key, recordKey, owner, count, r.Value, (r.TTL + r.Stale).Milliseconds(), r.Stale.Milliseconds())
	a.addTo(&c)
	return c
}

// A Removal says which of its marks a hold removes when it is freed without a record.
type Removal struct {
	// Gone removes the marks even if the hold is gone.
	Gone bool
	// Binding removes the binding as well as the marker.
	Binding bool
	// Pause is how long no one is to renew a stale record.
	Pause time.Duration
}

// OnceRelease frees a hold without a record and removes its marks; see once_release.lua. ReadRelease
// reads its reply.
func OnceRelease(key, recordKey, owner string, r Removal, a Announcement) Call {
	c := call(onceRelease, 2, 8)
	c.add(key, recordKey, owner, bit(r.Gone), bit(r.Binding), r.Pause.Milliseconds())
	a.addTo(&c)
	return c
}

func bit(b bool) int {
	if b {
		return 1
	}
	return 0
}

// OnceCount counts a member towards a quota for a time, unless most others are counted; see
// once_count.lua. ReadUpdate reads its reply.
func OnceCount(key, member string, most int, d time.Duration) Call {
	c := call(onceCount, 1, 3)
	c.add(key, member, most, d.Milliseconds())
	return c
}

// ReadRecord returns the record in a reply to the call. ok is false if there is none.
func (c Call) ReadRecord(reply any) (record string, ok bool) {
	if c.ofOnce() {
		record, ok = reply.(string)
	}
	return record, ok
}

// Looks reports whether the call only asks for a record.
func (c Call) Looks() bool { return c.Script == onceLook }

// ofOnce reports whether the call asks for a record.
func (c Call) ofOnce() bool { return c.Script == onceAcquire || c.Script == onceLook }
