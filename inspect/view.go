package inspect

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/reqlock/reqlock/coalesce"
	"github.com/reqlock/reqlock/core"
)

// A view is what the page shows at one time.
type view struct {
	// At is when Redis had been read.
	At time.Time
	// unlocks is handler.unlocks when the read began.
	unlocks int64

	// Client names the client of this process.
	Client string
	// Error is why Redis could not be read. Only this process's locks are shown then.
	Error string
	// More is true if Redis has more locks than were read.
	More   bool
	Unlock bool
	// Anonymous is true if requests have no ID, because core.Options.Annotate is not set.
	Anonymous bool
	// Note is about an unlock that led to the page.
	Note *note
	// Filter is a text that all lists contain in each entry.
	Filter string

	// read has the locks as JSON shows them.
	read []Lock
	// locks has these and those that this process holds or waits for, in the order of the page.
	locks []lockView
	waits []core.Wait
	// shared has the runs of package coalesce in this process.
	shared []sharedRun
	// most is how many rows the longest list shows.
	most int

	Longest  []holdView
	losses   []core.Loss
	refusals []core.Refusal
	// Fault is the last fault of Redis; nil: there was none for a day.
	Fault    *core.Fault
	Counters core.Counters
	Sections []sectionView
}

// A lockView is a lock with what the page computes.
type lockView struct {
	Lock
	Waiting waiting
	// here is true if this process has a hold, or waits.
	here bool
}

// A waiting counts who waits for a lock: callers of this process, and elsewhere the places in the
// queue of a fair lock, or processes.
type waiting struct{ Here, Elsewhere int }

func (w waiting) total() int { return w.Here + w.Elsewhere }

func (w waiting) String() string {
	switch {
	case w.total() == 0:
		return "0"
	case w.Elsewhere == 0:
		return fmt.Sprintf("%d here", w.Here)
	case w.Here == 0:
		return fmt.Sprintf("%d elsewhere", w.Elsewhere)
	}
	return fmt.Sprintf("%d here, %d elsewhere", w.Here, w.Elsewhere)
}

// A row is one holder of a lock, or a lock that no one holds.
type row struct {
	*lockView
	// First is true for the first row of the lock, which spans Rows of them.
	First bool
	Rows  int
	// Holder is nil if the lock is free.
	*Holder
	TTL int64
	// Share is the TTL in percent of the lease; -1: the lease is not known.
	Share int
	Own   bool
}

// rows returns the first holders of a lock.
func (v *view) rows(l *lockView) []row {
	shown := l.Holders[:min(len(l.Holders), mostHolders)]
	rows := []row{{lockView: l, First: true, Rows: max(len(shown), 1)}}
	for i := range shown {
		r := row{lockView: l, First: i == 0, Rows: len(shown), Holder: &shown[i], TTL: l.TTL, Share: -1, Own: shown[i].Client == v.Client}
		if l.Semaphore != nil || r.Holder.TTL != 0 || r.Expired {
			r.TTL = r.Holder.TTL
		}
		if r.lease > 0 && r.TTL >= 0 {
			r.Share = int(min(100, r.TTL*100/r.lease))
		}
		rows = append(rows[:i], r)
	}
	return rows
}

// Rows returns the rows of the locks: of those of this process first if there is no room for all.
func (v *view) Rows() (rows []row) {
	for i := range v.locks {
		if l := &v.locks[i]; v.matches(l.Name) || l.has(v.matches) {
			if rows = append(rows, v.rows(l)...); len(rows) >= v.most {
				break
			}
		}
	}
	// The last lock is left out if it has made the list too long.
	for len(rows) > v.most && rows[len(rows)-1].lockView != rows[0].lockView {
		rows = slices.DeleteFunc(rows, func(r row) bool { return r.lockView == rows[len(rows)-1].lockView })
	}
	slices.SortStableFunc(rows, func(a, b row) int { return cmp.Compare(b.Waiting.total(), a.Waiting.total()) })
	return rows
}

// matches reports whether one of some texts contains the filter.
func (v *view) matches(texts ...string) bool {
	return v.Filter == "" || slices.ContainsFunc(texts, func(text string) bool {
		return strings.Contains(strings.ToLower(text), strings.ToLower(v.Filter))
	})
}

// has reports whether something about a holder or a place in the queue matches.
func (l *lockView) has(matches func(...string) bool) bool {
	return slices.ContainsFunc(l.Holders, func(h Holder) bool { return matches(h.Owner, h.Route, h.RequestID, h.TraceID) }) ||
		slices.ContainsFunc(l.Queue, func(w Waiter) bool { return matches(w.Owner) })
}

// Locks returns how many locks match the filter.
func (v *view) Locks() (n int) {
	for i := range v.locks {
		if l := &v.locks[i]; v.matches(l.Name) || l.has(v.matches) {
			n++
		}
	}
	return n
}

// Left returns how many of the locks that match have no row.
func (v *view) Left(rows []row) int {
	n := v.Locks()
	for _, r := range rows {
		if r.First {
			n--
		}
	}
	return n
}

// Waits returns the first callers that wait in this process and match, and how many there are more.
func (v *view) Waits() list[core.Wait] {
	return listOf(v.waits, v.most/3, func(w core.Wait) bool { return v.matches(w.Name, w.Key, w.Route, w.RequestID, w.TraceID) })
}

// Losses returns the latest losses that match.
func (v *view) Losses() list[core.Loss] {
	return listOf(v.losses, v.most/6, func(l core.Loss) bool { return v.matches(l.Name, l.Key, l.Owner, l.Route, l.RequestID, l.TraceID) })
}

// Refusals returns the locks that callers did not get last, if they match.
func (v *view) Refusals() list[core.Refusal] {
	return listOf(v.refusals, v.most/6, func(r core.Refusal) bool { return v.matches(r.Name, r.Key) })
}

// A list is the beginning of a longer one.
type list[T any] struct {
	Items []T
	More  int
}

func listOf[T any](all []T, most int, matches func(T) bool) (l list[T]) {
	for _, one := range all {
		switch {
		case !matches(one):
		case len(l.Items) < most:
			l.Items = append(l.Items, one)
		default:
			l.More++
		}
	}
	return l
}

// Hidden returns how many more holders there are.
func (l *lockView) Hidden() int64 {
	return int64(max(len(l.Holders)-mostHolders, 0)) + l.MoreHolders
}

// Linked reports whether the name is short enough for a link to the unlock.
func (l *lockView) Linked() bool { return len(l.Name) <= mostLink }

// State says in the header how well the page knows the locks.
func (v *view) State() string {
	switch {
	case v.Error != "":
		return "live, Redis unreadable"
	case v.Fault != nil && v.Fault.Ended.IsZero():
		return "live, locks fail"
	}
	return "live"
}

type holdView struct {
	core.Hold
	// Share is in percent of the longest hold.
	Share int
}

type sectionView struct {
	Title string
	Rows  []Row
}

// How much the page shows.
const (
	mostLongest = 5
	// mostRows bounds the rows of locks.
	mostRows = 100
	// mostBytes bounds one update. With names that take more, it has fewer rows.
	mostBytes = 50_000
	// mostOwn bounds the locks of this process that are read although the list is full.
	mostOwn = 100
	// mostHolders bounds the holders of one lock.
	mostHolders = 10
	// mostText bounds the characters of a name, an owner or an ID.
	mostText = 100
	// recent is how long the page shows what is over.
	recent = 24 * time.Hour
	// mostLink bounds the bytes of a name that a link contains.
	mostLink = 1 << 10
	// readTimeout bounds one look at Redis, unless Refresh is longer.
	readTimeout = 3 * time.Second
)

// Held returns how many locks are held.
func (v *view) Held() (n int) {
	for i := range v.locks {
		if v.locks[i].Held() {
			n++
		}
	}
	return n
}

// Waiting adds up who waits.
func (v *view) Waiting() (sum waiting) {
	for i := range v.locks {
		sum.Here += v.locks[i].Waiting.Here
		sum.Elsewhere += v.locks[i].Waiting.Elsewhere
	}
	return sum
}

// listing returns the locks as JSON shows them.
func (v *view) listing() Listing {
	return Listing{Locks: append([]Lock{}, v.read...), Truncated: v.More}
}

// current returns a view that is younger than Options.Refresh. One of those who look reads Redis
// for all. ok is false if the request ends before, or its server shuts down.
func (h *handler) current(w http.ResponseWriter, r *http.Request) (v *view, ok bool) {
	// A read may take longer than the server's WriteTimeout. A writer without deadlines has none
	// either.
	control := http.NewResponseController(w)
	_ = control.SetWriteDeadline(time.Time{})
	select {
	case h.turn <- struct{}{}:
		defer func() { <-h.turn }()
	case <-r.Context().Done():
		return nil, false
	}
	if h.last == nil || h.last.unlocks != h.unlocks.Load() || time.Since(h.last.At) >= h.opts.Refresh {
		if v, ok = h.look(r); !ok {
			return nil, false
		}
		v.learnLeases(h.last)
		h.last = v
	}
	_ = control.SetWriteDeadline(time.Now().Add(h.patience))
	shared := *h.last
	shared.Filter = r.URL.Query().Get("q")
	if name := shared.Filter; shared.More && name != "" && h.shows(name) && !slices.ContainsFunc(shared.locks, func(l lockView) bool { return l.Name == name }) {
		// The filter may name a lock that was not read.
		if l, err := h.find(r.Context(), name); err == nil {
			shared.locks = append([]lockView{{Lock: *l}}, shared.locks...)
			shared.count(&shared.locks[0], nil)
		}
	}
	return &shared, true
}

// shows reports whether the page shows locks with this name.
func (h *handler) shows(name string) bool { return strings.HasPrefix(name, h.opts.Prefix) }

// look reads Redis and adds what this process knows. The view is for all who look, so only the
// shutdown of the server ends it, not the end of one request.
func (h *handler) look(r *http.Request) (v *view, ok bool) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), max(readTimeout, h.opts.Refresh))
	defer cancel()
	stopping := h.stopping(r)
	go func() {
		select {
		case <-stopping:
			cancel()
		case <-ctx.Done():
		}
	}()
	v = &view{
		unlocks:   h.unlocks.Load(),
		Client:    h.locks.ID(),
		Unlock:    h.opts.AllowUnlock,
		Anonymous: !h.locks.Annotates(),
		waits:     slices.DeleteFunc(h.locks.Waits(), func(w core.Wait) bool { return !h.shows(w.Key) }),
		most:      mostRows,
		Counters:  h.locks.Counters(),
	}
	listed, more, err := List(ctx, h.locks.Redis(), ListOptions{Prefix: h.opts.Prefix})
	if errors.Is(ctx.Err(), context.Canceled) {
		return nil, false
	}
	holds := slices.DeleteFunc(h.locks.Holds(), func(hold core.Hold) bool { return !h.shows(hold.Key) })
	slices.SortStableFunc(holds, func(a, b core.Hold) int { return cmp.Compare(b.Held, a.Held) })
	v.read = addHolds(listed, holds, err != nil)
	v.shared = sharedRuns(coalesce.Runs(h.locks), holds, v.waits, h.opts.Prefix == "")
	all := slices.Clone(v.read)
	if len(v.read) > defaultLimit { // all are of this process, because Redis was not read
		v.read, more = v.read[:defaultLimit], true
	}
	if err == nil && more {
		all = append(all, h.missing(ctx, all, holds, v.waits)...)
	}
	v.At, v.More = time.Now(), more
	if err != nil {
		v.Error = err.Error()
	}
	v.addLocks(all)
	v.placeWaits(all)
	v.addLongest(holds)
	v.losses = slices.DeleteFunc(h.locks.Losses(), func(l core.Loss) bool { return !h.shows(l.Key) || v.At.Sub(l.At) > recent })
	v.refusals = slices.DeleteFunc(h.locks.Refusals(), func(r core.Refusal) bool { return !h.shows(r.Key) })
	v.addFault(h.locks.Faults())
	for _, s := range h.opts.Sections {
		v.Sections = append(v.Sections, sectionView{s.Title, s.Rows()})
	}
	return v, true
}

// missing reads locks of this process that a full list has left out: those that callers wait for,
// and those that are held longest.
func (h *handler) missing(ctx context.Context, listed []Lock, holds []core.Hold, waits []core.Wait) (locks []Lock) {
	known := make(map[string]bool, len(listed))
	for i := range listed {
		known[listed[i].Name] = true
	}
	var names []string
	add := func(name string) {
		if !known[name] && len(names) < mostOwn {
			known[name] = true
			names = append(names, name)
		}
	}
	for _, w := range waits {
		add(w.Key)
	}
	for _, hold := range holds {
		add(hold.Key)
	}
	for _, name := range names {
		if l, err := Show(ctx, h.locks.Redis(), name); err == nil {
			locks = append(locks, *l)
		}
	}
	return addHolds(locks, holds, false)
}

// addHolds adds what this process knows about its holds to the locks that Redis has. If Redis was
// not read, its holds are all there is.
func addHolds(locks []Lock, holds []core.Hold, alone bool) []Lock {
	byName := make(map[string]*Lock, len(locks))
	for i := range locks {
		byName[locks[i].Name] = &locks[i]
	}
	var added []*Lock
	for _, hold := range holds {
		field := hold.Owner
		if hold.Kind == "write" {
			field += ":write"
		}
		l := byName[hold.Key]
		switch {
		case l == nil && !alone:
			continue
		case l == nil || alone && l.Kind != hold.Kind:
			l = &Lock{Name: hold.Key, Kind: hold.Kind, Listeners: -1, Token: hold.Token}
			byName[hold.Key] = l
			added = append(added, l)
		}
		if alone {
			l.addOwn(hold, field)
		}
		for i := range l.Holders {
			if o := &l.Holders[i]; o.Owner == field {
				if l.Kind != "read" && l.Kind != "write" { // Redis knows these better: a downgrade may be under way
					l.Kind = hold.Kind
				}
				o.annotate(hold)
			}
		}
	}
	for _, l := range added {
		locks = append(locks, *l)
	}
	slices.SortStableFunc(locks, func(a, b Lock) int { return strings.Compare(a.Name, b.Name) })
	return locks
}

// addOwn adds a hold to a lock as far as this process knows it.
func (l *Lock) addOwn(hold core.Hold, field string) {
	client, _ := core.ClientOf(field)
	o := Holder{Owner: field, Client: client, Count: int64(hold.Count)}
	left := hold.Remaining.Milliseconds()
	if hold.Kind == "semaphore" {
		o.TTL = left
	}
	l.TTL = max(l.TTL, left)
	l.Holders = append(l.Holders, o)
}

func (o *Holder) annotate(hold core.Hold) {
	o.Held = max(hold.Held.Milliseconds(), 1)
	o.lease = hold.Lease.Milliseconds()
	o.Route, o.RequestID, o.TraceID, o.Host = hold.Route, hold.RequestID, hold.TraceID, hold.Host
}

// A place is what callers of this process wait for. A lock may have the name of a semaphore.
type place struct {
	name    string
	permits bool
}

// addLocks adds the locks in the order of the page: those of this process first, and the most
// waited for of them and of the others.
func (v *view) addLocks(locks []Lock) {
	here := make(map[place]int)
	kinds := make(map[place]string)
	for _, w := range v.waits {
		at := place{w.Key, w.Kind == "semaphore"}
		here[at]++
		kinds[at] = w.Kind
	}
	for _, l := range locks {
		delete(kinds, place{l.Name, l.Semaphore != nil})
		v.locks = append(v.locks, lockView{Lock: l})
	}
	for at, kind := range kinds { // they are free at this moment
		v.locks = append(v.locks, lockView{Lock: Lock{Name: at.name, Kind: kind}})
	}
	for i := range v.locks {
		v.count(&v.locks[i], here)
	}
	rank := func(l lockView) (others int) {
		if !l.here {
			others = 1
		}
		return others
	}
	slices.SortFunc(v.locks, func(a, b lockView) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(b.Waiting.total(), a.Waiting.total()), strings.Compare(a.Name, b.Name))
	})
}

// placeWaits gives callers of this process that wait for fair locks their places in the queue of
// Redis, which has those of all processes.
func (v *view) placeWaits(locks []Lock) {
	places := make(map[string]int)
	for i := range locks {
		for _, w := range locks[i].Queue {
			places[w.Owner] = w.Place
		}
	}
	for i := range v.waits {
		if place := places[v.waits[i].Owner]; place > 0 {
			v.waits[i].Place = place
		}
	}
}

// count sets who waits for a lock, and puts the holders of this process first.
func (v *view) count(l *lockView, here map[place]int) {
	own := func(client string) bool { return client == v.Client }
	l.Waiting.Here = here[place{l.Name, l.Kind == "semaphore"}]
	switch {
	case len(l.Queue) > 0:
		places := len(l.Queue)
		for _, w := range l.Queue {
			if own(w.Client) {
				places--
			}
		}
		hidden := max(int(l.MoreQueue)-max(l.Waiting.Here-(len(l.Queue)-places), 0), 0)
		l.Waiting.Elsewhere = places + hidden
	case l.Waiting.Here > 0:
		l.Waiting.Elsewhere = max(int(l.Listeners)-1, 0) // this process listens, too
	default:
		l.Waiting.Elsewhere = max(int(l.Listeners), 0)
	}
	l.Holders = slices.Clone(l.Holders)
	slices.SortStableFunc(l.Holders, func(a, b Holder) int {
		switch {
		case own(a.Client) == own(b.Client):
			return 0
		case own(a.Client):
			return -1
		}
		return 1
	})
	l.here = l.Waiting.Here > 0 || l.Held() && own(l.Holders[0].Client)
}

// learnLeases guesses the leases of other processes: the longest TTL that a hold was seen with.
func (v *view) learnLeases(before *view) {
	seen := make(map[string]int64)
	if before != nil {
		for i := range before.locks {
			for _, h := range before.locks[i].Holders {
				seen[before.locks[i].Name+" "+h.Owner] = h.lease
			}
		}
	}
	for i := range v.locks {
		l := &v.locks[i]
		for j := range l.Holders {
			if h := &l.Holders[j]; h.Held == 0 && !h.Expired {
				h.lease = max(seen[l.Name+" "+h.Owner], cmp.Or(h.TTL, l.TTL))
			}
		}
	}
}

// addFault adds the latest fault, one that lasts before one that is over.
func (v *view) addFault(faults []core.Fault) {
	for _, f := range faults {
		if v.At.Sub(f.Last) <= recent && (v.Fault == nil || f.Ended.IsZero() && !v.Fault.Ended.IsZero()) {
			v.Fault = &f
		}
	}
}

func (v *view) addLongest(holds []core.Hold) {
	for _, hold := range holds[:min(mostLongest, len(holds))] {
		v.Longest = append(v.Longest, holdView{hold, percent(int64(hold.Held), int64(holds[0].Held))})
	}
}

func percent(part, whole int64) int {
	if whole <= 0 {
		return 0
	}
	return int(100 * float64(part) / float64(whole))
}

// cut shortens a text in its middle, because names differ at their ends. A client may have chosen
// the text.
func cut(s string) string {
	if len(s) <= mostText {
		return s
	}
	runes := []rune(s)
	if len(runes) <= mostText {
		return s
	}
	return string(runes[:mostText*2/3]) + "…" + string(runes[len(runes)-mostText/3:])
}

// at shows when something was, with its date if that was another day than now.
func at(t, now time.Time) string {
	if t.Format(time.DateOnly) == now.Format(time.DateOnly) {
		return t.Format(time.TimeOnly)
	}
	return t.Format("Jan 2 15:04:05")
}

// duration shows a time.Duration, or an int64 of milliseconds, in two units at most.
func duration(value any) string {
	d, ok := value.(time.Duration)
	if ms, isInt := value.(int64); !ok && isInt {
		d = time.Duration(ms) * time.Millisecond
	}
	switch {
	case d < 0:
		return "no limit"
	case d < time.Second:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	case d < 10*time.Second:
		return fmt.Sprintf("%.1f s", d.Seconds())
	case d < time.Minute:
		return fmt.Sprintf("%d s", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%d min %d s", int(d.Minutes()), int(d.Seconds())%60)
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h %d min", int(d.Hours()), int(d.Minutes())%60)
	}
	return fmt.Sprintf("%d days", int(d.Hours()/24))
}
