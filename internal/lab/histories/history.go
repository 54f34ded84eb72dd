package histories

import (
	"cmp"
	"slices"
	"time"
)

// A Call is a call of a process and its result. Times are nanoseconds on the monotonic clock of the
// machine.
type Call struct {
	Process int
	// Name is the lock's.
	Name string
	// Kind is "lock", "fair", "fenced", "read", "write", "once", "red", "semaphore", or "guests": a lock
	// that holders delegate.
	Kind string
	// Hold names one grant and its end.
	Hold string
	// Owner is the same for grants that re-enter, and for a holder and its guests, of any process.
	Owner  string
	What   What
	Begin  int64
	End    int64
	Result Result `json:",omitempty"`
	Token  uint64 `json:",omitempty"`
	// Record was found, or left by the release.
	Record string `json:",omitempty"`
	// Lease is the LeaseTime. 0: it is the watchdog's.
	Lease time.Duration `json:",omitempty"`
	Wait  time.Duration `json:",omitempty"` // WaitTime
	// Takes is how many permits of a semaphore are asked for, and Permits how many it has.
	Takes   int `json:",omitempty"`
	Permits int `json:",omitempty"`
	// Valid is when Lease.Err was last nil, for a Release. 0: it never was.
	Valid int64  `json:",omitempty"`
	Err   string `json:",omitempty"`
}

// level returns the hold that a call asks for.
func (c Call) level() level {
	return level{hold: c.Hold, owner: c.Owner, shared: c.Kind == "read", takes: c.Takes, permits: c.Permits}
}

// What names the function that was called.
type What string

const (
	Began   What = "began"   // an Acquire without a result yet; it has no End
	Leaving What = "leaving" // a ReleaseWith without a result yet; it has no End
	Acquire What = "acquire"
	Release What = "release"
)

// Result says how a call ended.
type Result string

const (
	Granted    Result = "granted"
	Refused    Result = "refused"
	Found      Result = "found" // a record
	Failed     Result = "failed"
	Released   Result = "released"
	Lost       Result = "lost"
	ParentLost Result = "parent lost"
)

// A Fault is something that a test did to Redis or to a process.
type Fault struct {
	What       string
	Begin, End int64
	Loss       Loss
}

// Loss says what data Redis loses by a fault.
type Loss string

const (
	Nothing  Loss = ""
	All      Loss = "all"       // Redis lost all at one moment.
	LastSome Loss = "last some" // Redis lost some of the last writes, at an unknown time.
)

// A History has all calls on the names of one topology.
type History struct {
	Calls    []Call
	Runs     []Run
	Faults   []Fault
	Watchdog time.Duration // WatchdogTimeout
	// Hidden is how long an unclaimed lock may stay in the way after its grant or after a fault.
	Hidden time.Duration
	// Prompt is how long a lock or permits may be free beside a waiter. 0: for ever.
	Prompt time.Duration
}

// A hold is a grant and its end. release is nil if its process was killed.
type hold struct {
	grant   Call
	release *Call
	levels  *levels
}

// levels are the holds of one owner, or of a holder and its guests. A level that ends without a confirmed
// release ends together with the others: after the last moment at which one of them was valid, and no
// later than the last grant. A guest's may end before, but no stranger gets the lock until then.
type levels struct {
	n            int
	valid, grant int64
}

// valid returns the last moment at which the owner knew that it held the lock; 0: never.
func (h hold) valid() int64 {
	if h.release == nil {
		return 0
	}
	return h.release.Valid
}

// confirmed reports whether Redis confirmed the release.
func (h hold) confirmed() bool { return h.release != nil && h.release.Result == Released }

// A span is the time between two moments.
type span struct{ from, to int64 }

func (s span) overlaps(from, to int64) bool { return s.from <= to && from <= s.to }

// A story is the history of one name.
type story struct {
	history *History
	name    string
	holds   []hold
	// others are acquires that were not granted. If the End is 0, the call never returned.
	others []Call
}

// stories sorts a history by name.
func (h *History) stories() []*story {
	byName := make(map[string]*story)
	began := make(map[string]Call)
	grants := make(map[string]int) // It has the index in holds, by hold.
	owners := make(map[string]*levels)
	var all []*story
	of := func(name string) *story {
		if byName[name] == nil {
			byName[name] = &story{history: h, name: name}
			all = append(all, byName[name])
		}
		return byName[name]
	}
	for _, c := range h.Calls {
		s := of(c.Name)
		switch {
		case c.What == Began:
			began[c.Hold] = c
		case c.What == Acquire && c.Result == Granted:
			delete(began, c.Hold)
			if owners[c.Owner] == nil {
				owners[c.Owner] = &levels{}
			}
			l := owners[c.Owner]
			l.n, l.grant = l.n+1, max(l.grant, c.End)
			grants[c.Hold] = len(s.holds)
			s.holds = append(s.holds, hold{grant: c, levels: l})
		case c.What == Acquire:
			delete(began, c.Hold)
			s.others = append(s.others, c)
		case c.What == Release, c.What == Leaving:
			if c.What == Leaving { // and no more, if the process was killed
				c.What, c.Result = Release, Failed
				for _, f := range h.Faults {
					c.End = max(c.End, f.End)
				}
			}
			d := &s.holds[grants[c.Hold]]
			d.release, d.levels.valid = &c, max(d.levels.valid, c.Valid)
		}
	}
	for _, c := range began { // the process was killed
		c.What, c.Result = Acquire, Failed
		of(c.Name).others = append(of(c.Name).others, c)
	}
	slices.SortFunc(all, func(a, b *story) int { return cmp.Compare(a.name, b.name) })
	return all
}

// settled returns when the faults that overlap a time have ended.
func (h *History) settled(from, to int64) int64 {
	end := to
	for _, f := range h.Faults {
		if (span{f.Begin, f.End}).overlaps(from, to) {
			end = max(end, f.End)
		}
	}
	return end
}

// shadows returns the times in which an unclaimed lock may be in the way.
func (s *story) shadows() (all []span) {
	h := s.history
	last := int64(0)
	for _, f := range h.Faults {
		last = max(last, f.End)
		all = append(all, span{f.Begin, f.End + int64(h.Hidden)})
	}
	for _, c := range s.others {
		if c.Result == Failed {
			end := c.End
			if end == 0 {
				end = last // no later than the kill
			}
			all = append(all, span{c.Begin, h.settled(c.Begin, end) + int64(c.Lease) + int64(h.Hidden)})
		}
	}
	for _, d := range s.holds {
		if !d.confirmed() {
			from, to := d.grant.Begin, last
			if d.release != nil {
				from, to = max(from, d.release.Valid), d.release.End
			}
			all = append(all, span{from, h.settled(from, to) + int64(d.grant.Lease) + int64(h.Hidden)})
		}
	}
	return all
}
