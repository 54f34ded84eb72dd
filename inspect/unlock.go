package inspect

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// A question is the page that asks for the reason of an unlock.
type question struct {
	Lock   *Lock
	Error  string
	Reason string
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
	lock, err := h.find(r.Context(), r.URL.Query().Get("name"))
	if err != nil {
		h.fail(w, err)
		return
	}
	h.ask(w, http.StatusOK, question{Lock: lock})
}

// ask shows the lock and asks for the reason to free it.
func (h *handler) ask(w http.ResponseWriter, status int, q question) {
	h.render(w, status, "unlock.html", q)
}

// unlock frees a lock and writes the audit line. The form has the owners that the question showed:
// if others hold the lock now, it asks again.
func (h *handler) unlock(w http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(w, r.Body, 128<<10)
	if err := r.ParseForm(); err != nil {
		http.Error(w, "the form cannot be read", http.StatusBadRequest)
		return
	}
	name, reason := r.PostForm.Get("name"), strings.TrimSpace(r.PostForm.Get("reason"))
	lock, err := h.find(r.Context(), name)
	if err != nil {
		h.fail(w, err)
		return
	}
	owners := make([]string, len(lock.Holders))
	for i, o := range lock.Holders {
		owners[i] = o.Owner
	}
	q := question{Lock: lock, Reason: strings.ToValidUTF8(reason[:min(len(reason), longestReason)], "")}
	switch {
	case !slices.Equal(slices.Sorted(slices.Values(r.PostForm["owner"])), owners): // these are sorted
		q.Error = "The holder has changed since you were asked. Look again before you unlock."
		h.ask(w, http.StatusConflict, q)
		return
	case reason == "":
		q.Error = "Say why, for the log."
		h.ask(w, http.StatusUnprocessableEntity, q)
		return
	case len(reason) > longestReason:
		q.Error = "Say it in fewer words."
		h.ask(w, http.StatusUnprocessableEntity, q)
		return
	}
	freed, err := h.locks.ForceUnlockKey(r.Context(), name, lock.Kind)
	h.opts.Logger.Warn("reqlock: inspect: a lock was unlocked by hand", "lock", name, "kind", lock.Kind, "owners", owners,
		"reason", reason, "from", r.RemoteAddr, "freed", freed, "error", err)
	if err != nil {
		h.fail(w, err)
		return
	}
	h.unlocks.Add(1)
	if !freed {
		http.Error(w, "the lock was free already", http.StatusConflict)
		return
	}
	http.Redirect(w, r, "./?"+url.Values{"freed": {name}}.Encode(), http.StatusSeeOther)
}

func (h *handler) fail(w http.ResponseWriter, err error) {
	status := http.StatusServiceUnavailable
	if errors.Is(err, ErrNotFound) {
		status = http.StatusNotFound
	}
	http.Error(w, err.Error(), status)
}
