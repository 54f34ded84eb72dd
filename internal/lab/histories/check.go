package histories

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/anishathalye/porcupine"
)

// A Violation is a name whose history breaks a promise.
type Violation struct {
	Name   string
	Reason string
	// Picture shows the history, as a page for a browser, if no order explains it. It has the
	// longest explained part.
	Picture func(path string) error
}

func (v Violation) String() string { return v.Name + ": " + v.Reason }

// A Tally counts what was checked.
type Tally struct {
	// Grants, Refusals and Records are counted by kind, and so are Waiters, beside which nothing was
	// free for long.
	Grants, Refusals, Records, Waiters map[string]int
	// Beside is the longest time for which a lock or permits were free beside one of the Waiters.
	Beside time.Duration
	// Guests are those of the grants that entered a hold of another process.
	Guests int
	// Unchecked are refusals that an unclaimed lock may explain.
	Unchecked int
	// Operations are those that porcupine put in order.
	Operations int
}

func newTally() Tally {
	return Tally{Grants: map[string]int{}, Refusals: map[string]int{}, Records: map[string]int{}, Waiters: map[string]int{}}
}

// patience bounds the search for an order. The search takes milliseconds if there is one, and
// exponential time at worst.
const patience = time.Minute

// Check returns the violations of a history, and counts what it checked.
func Check(h *History) (violations []Violation, tally Tally) {
	tally = newTally()
	var mu sync.Mutex
	var all sync.WaitGroup
	room := make(chan struct{}, 2)
	for _, s := range h.stories() {
		violations = append(violations, s.outlives()...)
		violations = append(violations, s.idles(&tally)...)
		for _, part := range s.parts() {
			ops := part.operations(&tally)
			tally.Operations += len(ops)
			all.Go(func() {
				room <- struct{}{}
				defer func() { <-room }()
				if v, ok := check(s.name, ops); !ok {
					mu.Lock()
					defer mu.Unlock()
					violations = append(violations, v)
				}
			})
		}
	}
	all.Wait()
	return append(violations, checkRuns(h, &tally)...), tally
}

func check(name string, ops []porcupine.Operation) (Violation, bool) {
	result, info := porcupine.CheckOperationsVerbose(model, ops, patience)
	switch result {
	case porcupine.Ok:
		return Violation{}, true
	case porcupine.Unknown:
		return Violation{Name: name, Reason: fmt.Sprintf("no order of %d calls found within %v", len(ops), patience)}, false
	}
	longest := 0
	for _, partial := range info.PartialLinearizations() {
		for _, order := range partial {
			longest = max(longest, len(order))
		}
	}
	return Violation{
		Name:    name,
		Reason:  fmt.Sprintf("no order explains the results of %d calls, the best one %d of them", len(ops), longest),
		Picture: func(path string) error { return porcupine.VisualizePath(model, info, path) },
	}, false
}

// outlives returns the holds that their owners trusted for too long after all data was lost.
func (s *story) outlives() (violations []Violation) {
	for _, f := range s.history.Faults {
		if f.Loss != All {
			continue
		}
		for _, d := range s.holds {
			bound := s.history.Watchdog
			if d.grant.Lease > 0 {
				bound = d.grant.Lease
			}
			if over := d.valid() - f.End - int64(bound); d.grant.End < f.Begin && over > 0 {
				violations = append(violations, Violation{Name: s.name, Reason: fmt.Sprintf(
					"the lease of hold %s is valid %v after all data was lost (%s), which is %v too long", d.grant.Hold, time.Duration(d.valid()-f.End), f.What, time.Duration(over))})
			}
		}
	}
	return violations
}

// idles returns the waiters beside which a lock, or as many permits as any waiter wants, were free
// for too long, even if others took them in between. A hold counts from the return of its grant to
// that of its release. Waiters that an unclaimed lock may have kept out are not checked.
func (s *story) idles(tally *Tally) (violations []Violation) {
	var waiters []Call
	for _, c := range s.others {
		if c.Wait > 0 && c.End > 0 {
			waiters = append(waiters, c)
		}
	}
	changes := make(map[int64]int) // It has how many more permits are taken from each moment on.
	for _, d := range s.holds {
		if d.grant.Wait > 0 {
			waiters = append(waiters, d.grant)
		}
		if d.confirmed() {
			changes[d.grant.End] += max(1, d.grant.Takes)
			changes[d.release.End] -= max(1, d.grant.Takes)
		}
	}
	shadows := s.shadows()
	for _, w := range waiters {
		if s.history.Prompt == 0 || w.Kind != "lock" && w.Kind != "fenced" && w.Kind != "semaphore" ||
			slices.ContainsFunc(shadows, func(x span) bool { return x.overlaps(w.Begin, w.End) }) {
			continue
		}
		tally.Waiters[w.Kind]++
		wanted := 1
		for _, other := range waiters {
			if (span{w.Begin, w.End}).overlaps(other.Begin, other.End) {
				wanted = max(wanted, other.Takes)
			}
		}
		free := timeFree(changes, max(1, w.Permits)-wanted, w)
		tally.Beside = max(tally.Beside, free)
		if free > s.history.Prompt {
			violations = append(violations, Violation{Name: s.name, Reason: fmt.Sprintf(
				"%d of %d were free for %v while hold %s waited, which is %v too long", wanted, max(1, w.Permits), free, w.Hold, free-s.history.Prompt)})
		}
	}
	return violations
}

// timeFree returns how long no more than some permits are taken while a call waits.
func timeFree(changes map[int64]int, most int, w Call) (free time.Duration) {
	taken, from := 0, w.Begin
	for _, at := range append(slices.Sorted(maps.Keys(changes)), w.End) {
		to := min(max(at, w.Begin), w.End)
		if taken <= most {
			free += time.Duration(to - from)
		}
		taken, from = taken+changes[at], to
	}
	return free
}

// parts cuts a story at the faults that lose an unknown part of the data. Calls during such a fault
// belong to no part.
func (s *story) parts() (parts []*part) {
	cuts := []Fault{{End: math.MinInt64}}
	for _, f := range s.history.Faults {
		if f.Loss == LastSome {
			cuts = append(cuts, f)
		}
	}
	slices.SortFunc(cuts, func(a, b Fault) int { return int(a.Begin>>1 - b.Begin>>1) })
	for i, f := range cuts {
		p := &part{story: s, from: f.End, to: math.MaxInt64}
		if i+1 < len(cuts) {
			p.to = cuts[i+1].Begin
		}
		parts = append(parts, p)
	}
	return parts
}

// A part of a story has the calls that began after one moment and returned before another.
type part struct {
	*story
	from, to int64
}

// has reports whether a call belongs to the part.
func (p *part) has(begin, end int64) bool { return begin > p.from && end < p.to }

// operations returns the operations for porcupine to order.
func (p *part) operations(tally *Tally) (ops []porcupine.Operation) {
	shadows := p.shadows()
	add := func(process int, s step, begin, end int64) {
		ops = append(ops, porcupine.Operation{ClientId: process, Input: s, Call: begin, Return: end})
	}
	for _, f := range p.history.Faults {
		if f.Loss == All && p.has(f.Begin, f.End) {
			add(0, step{what: wipe}, f.Begin, f.End)
		}
	}
	for text, seen := range p.survivors() {
		add(0, step{what: survive, record: text}, p.from, seen)
	}
	for _, d := range p.holds {
		g := d.grant
		if !p.has(g.Begin, g.End) {
			// This hold may have survived, or the old master may have granted it.
			end := p.from
			if d.release != nil {
				end = d.release.End
			}
			shadows = append(shadows, span{g.Begin, p.history.settled(end, end) + int64(g.Lease) + int64(p.history.Hidden)})
			continue
		}
		tally.Grants[g.Kind]++
		if g.Kind == "guests" && !strings.HasPrefix(g.Owner, fmt.Sprint(g.Process, ".")) {
			tally.Guests++
		}
		l := g.level()
		if !d.confirmed() && d.levels.valid == 0 && d.levels.n == 1 {
			add(g.Process, step{what: flash, level: l, token: g.Token}, g.Begin, g.End)
			continue
		}
		add(g.Process, step{what: grant, level: l, token: g.Token}, g.Begin, g.End)
		p.end(d, l, add)
	}
	for _, c := range p.others {
		if !p.has(c.Begin, c.End) {
			continue
		}
		switch c.Result {
		case Found:
			tally.Records[c.Kind]++
			add(c.Process, step{what: find, record: c.Record}, c.Begin, c.End)
		case Refused:
			if p.mayBeInTheWay(c, shadows) {
				tally.Unchecked++
				continue
			}
			tally.Refusals[c.Kind]++
			add(c.Process, step{what: refuse, level: c.level()}, c.Begin, c.End)
		}
	}
	return ops
}

// survivors returns the records that callers found in the part but that were left before it, with
// the time at which each was first found. The fault before the part did not lose them.
func (p *part) survivors() map[string]int64 {
	found := make(map[string]int64)
	for _, c := range p.others {
		if c.Result == Found && p.from > math.MinInt64 && p.has(c.Begin, c.End) {
			if seen, again := found[c.Record]; !again || c.End < seen {
				found[c.Record] = c.End
			}
		}
	}
	for _, d := range p.holds {
		if d.release != nil && p.has(d.grant.Begin, d.grant.End) {
			delete(found, d.release.Record)
		}
	}
	return found
}

// mayBeInTheWay reports whether a refusal may have another reason than a holder: a lock that no
// process claims, another caller of the process that was first, an earlier waiter for a fair lock,
// an owner with some of the votes of a RedLock, or a holder that died, for as long as it has guests.
func (p *part) mayBeInTheWay(refused Call, shadows []span) bool {
	if refused.Kind == "fair" || refused.Kind == "red" || refused.Kind == "guests" {
		return true
	}
	now := span{refused.Begin, refused.End}
	first := func(c Call) bool {
		return c.Process == refused.Process && c.Hold != refused.Hold && (c.End == 0 || now.overlaps(c.Begin, c.End))
	}
	return slices.ContainsFunc(shadows, func(s span) bool { return s.overlaps(now.from, now.to) }) ||
		slices.ContainsFunc(p.others, first) ||
		slices.ContainsFunc(p.holds, func(d hold) bool { return first(d.grant) })
}

// end adds the end of a hold.
func (p *part) end(d hold, l level, add func(process int, s step, begin, end int64)) {
	r := d.release
	switch {
	case d.confirmed() && r.Begin < p.to: // even if it returned later, it may have ended the hold
		blind := slices.ContainsFunc(p.history.Faults, func(f Fault) bool { return f.Begin < r.End && r.Begin < f.End })
		add(r.Process, step{what: leave, level: l, record: r.Record, blind: blind}, r.Begin, r.End)
	case d.confirmed() || d.levels.valid >= p.to: // its end does not matter to this part
	default:
		from, to := d.levels.valid, d.levels.valid
		if d.levels.n > 1 {
			from, to = max(from, d.grant.Begin), max(to, d.levels.grant)
		}
		add(d.grant.Process, step{what: gone, level: l}, from, to)
		if r == nil || r.Record == "" {
			return
		}
		// Redis may have stored the record. Callers who found it prove that.
		seen := int64(math.MaxInt64)
		for _, c := range p.others {
			if c.Result == Found && c.Record == r.Record {
				seen = min(seen, c.End)
			}
		}
		if seen < p.to {
			add(r.Process, step{what: record, record: r.Record}, r.Begin, seen)
		}
	}
}
