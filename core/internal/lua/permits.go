package lua

import (
	_ "embed"
	"time"

	"github.com/reqlock/reqlock/core/internal/wire"
)

var (
	//go:embed permit_clock.lua
	permitClock string
	//go:embed permit_acquire.lua
	permitAcquireSource string
	//go:embed permit_release.lua
	permitReleaseSource string
	//go:embed permit_pass.lua
	permitPassSource string
	//go:embed permit_update.lua
	permitUpdateSource string
	//go:embed permit_set.lua
	permitSetSource string
	//go:embed permit_inspect.lua
	permitInspectSource string
	//go:embed permit_holders.lua
	permitHoldersSource string
	//go:embed permit_present.lua
	permitPresentSource string
	//go:embed permit_enter.lua
	permitEnterSource string
	//go:embed permit_leave.lua
	permitLeaveSource string
	//go:embed permit_force_release.lua
	permitForceSource string

	permitAcquire = script("permit_acquire", permitAcquireSource, acquires|counted)
	permitRelease = script("permit_release", permitReleaseSource, counted)
	permitPass    = script("permit_pass", permitPassSource, counted)
	permitUpdate  = script("permit_update", permitUpdateSource, counted)
	permitSet     = script("permit_set", permitSetSource, counted)
	permitInspect = script("permit_inspect", permitInspectSource, counted)
	permitHolders = script("permit_holders", permitHoldersSource, counted)
	permitPresent = script("permit_present", permitPresentSource, 0)
	permitEnter   = script("permit_enter", permitEnterSource, acquires|counted)
	permitLeave   = script("permit_leave", permitLeaveSource, counted)
	permitForce   = script("permit_force_release", forceTell+permitForceSource, counted)
)

// A Semaphore has the keys of a semaphore, and what its scripts publish. Its Announcement has no
// message: the scripts publish how many permits are free.
type Semaphore struct {
	Free, Taken, Declared string
	Announcement
}

func (s *Semaphore) call(script *Script, keys []string, room int) Call {
	c := call(script, len(keys), room+1+len(s.Commands))
	for _, key := range keys {
		c.add(key)
	}
	return c
}

func (s *Semaphore) announceBy(c *Call) {
	c.add(s.Channel)
	for _, command := range s.Commands {
		c.add(command)
	}
}

// A Declaration says how many permits a semaphore has. 0: as Redis has it. Of two, the younger one
// is right.
type Declaration struct {
	Permits int
	Age     time.Duration
}

// AcquirePermits takes permits of a semaphore; see permit_acquire.lua. ReadAcquire reads its reply.
func AcquirePermits(s *Semaphore, owner string, count int, lease time.Duration, d Declaration) Call {
	c := s.call(permitAcquire, []string{s.Free, s.Taken, s.Declared}, 5)
	c.add(owner, lease.Milliseconds(), count, d.Permits, d.Age.Milliseconds())
	s.announceBy(&c)
	return c
}

// PassPermits hands permits over from one wire owner to another; see permit_pass.lua. ReadPass reads
// its reply.
func PassPermits(s *Semaphore, from, to string, count int, lease time.Duration) Call {
	c := s.call(permitPass, []string{s.Free, s.Taken}, 4)
	c.add(from, to, lease.Milliseconds(), count)
	s.announceBy(&c)
	return c
}

// ReleasePermits frees the permits of a hold; see permit_release.lua. ReadRelease reads its reply.
func ReleasePermits(s *Semaphore, owner string, count int) Call {
	c := s.call(permitRelease, []string{s.Free, s.Taken}, 2)
	c.add(owner, count)
	s.announceBy(&c)
	return c
}

// UpdatePermits prolongs the permits of a hold; see permit_update.lua. ReadUpdate reads its reply.
func UpdatePermits(s *Semaphore, owner string, count int, lease time.Duration) Call {
	c := s.call(permitUpdate, []string{s.Taken}, 3)
	c.add(owner, count, lease.Milliseconds())
	return c
}

// A Family is who uses the permits of a hold: its owner and the guests.
type Family struct {
	Key    string
	Owner  string // wire owner that took the permits
	Count  int    // how many permits those are
	Member string // wire owner of the guest, or of the one that leaves
}

// Field is what renew.lua calls a guest.
func (f Family) Field() string { return f.Owner + "/" + f.Member }

// EnterPermits lets a guest use permits beside host, which uses them, too; see permit_enter.lua.
// ReadAcquire reads its reply.
func EnterPermits(s *Semaphore, f Family, host string, lease time.Duration) Call {
	c := call(permitEnter, 2, 5)
	c.add(s.Taken, f.Key, f.Owner, f.Count, host, f.Member, lease.Milliseconds())
	return c
}

// LeavePermits frees the permits when the last of a family leaves; see permit_leave.lua. ReadRelease
// reads its reply.
func LeavePermits(s *Semaphore, f Family) Call {
	c := s.call(permitLeave, []string{s.Free, s.Taken, f.Key}, 4)
	c.add(f.Owner, f.Count, f.Member)
	s.announceBy(&c)
	return c
}

// UpdateGuestPermits is UpdatePermits for a guest.
func UpdateGuestPermits(s *Semaphore, f Family, lease time.Duration) Call {
	c := call(permitUpdate, 2, 4)
	c.add(s.Taken, f.Key, f.Owner, f.Count, lease.Milliseconds(), f.Member)
	return c
}

// ForceReleasePermits takes the permits of those owners that still have some, and tells their clients
// and those of their guests; see permit_force_release.lua. ReadTaken
// reads its reply.
func ForceReleasePermits(s *Semaphore, name string, owners []string) Call {
	keys := []string{s.Free, s.Taken}
	for _, owner := range owners {
		keys = append(keys, wire.PermitFamily(s.Free, owner))
	}
	c := s.call(permitForce, keys, 3+len(owners))
	c.add(name)
	c.addOwners(owners)
	s.announceBy(&c)
	return c
}

// SetPermits sets how many permits a semaphore has; see permit_set.lua. ReadUpdate reads its reply.
func SetPermits(s *Semaphore, permits int) Call {
	c := s.call(permitSet, []string{s.Free, s.Taken, s.Declared}, 1)
	c.add(permits)
	s.announceBy(&c)
	return c
}

// CountPermits asks how many permits a semaphore has; see permit_inspect.lua. ReadPermits reads its
// reply.
func CountPermits(s *Semaphore) Call {
	return s.call(permitInspect, []string{s.Free, s.Taken, s.Declared}, 0)
}

// ReadPermits reads the reply of a CountPermits: how many permits there are, and how many of them are
// taken. permits is -1 if no one has said.
func ReadPermits(reply any) (permits, taken int, err error) {
	list, ok := reply.([]any)
	if !ok || len(list) != 2 {
		return 0, 0, unexpected(permitInspect, reply)
	}
	n, ok := integers(list)
	if !ok {
		return 0, 0, unexpected(permitInspect, reply)
	}
	return int(n[0]), int(n[1]), nil
}

// PermitHolders returns the ids of the permits that are taken; see permit_holders.lua. ReadHolders
// reads its reply.
func PermitHolders(taken string) Call {
	c := call(permitHolders, 1, 0)
	c.add(taken)
	return c
}

// PresentPermits looks for permits by their ids; see permit_present.lua. ReadPresent reads its reply.
func PresentPermits(taken string, ids []string) Call {
	c := call(permitPresent, 1, len(ids))
	c.add(taken)
	for _, id := range ids {
		c.add(id)
	}
	return c
}
