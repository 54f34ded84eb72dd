package inspect

import (
	"embed"
	"encoding/json"
	"html/template"
	"log/slog"
	"net/http"
	"net/url"
	"path"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/internal/loglimit"
)

// Options configures Handler. The zero value is a good default.
type Options struct {
	// AllowUnlock lets everyone who may see the page free locks, too. Each unlock needs a reason,
	// which is logged with the address of the client and the owners that had the lock.
	AllowUnlock bool
	// UnlockHosts are the host names under which browsers reach the page, without ports, such as
	// locks.example.com. Only under these can it unlock, and under addresses and localhost. Otherwise
	// the page of another site could unlock as if it were this one, by a name of its own that leads
	// to this server (DNS rebinding). It needs AllowUnlock. Handler panics if an entry can never be
	// the name of a host.
	UnlockHosts []string
	// Prefix restricts the page to names that begin with it, as in ListOptions: other locks are
	// neither shown nor unlocked. The counts at the top and Sections are those of the whole process.
	Prefix string
	// Refresh is how often an open page updates itself. Redis is read at most this often, however
	// many look, and not at all while no one does. A read that takes longer than Refresh, or than 3s
	// if that is more, fails. 0: 2s, at least 100ms.
	Refresh time.Duration
	// Sections are shown below the locks, such as the counts of a plugin.
	Sections []Section
	// Logger receives an audit line for each unlock, and errors. nil: slog.Default().
	Logger *slog.Logger
}

// A Section is a table of its own on the page.
type Section struct {
	Title string
	// Rows returns the current rows. It must not block.
	Rows func() []Row
}

// A Row is a name and a value.
type Row struct{ Name, Value string }

const (
	defaultRefresh = 2 * time.Second
	leastRefresh   = 100 * time.Millisecond
)

// A handler serves the page.
type handler struct {
	locks *core.Client
	opts  Options
	// hosts are allowed to unlock.
	hosts hosts
	// lines bounds the log about pages that clients did not read to the end.
	lines loglimit.Limit

	// turn holds a token while one request reads Redis for all. It guards last.
	turn chan struct{}
	last *view
	// unlocks counts unlocks. A view from before the last one shows a lock that is free.
	unlocks atomic.Int64

	// patience is writePatience, except in tests.
	patience time.Duration
	// servers has, for each *http.Server, a chan struct{} that its shutdown closes.
	servers sync.Map
}

// Handler returns a page that shows the locks of a Redis: who holds them, who waits, which were
// lost. What only a process knows, such as the route of a request, it shows for locks, the client
// of this process. Mount it behind the application's own authentication, for it shows the names of
// locks:
//
//	mux.Handle("GET /debug/locks/", requireAdmin(inspect.Handler(locks, inspect.Options{})))
//
// The path may end in anything, with or without http.StripPrefix: GET / is the page, GET
// /locks.json a Listing, GET /events a stream for the page, and POST /unlock frees a lock if
// Options.AllowUnlock is set. The page needs no JavaScript, and updates itself with it. Handler
// panics if options can never work.
func Handler(locks *core.Client, opts Options) http.Handler {
	return http.NewCrossOriginProtection().Handler(newHandler(locks, opts))
}

func newHandler(locks *core.Client, opts Options) *handler {
	if locks == nil {
		panic("reqlock: inspect.Handler needs a *core.Client, not nil")
	}
	if opts.Refresh == 0 {
		opts.Refresh = defaultRefresh
	}
	if opts.Refresh < leastRefresh {
		panic("reqlock: inspect.Options.Refresh is " + opts.Refresh.String() + "; use 0 for 2s, or at least 100ms")
	}
	if len(opts.UnlockHosts) > 0 && !opts.AllowUnlock {
		panic("reqlock: inspect.Options.UnlockHosts is set and AllowUnlock is not; no host can unlock then")
	}
	if opts.Logger == nil {
		opts.Logger = slog.Default()
	}
	return &handler{locks: locks, opts: opts, hosts: newHosts(opts.UnlockHosts), turn: make(chan struct{}, 1), patience: writePatience}
}

// policy allows what the page itself has and nothing else.
const policy = "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src data:; " +
	"form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	header := w.Header()
	header.Set("Content-Security-Policy", policy)
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Referrer-Policy", "same-origin") // with less, a browser sends a form as of no origin
	header.Set("Cache-Control", "no-store")
	_, name := path.Split(r.URL.Path)
	post := name == "unlock" && h.opts.AllowUnlock
	if post {
		if host, ok := h.hosts.refused(r); !ok {
			http.Error(w, "reqlock: this page does not unlock under the host "+strconv.Quote(cut(host))+
				"; if it is yours, add it to inspect.Options.UnlockHosts", http.StatusForbidden)
			return
		}
	}
	switch {
	case r.Method == http.MethodPost && post:
		h.unlock(w, r)
		return
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		allow := "GET, HEAD"
		if post {
			allow += ", POST"
		}
		header.Set("Allow", allow)
		http.Error(w, "method not allowed", http.StatusMethodNotAllowed)
		return
	}
	switch {
	case name == "":
		if to, needed := withSlash(r); needed {
			redirect(w, to)
			return
		}
		h.page(w, r)
	case name == "locks.json":
		h.json(w, r)
	case name == "events":
		h.events(w, r)
	case post:
		h.confirm(w, r)
	case name == "page.css", name == "page.js":
		http.ServeFileFS(w, r, assets, "assets/"+name)
	default:
		http.NotFound(w, r)
	}
}

// redirect leads to a relative URL. The browser knows under which path it sees the page; a
// http.StripPrefix or a proxy has hidden that from r.URL, which http.Redirect would use.
func redirect(w http.ResponseWriter, to string) {
	w.Header().Set("Location", to)
	w.WriteHeader(http.StatusSeeOther)
}

// withSlash returns where the page is if the client has sent its path without a slash at the end,
// so that relative links would lead elsewhere. http.StripPrefix may have left nothing of it. "./"
// keeps the last part from being read as a scheme or a host, and an escaped path has no backslash.
func withSlash(r *http.Request) (to string, needed bool) {
	sent, err := url.ParseRequestURI(r.RequestURI)
	if err != nil || strings.HasSuffix(sent.Path, "/") {
		return "", false
	}
	return "./" + path.Base(sent.EscapedPath()) + "/", true
}

//go:embed assets
var assets embed.FS

var pages = template.Must(template.New("").Funcs(template.FuncMap{
	"ago": duration,
	"cut": cut,
	"at":  at,
}).ParseFS(assets, "assets/*.html"))

// interrupted answers a request that ends before Redis was read.
const interrupted = "interrupted while Redis was read"

// page serves the page.
func (h *handler) page(w http.ResponseWriter, r *http.Request) {
	v, ok := h.current(w, r)
	if !ok {
		http.Error(w, interrupted, http.StatusServiceUnavailable)
		return
	}
	v.Note = readNote(r.URL.Query())
	if _, err := v.content(); err != nil {
		h.notWritten("page", err)
	}
	h.render(w, http.StatusOK, "page.html", v)
}

// content returns what each update replaces. It shortens the lists until it fits into mostBytes.
func (v *view) content() (string, error) {
	for {
		var content strings.Builder
		if err := pages.ExecuteTemplate(&content, "content", v); err != nil {
			return "", err
		}
		if content.Len() <= mostBytes || v.most <= 6 {
			return content.String(), nil
		}
		v.most = v.most * 3 / 4
	}
}

func (h *handler) render(w http.ResponseWriter, status int, name string, data any) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	if err := pages.ExecuteTemplate(w, name, data); err != nil {
		h.notWritten("page", err)
	}
}

// json serves all locks.
func (h *handler) json(w http.ResponseWriter, r *http.Request) {
	v, ok := h.current(w, r)
	if !ok {
		http.Error(w, interrupted, http.StatusServiceUnavailable)
		return
	}
	if v.Error != "" {
		http.Error(w, v.Error, http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(w).Encode(v.listing()); err != nil {
		h.notWritten("locks", err)
	}
}

// notWritten logs that an answer was not written: usually the client hung up.
func (h *handler) notWritten(answer string, err error) {
	if n, ok := h.lines.Count(answer, 1); ok {
		h.opts.Logger.Warn("reqlock: inspect: an answer was not written", "answer", answer, "error", err, "answers", n)
	}
}
