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

// A Record is what a hold leaves under its name, for some time.
type Record struct {
	Value string
	TTL   time.Duration
}

// OnceAcquire returns the record, or else takes the lock and leaves the marker, if that has a value; see once_acquire.lua.
// Its reply is read by ReadRecord, and where that finds none by ReadAcquire.
func OnceAcquire(key, recordKey, owner string, lease time.Duration, marker Record) Call {
	c := call(onceAcquire, 2, 4)
	c.add(key, recordKey, owner, lease.Milliseconds(), marker.Value, marker.TTL.Milliseconds())
	return c
}

// OnceLook returns the record and takes nothing; see once_look.lua. Its reply is read like that of OnceAcquire.
func OnceLook(key, recordKey string) Call {
	c := call(onceLook, 2, 0)
	c.add(key, recordKey)
	return c
}

// OnceRecord leaves a record and sets a hold's count, or frees it with its last level; see once_record.lua. Its reply is
// read by ReadFlag.
func OnceRecord(key, recordKey, owner string, count int, r Record, a Announcement) Call {
	c := call(onceRecord, 2, 8)
	c.add(key, recordKey, owner, count, r.Value, r.TTL.Milliseconds())
	a.addTo(&c)
	return c
}

// OnceRelease frees a hold that leaves no record, and takes its marker away; see once_release.lua. Its reply is read by
// ReadFlag.
func OnceRelease(key, recordKey, owner string, a Announcement) Call {
	c := call(onceRelease, 2, 5)
	c.add(key, recordKey, owner)
	a.addTo(&c)
	return c
}

// ReadRecord returns the record in a reply to the call, if there is one.
func (c Call) ReadRecord(reply any) (record string, ok bool) {
	if c.Script == onceAcquire || c.Script == onceLook {
		record, ok = reply.(string)
	}
	return record, ok
}
