package lua

import (
	_ "embed"
	"time"
)

var (
	//go:embed once_acquire.lua
	onceAcquireSource string
	//go:embed once_look.lua
	onceLookSource string
	//go:embed once_record.lua
	onceRecordSource string
	//go:embed once_release.lua
	onceReleaseSource string

	onceAcquire = script("once_acquire", onceAcquireSource)
	onceLook    = script("once_look", onceLookSource)
	onceRecord  = script("once_record", onceRecordSource)
	onceRelease = script("once_release", onceReleaseSource)
)

// A Record is a value that a hold stores under its name for some time.
type Record struct {
	Value string
	TTL   time.Duration
}

// OnceAcquire returns the record if there is one. Otherwise it takes the lock and stores the
// marker, unless that is empty; see once_acquire.lua. ReadRecord reads its reply, then ReadAcquire
// if there is no record.
func OnceAcquire(key, recordKey, owner string, lease time.Duration, marker Record) Call {
	c := call(onceAcquire, 2, 4)
	c.add(key, recordKey, owner, lease.Milliseconds(), marker.Value, marker.TTL.Milliseconds())
	return c
}

// OnceLook returns the record, and takes no lock; see once_look.lua. Its reply is read like that of
// OnceAcquire.
func OnceLook(key, recordKey string) Call {
	c := call(onceLook, 2, 0)
	c.add(key, recordKey)
	return c
}

// OnceRecord stores a record and sets the count of a hold, or frees the hold with its last level;
// see once_record.lua. ReadUpdate reads its reply, or ReadRelease if it frees the hold.
func OnceRecord(key, recordKey, owner string, count int, r Record, a Announcement) Call {
	c := call(onceRecord, 2, 8)
	c.add(key, recordKey, owner, count, r.Value, r.TTL.Milliseconds())
	a.addTo(&c)
	return c
}

// OnceRelease frees a hold without a record and removes its marker; see once_release.lua. unused
// means that no work began under the hold. ReadRelease reads its reply.
func OnceRelease(key, recordKey, owner string, unused bool, a Announcement) Call {
	c := call(onceRelease, 2, 6)
	work := 0
	if unused {
		work = 1
	}
	c.add(key, recordKey, owner, work)
	a.addTo(&c)
	return c
}

// ReadRecord returns the record in a reply to the call. ok is false if there is none.
func (c Call) ReadRecord(reply any) (record string, ok bool) {
	if c.Script == onceAcquire || c.Script == onceLook {
		record, ok = reply.(string)
	}
	return record, ok
}
