package inspect

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/reqlock/reqlock/core"
)

// A question is the page that asks for the reason of an unlock.
type question struct {
	Lock   *Lock
	Error  string
	Reason string
	// Free is true if Redis has nothing about the lock.
	Free bool
	// chosen are the owners that an earlier answer named. nil: there was none.
	chosen []string
}

// Chosen reports whether permits shall be taken from an owner: from all, unless an answer says so.
func (q question) Chosen(owner string) bool {
	return q.chosen == nil || slices.Contains(q.chosen, owner)
}

// longestReason bounds what the log gets, in bytes.
const longestReason = 500

// find returns the lock with what this process knows about it. A name that the page does not show
// is ErrNotFound.
func (h *handler) find(ctx context.Context, name string) (*Lock, error) {
	if !h.shows(name) {
		return nil, fmt.Errorf("%w: %q; this page shows names that begin with %q", ErrNotFound, name, h.opts.Prefix)
	}
	lock, err := Show(ctx, h.locks.Redis(), name)
	if err != nil {
		return nil, err
	}
	known := addHolds([]Lock{*lock}, h.locks.Holds(), false)
	return &known[0], nil
}

// confirm asks for a reason.
func (h *handler) confirm(w http.ResponseWriter, r *http.Request) {
	name := r.URL.Query().Get("name")
	lock, err := h.find(r.Context(), name)
	if err != nil {
		h.fail(w, name, err)
		return
	}
	h.ask(w, http.StatusOK, question{Lock: lock})
}

// ask shows the lock and asks for the reason to free it.
func (h *handler) ask(w http.ResponseWriter, status int, q question) {
	h.render(w, status, "unlock.html", q)
}

// longestForm bounds the form: a name of 64 KiB and as many owners as Show returns, escaped.
const longestForm = 512 << 10

// unlock takes a lock from the owners that the question showed, and writes the audit line. If none
// of them holds it now, it asks again.
func (h *handler) unlock(w http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(w, r.Body, longestForm)
	if err := r.ParseForm(); err != nil {
		http.Error(w, "the form cannot be read", http.StatusBadRequest)
		return
	}
	// Our own form has the name in its URL, because browsers change line ends in a field.
	name, reason := r.Form.Get("name"), strings.TrimSpace(r.PostForm.Get("reason"))
	lock, err := h.find(r.Context(), name)
	if err != nil {
		h.fail(w, name, err)
		return
	}
	shown := r.PostForm["owner"]
	q := question{Lock: lock, Reason: strings.ToValidUTF8(reason[:min(len(reason), longestReason)], "")}
	switch {
	case lock.Semaphore != nil && lock.Held() && len(shown) == 0:
		q.Error = "Choose whose permits to take."
	case !slices.ContainsFunc(lock.Holders, func(o Holder) bool { return slices.Contains(shown, o.Owner) }):
		h.askAgain(w, q)
		return
	case reason == "":
		q.Error = "Say why, for the log."
	case len(reason) > longestReason:
		q.Error = "Say it in fewer words."
	}
	if q.Error != "" {
		q.chosen = append([]string{}, shown...)
		h.ask(w, http.StatusUnprocessableEntity, q)
		return
	}
	forced, err := h.locks.ForceUnlockOwners(core.WithReason(r.Context(), "someone at "+r.RemoteAddr, reason), name, lock.Kind, shown)
	h.unlocks.Add(1)
	h.opts.Logger.Warn("reqlock: inspect: a lock was unlocked by hand", "lock", name, "kind", lock.Kind, "owners", shown,
		"reason", reason, "from", r.RemoteAddr, "freed", forced.Owners, "left", forced.Left, "error", err)
	if err != nil {
		h.fail(w, name, err)
		return
	}
	if len(forced.Owners) == 0 {
		if q.Lock, err = h.find(r.Context(), name); err != nil {
			h.fail(w, name, err)
			return
		}
		h.askAgain(w, q)
		return
	}
	redirect(w, "./?"+noteOf(lock, forced).query())
}

// askAgain answers a form whose owners do not hold the lock.
func (h *handler) askAgain(w http.ResponseWriter, q question) {
	q.Error = "The holder has changed since you were asked: the lock is not held now."
	switch {
	case q.Lock.Semaphore != nil:
		q.Error = "The holders have changed since you were asked: those that you chose have no permits now. Look again before you unlock."
	case q.Lock.Held():
		q.Error = "The holder has changed since you were asked: the lock is held by another owner by now, " +
			q.Lock.Holders[0].Owner + ". Look again before you unlock."
	}
	h.ask(w, http.StatusConflict, q)
}

// A note says what an unlock has done. It travels in the URL of the page that follows.
type note struct {
	Name string
	// Permits is true if they lost permits of a semaphore.
	Permits bool
	// Owners are the first few that lost the lock.
	Owners []string
	// More is how many others lost it.
	More int
	// Left is how many owners hold it still, or how many permits others have.
	Left int
}

// mostNoted is how many owners a note names.
const mostNoted = 3

func noteOf(l *Lock, forced core.Forced) note {
	n := note{Name: l.Name, Permits: l.Semaphore != nil, Owners: forced.Owners[:min(len(forced.Owners), mostNoted)], Left: forced.Left}
	n.More = len(forced.Owners) - len(n.Owners)
	return n
}

func (n note) query() string {
	return url.Values{
		"freed":   {n.Name},
		"permits": {strconv.FormatBool(n.Permits)},
		"owner":   n.Owners,
		"more":    {strconv.Itoa(n.More)},
		"left":    {strconv.Itoa(n.Left)},
	}.Encode()
}

// readNote returns the note in a URL, or nil.
func readNote(q url.Values) *note {
	if !q.Has("freed") {
		return nil
	}
	owners := q["owner"]
	n := &note{Name: q.Get("freed"), Permits: q.Get("permits") == "true", Owners: owners[:min(len(owners), mostNoted)]}
	n.More, _ = strconv.Atoi(q.Get("more"))
	n.Left, _ = strconv.Atoi(q.Get("left"))
	return n
}

// fail answers with a page that leads back. A lock that was freed meanwhile is no failure.
func (h *handler) fail(w http.ResponseWriter, name string, err error) {
	status := http.StatusServiceUnavailable
	if errors.Is(err, ErrNotFound) {
		status = http.StatusNotFound
	}
	h.render(w, status, "unlock.html", question{Lock: &Lock{Name: name, Kind: "lock"}, Error: err.Error(), Free: status == http.StatusNotFound})
}
