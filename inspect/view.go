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
	// More is true if there are more locks than are shown.
	More   bool
	Unlock bool
	// Anonymous is true if requests have no ID, because core.Options.Annotate is not set.
	Anonymous bool
	// Note is about an unlock that led to the page.
	Note *note

	Locks     []lockView
	Waits     []core.Wait
	MoreWaits int // callers that wait in this process and are not in Waits
	Longest   []holdView
	Wanted    []wanted
	Losses    []lossView
	Counters  core.Counters
	Sections  []sectionView
}

// A lockView is a lock with what the page computes.
type lockView struct {
	Lock
	// Waiting counts the callers of this process, and places in the queue of Redis.
	Waiting int
	// Share is the TTL that is left, in percent of the watchdog's usual lease.
	Share int
	// Here is true if this process has a hold.
	Here bool
}

// Shown returns the first holders.
func (l *lockView) Shown() []Holder { return l.Holders[:min(len(l.Holders), mostHolders)] }

// Hidden returns how many more holders there are.
func (l *lockView) Hidden() int64 { return int64(len(l.Holders)-len(l.Shown())) + l.MoreHolders }

// Linked reports whether the name is short enough for a link to the unlock.
func (l *lockView) Linked() bool { return len(l.Name) <= mostLink }

type holdView struct {
	core.Hold
	// Share is in percent of the longest hold.
	Share int
}

type wanted struct {
	Name  string
	Count int
	// Share is in percent of the most wanted lock.
	Share int
}

type lossView struct {
	core.Loss
	Ago time.Duration
}

type sectionView struct {
	Title string
	Rows  []Row
}

// How much the lists of the page show.
const (
	mostLongest = 5
	mostWanted  = 5
	// mostShown bounds losses.
	mostShown = 8
	// mostWaits bounds callers that wait in this process.
	mostWaits = 100
	// mostHolders bounds the holders of one lock.
	mostHolders = 10
	// mostText bounds the characters of a name, an owner or an ID.
	mostText = 200
	// mostLink bounds the bytes of a name that a link contains.
	mostLink = 4 << 10
	// readTimeout bounds one look at Redis, unless Refresh is longer.
	readTimeout = 3 * time.Second
)

// Held returns how many locks are held.
func (v *view) Held() (n int) {
	for i := range v.Locks {
		if v.Locks[i].Held() {
			n++
		}
	}
	return n
}

// Waiting returns how many callers wait, in this process or in queues of Redis.
func (v *view) Waiting() (n int) {
	for i := range v.Locks {
		n += v.Locks[i].Waiting
	}
	return n
}

// listing returns the locks as JSON shows them.
func (v *view) listing() Listing {
	all := make([]Lock, len(v.Locks))
	for i, l := range v.Locks {
		all[i] = l.Lock
	}
	return Listing{Locks: all, Truncated: v.More}
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
		h.last = v
	}
	_ = control.SetWriteDeadline(time.Now().Add(h.patience))
	shared := *h.last
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
		Waits:     slices.DeleteFunc(h.locks.Waits(), func(w core.Wait) bool { return !h.shows(w.Key) }),
		Counters:  h.locks.Counters(),
	}
	listed, more, err := List(ctx, h.locks.Redis(), ListOptions{Prefix: h.opts.Prefix})
	if errors.Is(ctx.Err(), context.Canceled) {
		return nil, false
	}
	v.At, v.More = time.Now(), more
	if err != nil {
		v.Error = err.Error()
	}
	holds := slices.DeleteFunc(h.locks.Holds(), func(hold core.Hold) bool { return !h.shows(hold.Key) })
	locks := addHolds(listed, holds, err != nil)
	if len(locks) > defaultLimit { // all are of this process, because Redis was not read
		locks, v.More = locks[:defaultLimit], true
	}
	for _, l := range locks {
		v.Locks = append(v.Locks, lockView{Lock: l, Here: slices.ContainsFunc(l.Holders, func(o Holder) bool { return o.Client == v.Client })})
	}
	v.placeWaits(listed)
	v.countWaits()
	v.addLongest(holds)
	v.addWanted()
	losses := slices.DeleteFunc(h.locks.Losses(), func(loss core.Loss) bool { return !h.shows(loss.Key) })
	for _, loss := range losses[:min(mostShown, len(losses))] {
		v.Losses = append(v.Losses, lossView{loss, v.At.Sub(loss.At)})
	}
	for _, s := range h.opts.Sections {
		v.Sections = append(v.Sections, sectionView{s.Title, s.Rows()})
	}
	return v, true
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
	o.Route, o.RequestID, o.TraceID = hold.Route, hold.RequestID, hold.TraceID
}

// usualLease is what a full bar of a TTL stands for.
const usualLease = 30 * time.Second

// placeWaits gives callers of this process that wait for fair locks their places in the queue of
// Redis, which has those of all processes.
func (v *view) placeWaits(locks []Lock) {
	places := make(map[string]int)
	for i := range locks {
		for _, w := range locks[i].Queue {
			places[w.Owner] = w.Place
		}
	}
	for i := range v.Waits {
		if place := places[v.Waits[i].Owner]; place > 0 {
			v.Waits[i].Place = place
		}
	}
}

// countWaits adds up who waits for each lock, and then keeps the first of them.
func (v *view) countWaits() {
	type place struct {
		name    string
		permits bool // A lock may have the name of a semaphore.
	}
	here := make(map[place]int)
	for _, w := range v.Waits {
		if w.Kind != "fair" { // those are in the queue of Redis
			here[place{w.Key, w.Kind == "semaphore"}]++
		}
	}
	for i := range v.Locks {
		l := &v.Locks[i]
		l.Waiting = here[place{l.Name, l.Kind == "semaphore"}] + len(l.Queue) + int(l.MoreQueue)
		l.Share = int(min(100, max(0, l.TTL*100/usualLease.Milliseconds())))
	}
	if v.MoreWaits = len(v.Waits) - mostWaits; v.MoreWaits > 0 {
		v.Waits = slices.Clone(v.Waits[:mostWaits]) // the view keeps no others
	}
}

func (v *view) addLongest(holds []core.Hold) {
	slices.SortStableFunc(holds, func(a, b core.Hold) int { return cmp.Compare(b.Held, a.Held) })
	for _, hold := range holds[:min(mostLongest, len(holds))] {
		v.Longest = append(v.Longest, holdView{hold, percent(int64(hold.Held), int64(holds[0].Held))})
	}
}

func (v *view) addWanted() {
	for i := range v.Locks {
		l := &v.Locks[i]
		// A process listens once, however many of its callers wait.
		if n := max(l.Waiting, int(l.Listeners)); n > 0 {
			v.Wanted = append(v.Wanted, wanted{Name: l.Name, Count: n})
		}
	}
	slices.SortStableFunc(v.Wanted, func(a, b wanted) int { return cmp.Compare(b.Count, a.Count) })
	v.Wanted = v.Wanted[:min(mostWanted, len(v.Wanted))]
	for i := range v.Wanted {
		v.Wanted[i].Share = percent(int64(v.Wanted[i].Count), int64(v.Wanted[0].Count))
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
