package inspect

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/internal/lab/redistest"
)

// An auditor is a log that keeps the owners of which the audit lines say that they lost the lock.
type auditor struct {
	slog.Handler
	mu    sync.Mutex
	freed map[string]bool
}

func (a *auditor) Handle(_ context.Context, r slog.Record) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	var shown, freed []string
	r.Attrs(func(attr slog.Attr) bool {
		switch attr.Key {
		case "owners":
			shown = attr.Value.Any().([]string)
		case "freed":
			freed = attr.Value.Any().([]string)
		}
		return true
	})
	for _, owner := range freed {
		if !slices.Contains(shown, owner) {
			return fmt.Errorf("%s has lost the lock, and was not shown", owner)
		}
		a.freed[owner] = true
	}
	return nil
}

func (a *auditor) Enabled(context.Context, slog.Level) bool { return true }

// While a lock changes hands all the time, an unlock takes it only from owners that its question
// showed, and the audit says from which. An answer that it is freed means that an owner has lost it.
func TestHandler_UnlockAmidHandOvers(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	var mu sync.Mutex
	lost, unnamed := make(map[string]bool), 0
	note := func(_ context.Context, e core.Event) {
		mu.Lock()
		defer mu.Unlock()
		switch {
		case !errors.Is(e.Err, core.ErrLockLost):
		case e.Owner == "": // a grant on its way
			unnamed++
		default:
			lost[e.Owner] = true
		}
	}
	observed := func(o *core.Options) { o.Observer = core.Observer{NotAcquired: note, Released: note, Lost: note} }
	locks := newClient(t, srv.Client(t), "web-1", observed)
	other := newClient(t, srv.Client(t), "web-2", observed)
	audit := &auditor{freed: make(map[string]bool)}
	base := serve(t, locks, Options{AllowUnlock: true, Refresh: time.Hour, Logger: slog.New(audit)})

	var done atomic.Bool
	var traders sync.WaitGroup
	stop := func() {
		done.Store(true)
		traders.Wait()
	}
	defer stop()
	for i := range 6 {
		traders.Go(func() {
			for !done.Load() {
				lease, err := []*core.Client{locks, other}[i%2].Lock("order:42").Acquire(context.Background(), core.AcquireOptions{WaitTime: time.Minute})
				if err == nil {
					time.Sleep(time.Millisecond) // longer than a hand-over takes, or no unlock would be in time
					_ = lease.Release(context.Background())
				}
			}
		})
	}
	freed, refused := 0, 0
	for freed < 15 || refused < 15 {
		status, question, _ := get(t, base+"unlock?name=order:42")
		if status != http.StatusOK || !ownerField.MatchString(question) {
			continue // free at that moment
		}
		switch status, text := submit(t, base, "order:42", "stuck", "same-origin", question); status {
		case http.StatusSeeOther:
			freed++
		case http.StatusConflict:
			refused++
			if !strings.Contains(text, "by now") && !strings.Contains(text, "not held now") {
				t.Fatal(text)
			}
		case http.StatusNotFound:
			refused++
		default:
			t.Fatalf("status %d, %s", status, text)
		}
	}
	stop()
	mu.Lock()
	defer mu.Unlock()
	audit.mu.Lock()
	defer audit.mu.Unlock()
	if len(audit.freed) != freed {
		t.Errorf("%d answers say that the lock was freed, the audit names %d owners", freed, len(audit.freed))
	}
	for owner := range lost {
		if !audit.freed[owner] {
			t.Errorf("%s has lost the lock, and the audit does not say so", owner)
		}
	}
	unheard := maps.Clone(audit.freed)
	maps.DeleteFunc(unheard, func(owner string, _ bool) bool { return lost[owner] })
	if len(unheard) > unnamed || unnamed > freed {
		t.Errorf("%d owners have lost the lock by the audit and do not know it: %v; %d lost a grant on its way", len(unheard), unheard, unnamed)
	}
}

// What follows an unlock says who lost the lock and who holds it still.
func TestHandler_UnlockOfSomeReaders(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	locks := newClient(t, srv.Client(t), "web-1")
	other := newClient(t, srv.Client(t), "web-2")
	base := serve(t, locks, Options{AllowUnlock: true, Refresh: leastRefresh, Logger: slog.New(slog.DiscardHandler)})
	first := hold(t, context.Background(), locks.ReadWriteLock("order:42").Read())
	_, question, _ := get(t, base+"unlock?name=order:42")
	owner := ownerField.FindStringSubmatch(question)[1]
	second := hold(t, context.Background(), other.ReadWriteLock("order:42").Read())
	resp, err := http.PostForm(base+"unlock?name=order:42", url.Values{"owner": {owner}, "reason": {"stuck"}})
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	_, text, _ := get(t, resp.Request.URL.String())
	if want := "It was taken from <code>" + owner + "</code>. Owners that hold it still: 1."; !strings.Contains(text, want) {
		t.Errorf("%s lacks %s", text, want)
	}
	if first.Err() == nil || second.Err() != nil {
		t.Errorf("the reader that was shown: %v; the other: %v", first.Err(), second.Err())
	}
}

// A hash that no lock has made is not freed, even if a form names its field.
func TestHandler_UnlockRefusesOtherHashes(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client(t)
	base := serve(t, newClient(t, rdb, "web-1"), Options{AllowUnlock: true, Refresh: leastRefresh, Logger: slog.New(slog.DiscardHandler)})
	mustDo(t, rdb, "HSET", "basket:7", "sku:1001", 2)
	mustDo(t, rdb, "PEXPIRE", "basket:7", 60_000)
	if _, text, _ := get(t, base); strings.Contains(text, "basket:7") {
		t.Error("it is shown as a lock")
	}
	status, text := submit(t, base, "basket:7", "stuck", "same-origin", `<input type="hidden" name="owner" value="sku:1001">`)
	if status != http.StatusNotFound || !strings.Contains(text, "something else") {
		t.Errorf("status %d, %s", status, text)
	}
	if n := rdb.HGet(t.Context(), "basket:7", "sku:1001").Val(); n != "2" {
		t.Errorf("the hash has %q", n)
	}
}

// A name with the ends of lines arrives whole, in the form and in an update.
func TestHandler_LineEndsInAName(t *testing.T) {
	t.Parallel()
	const name = "order:\r\n1\rdata: evil\n2"
	locks := newClient(t, redistest.Start(t).Client(t), "web-1")
	hold(t, context.Background(), locks.Lock(name))
	base := serve(t, locks, Options{AllowUnlock: true, Refresh: leastRefresh, Logger: slog.New(slog.DiscardHandler)})

	resp, err := http.Get(base + "events")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var event strings.Builder
	for buffer := make([]byte, 4<<10); !strings.Contains(event.String(), "\n\n"); {
		n, err := resp.Body.Read(buffer)
		if err != nil {
			t.Fatal(err)
		}
		event.Write(buffer[:n])
	}
	whole, _, _ := strings.Cut(event.String(), "\n\n")
	for _, line := range strings.FieldsFunc(whole, func(r rune) bool { return r == '\r' || r == '\n' }) {
		if !strings.HasPrefix(line, "data: ") {
			t.Errorf("an update has the line %q", line)
		}
	}

	page := base + "unlock?" + url.Values{"name": {name}}.Encode()
	_, question, _ := get(t, page)
	_, action, _ := strings.Cut(question, `action="`)
	action, _, _ = strings.Cut(action, `"`)
	at, err := url.Parse(page)
	if err != nil {
		t.Fatal(err)
	}
	to, err := at.Parse(action)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := http.PostForm(to.String(), url.Values{"owner": {ownerField.FindStringSubmatch(question)[1]}, "reason": {"stuck"}})
	if err != nil {
		t.Fatal(err)
	}
	answer.Body.Close()
	if answer.StatusCode != http.StatusOK || answer.Request.URL.Query().Get("freed") != name {
		t.Errorf("%s: %s", answer.Request.URL, answer.Status)
	}
}

// Wherever the page is mounted, its redirects stay on it, and nothing in the request leads elsewhere.
func TestHandler_RedirectsBelowStripPrefix(t *testing.T) {
	t.Parallel()
	locks := newClient(t, redistest.Start(t).Client(t), "web-1")
	h := Handler(locks, Options{AllowUnlock: true, Refresh: leastRefresh, Logger: slog.New(slog.DiscardHandler)})
	mux := http.NewServeMux()
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) { http.Error(w, "the application", http.StatusTeapot) })
	mux.Handle("/debug/locks", http.StripPrefix("/debug/locks", h))
	mux.Handle("/debug/locks/", http.StripPrefix("/debug/locks", h))
	mux.Handle("/slash/", http.StripPrefix("/slash/", h))
	srv := httptest.NewServer(mux)
	defer srv.Close()
	backend, err := url.Parse(srv.URL)
	if err != nil {
		t.Fatal(err)
	}
	proxy := httptest.NewServer(http.StripPrefix("/admin", httputil.NewSingleHostReverseProxy(backend)))
	defer proxy.Close()

	client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	for mount, base := range map[string]string{"/debug/locks": srv.URL, "/admin/debug/locks": proxy.URL} {
		for _, query := range []string{"", `?x=/\evil.example`, "?x=//evil.example", "?x=/https://evil.example/"} {
			resp, err := client.Get(base + mount + query)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			to, err := resp.Location()
			if err != nil || to.String() != base+mount+"/" || strings.Contains(resp.Header.Get("Location"), "evil") {
				t.Errorf("%s%s leads to %v (%q), %v", mount, query, to, resp.Header.Get("Location"), err)
			}
		}
	}
	for mount, base := range map[string]string{"/debug/locks/": srv.URL, "/slash/": srv.URL, "/admin/debug/locks/": proxy.URL} {
		if status, text, _ := get(t, base+mount); status != http.StatusOK || !strings.Contains(text, "<h1>Locks") {
			t.Errorf("%s: status %d, %s", mount, status, text)
		}
		lease := hold(t, context.Background(), locks.Lock("order:42"))
		_, question, _ := get(t, base+mount+"unlock?name=order:42")
		owner := ownerField.FindStringSubmatch(question)
		if owner == nil {
			t.Fatalf("%s: %s", mount, question)
		}
		resp, err := client.PostForm(base+mount+"unlock", url.Values{"name": {"order:42"}, "owner": {owner[1]}, "reason": {"stuck"}})
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		to, err := resp.Location()
		if err != nil || !strings.HasPrefix(to.String(), base+mount+"?") || to.Query().Get("freed") != "order:42" {
			t.Errorf("%s: the unlock leads to %v, %v", mount, to, err)
		}
		if err := lease.Release(context.Background()); !errors.Is(err, core.ErrLockLost) {
			t.Errorf("%s: %v", mount, err)
		}
	}
}

// Another site's name that leads to this server does not unlock, whatever the browser says of the
// request, and whatever a proxy makes of its host.
func TestHandler_UnlockHosts(t *testing.T) {
	t.Parallel()
	locks := newClient(t, redistest.Start(t).Client(t), "web-1")
	hold(t, context.Background(), locks.Lock("order:42"))
	quiet := slog.New(slog.DiscardHandler)
	local := Handler(locks, Options{AllowUnlock: true, Logger: quiet})
	named := Handler(locks, Options{AllowUnlock: true, UnlockHosts: []string{"Locks.example.com"}, Logger: quiet})
	for _, test := range []struct {
		h            http.Handler
		host, origin string
		site         string
		want         int
	}{
		{local, "127.0.0.1:8080", "http://127.0.0.1:8080", "same-origin", http.StatusConflict},
		{local, "localhost:8080", "http://localhost:8080", "same-origin", http.StatusConflict},
		{local, "LOCALHOST.", "", "", http.StatusConflict},
		{local, "app.localhost", "", "", http.StatusConflict},
		{local, "[::1]:8080", "http://[::1]:8080", "same-origin", http.StatusConflict},
		{local, "10.0.0.7", "", "", http.StatusConflict},
		{local, "evil.example:8080", "http://evil.example:8080", "same-origin", http.StatusForbidden},
		{local, "evil.example", "", "", http.StatusForbidden},
		{local, "127.0.0.1.evil.example", "", "", http.StatusForbidden},
		{local, "localhost.evil.example", "", "", http.StatusForbidden},
		{local, "evillocalhost", "", "", http.StatusForbidden},
		{local, "", "", "", http.StatusForbidden},
		{local, "127.0.0.1:8080", "http://evil.example:8080", "same-origin", http.StatusForbidden},
		{local, "127.0.0.1:8080", "null", "same-origin", http.StatusForbidden},
		{local, "127.0.0.1:8080", "http://localhost:3000", "cross-site", http.StatusForbidden},
		{named, "locks.example.com", "https://locks.example.com", "same-origin", http.StatusConflict},
		{named, "locks.example.com.:443", "", "", http.StatusConflict},
		{named, "127.0.0.1:8080", "https://locks.example.com", "same-origin", http.StatusConflict},
		{named, "example.com", "", "", http.StatusForbidden},
		{named, "a.locks.example.com", "", "", http.StatusForbidden},
	} {
		form := url.Values{"name": {"order:42"}, "owner": {"nobody:1"}, "reason": {"stuck"}}
		r := httptest.NewRequest("POST", "/unlock", strings.NewReader(form.Encode()))
		r.Host = test.host
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		for name, value := range map[string]string{"Origin": test.origin, "Sec-Fetch-Site": test.site} {
			if value != "" {
				r.Header.Set(name, value)
			}
		}
		w := httptest.NewRecorder()
		test.h.ServeHTTP(w, r)
		if w.Code != test.want {
			t.Errorf("host %q, origin %q: status %d, want %d: %s", test.host, test.origin, w.Code, test.want, w.Body)
		}
	}
	r := httptest.NewRequest("GET", "/unlock?name=order:42", nil)
	r.Host = "evil.example"
	w := httptest.NewRecorder()
	local.ServeHTTP(w, r)
	if w.Code != http.StatusForbidden || !strings.Contains(w.Body.String(), `host "evil.example"`) || !strings.Contains(w.Body.String(), "UnlockHosts") {
		t.Errorf("the question: status %d, %s", w.Code, w.Body)
	}
}
