package inspect

import (
	"errors"
	"net/http"
	"net/url"
	"strings"
)

// A question is the page that asks for the reason of an unlock.
type question struct {
	Client string
	Lock   *Lock
	Error  string
	Reason string
}

// longestReason bounds what the log gets, in bytes.
const longestReason = 500

// confirm asks for a reason.
func (h *handler) confirm(w http.ResponseWriter, r *http.Request) {
	h.ask(w, r, r.URL.Query().Get("name"), "", "", http.StatusOK)
}

// ask shows the lock and asks for the reason to free it.
func (h *handler) ask(w http.ResponseWriter, r *http.Request, name, reason, problem string, status int) {
	lock, err := Show(r.Context(), h.locks.Redis(), name)
	if err != nil {
		h.fail(w, err)
		return
	}
	known := addHolds([]Lock{*lock}, h.locks.Holds(), false)
	h.render(w, status, "unlock.html", question{Client: h.locks.ID(), Lock: &known[0], Error: problem, Reason: reason})
}

// unlock frees a lock and writes the audit line.
func (h *handler) unlock(w http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(w, r.Body, 128<<10)
	if err := r.ParseForm(); err != nil {
		http.Error(w, "the form cannot be read", http.StatusBadRequest)
		return
	}
	name, reason := r.PostForm.Get("name"), strings.TrimSpace(r.PostForm.Get("reason"))
	switch {
	case reason == "":
		h.ask(w, r, name, "", "Say why, for the log.", http.StatusUnprocessableEntity)
		return
	case len(reason) > longestReason:
		h.ask(w, r, name, reason[:longestReason], "Say it in fewer words.", http.StatusUnprocessableEntity)
		return
	}
	lock, err := Show(r.Context(), h.locks.Redis(), name)
	if err != nil {
		h.fail(w, err)
		return
	}
	freed, err := h.locks.ForceUnlockKey(r.Context(), name, lock.Kind)
	owners := make([]string, len(lock.Holders))
	for i, o := range lock.Holders {
		owners[i] = o.Owner
	}
	h.opts.Logger.Warn("reqlock: inspect: a lock was unlocked by hand", "lock", name, "kind", lock.Kind, "owners", owners,
		"reason", reason, "from", r.RemoteAddr, "freed", freed, "error", err)
	if err != nil {
		h.fail(w, err)
		return
	}
	h.mu.Lock()
	h.last = nil // the page must not show the lock as held
	h.mu.Unlock()
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
