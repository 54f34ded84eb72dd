package inspect

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/internal/lab/browser"
	"github.com/reqlock/reqlock/internal/lab/redistest"
)

var pictures = flag.String("pictures", "", "`folder` to write pictures of the page to")

type contextKey struct{}

// request returns the context of a request, whose route and ID the page shows.
func request(route, id string) context.Context {
	return context.WithValue(context.Background(), contextKey{}, core.Annotation{Route: route, RequestID: id})
}

func annotated(o *core.Options) {
	o.Annotate = func(ctx context.Context) core.Annotation {
		a, _ := ctx.Value(contextKey{}).(core.Annotation)
		return a
	}
}

// newClient returns a lock client that the test leaves to the end.
func newClient(t *testing.T, rdb redis.UniversalClient, process string, changes ...func(*core.Options)) *core.Client {
	t.Helper()
	opts := core.Options{ClientID: process, Logger: slog.New(slog.DiscardHandler)}
	for _, change := range changes {
		change(&opts)
	}
	locks, err := core.New(rdb, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		if err := locks.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	return locks
}

// hold acquires a lock until the test ends, even if it is lost before.
func hold(t *testing.T, ctx context.Context, l core.Locker) *core.Lease {
	t.Helper()
	lease, err := l.Acquire(ctx, core.AcquireOptions{LeaseTime: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := lease.Release(context.Background()); err != nil && !errors.Is(err, core.ErrLockLost) {
			t.Error(err)
		}
	})
	return lease
}

// await waits for a lock until the test ends.
func await(t *testing.T, ctx context.Context, l core.Locker) {
	t.Helper()
	ctx, cancel := context.WithCancel(ctx)
	var waiting sync.WaitGroup
	waiting.Go(func() {
		if lease, err := l.Acquire(ctx, core.AcquireOptions{WaitTime: time.Minute}); err == nil {
			<-ctx.Done()
			_ = lease.Release(context.Background())
		}
	})
	t.Cleanup(func() {
		cancel()
		waiting.Wait()
	})
}

// A log collects lines from any goroutine.
type log struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// serve mounts a page at /debug/locks/, as its documentation says.
func serve(t *testing.T, locks *core.Client, opts Options) (base string) {
	t.Helper()
	mux := http.NewServeMux()
	mux.Handle("/debug/locks/", Handler(locks, opts))
	srv := httptest.NewServer(mux)
	t.Cleanup(func() {
		srv.CloseClientConnections()
		srv.Close()
	})
	return srv.URL + "/debug/locks/"
}

func get(t *testing.T, url string) (status int, body string, header http.Header) {
	t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(text), resp.Header
}

// A process knows which of its locks with tokens are fair, although nothing in Redis tells before
// someone waits.
func TestHandler_KindsWithTokens(t *testing.T) {
	t.Parallel()
	locks := newClient(t, redistest.Start(t).Client(t), "web-1")
	hold(t, t.Context(), locks.FairLock("a fair lock").Fenced())
	hold(t, t.Context(), locks.ReadWriteLock("a writer").Write().Fenced())
	_, text, _ := get(t, serve(t, locks, Options{Refresh: leastRefresh})+"locks.json")
	var listing Listing
	if err := json.Unmarshal([]byte(text), &listing); err != nil || len(listing.Locks) != 2 {
		t.Fatalf("%s: %v", text, err)
	}
	for i, want := range []string{"fair", "write"} {
		if l := listing.Locks[i]; l.Kind != want || l.Token != 1 || l.Holders[0].Held < 1 {
			t.Errorf("%+v, want the kind %s and the token 1", l, want)
		}
	}
}

// The page and its JSON show the locks of all processes, with what only this process knows.
func TestHandler_Shows(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	locks := newClient(t, srv.Client(t), "web-1", annotated)
	other := newClient(t, srv.Client(t), "web-2")
	hold(t, request("POST /orders/{id}", "req-7"), locks.FencedLock("order:42"))
	hold(t, context.Background(), other.Lock("order:<b>&"))
	base := serve(t, locks, Options{Refresh: leastRefresh, Sections: []Section{{"Plugin policy.wasm", func() []Row { return []Row{{"Calls", "17"}} }}}})

	status, text, header := get(t, base)
	for _, want := range []string{"order:42", "POST /orders/{id}", "req-7", locks.ID() + ":", other.ID() + ":", "order:&lt;b&gt;&amp;", "fenced", "token 1", "Plugin policy.wasm", "17"} {
		if !strings.Contains(text, want) {
			t.Errorf("the page lacks %s", want)
		}
	}
	if status != 200 || strings.Contains(text, "unlock?") || !strings.Contains(header.Get("Content-Security-Policy"), "default-src 'none'") {
		t.Errorf("status %d, header %v", status, header)
	}
	const anonymous = "Requests have no ID here"
	_, without, _ := get(t, serve(t, other, Options{}))
	if strings.Contains(text, anonymous) || !strings.Contains(without, anonymous) {
		t.Error("a page says that requests have no ID although Annotate is set, or does not although it is not")
	}
	_, text, _ = get(t, base+"locks.json")
	var listing Listing
	if err := json.Unmarshal([]byte(text), &listing); err != nil || len(listing.Locks) != 2 || listing.Truncated {
		t.Fatalf("%s: %v", text, err)
	}
	all := listing.Locks
	if h := all[0].Holders[0]; all[0].Kind != "fenced" || h.Held < 1 || h.Route != "POST /orders/{id}" || h.RequestID != "req-7" || h.Client != locks.ID() {
		t.Errorf("%+v", all[0])
	}
	if h := all[1].Holders[0]; h.Held != 0 || h.Route != "" || h.Client != other.ID() {
		t.Errorf("another process's lock: %+v", all[1])
	}
	for path, want := range map[string]int{"page.css": 200, "page.js": 200, "unlock?name=order:42": 404, "nothing": 404} {
		if status, _, _ := get(t, base+path); status != want {
			t.Errorf("%s: status %d, want %d", path, status, want)
		}
	}
	if resp, err := http.PostForm(base+"unlock", url.Values{"name": {"order:42"}, "reason": {"r"}}); err != nil || resp.StatusCode != 405 {
		t.Errorf("POST /unlock where it is not allowed: %v, %v", resp.Status, err)
	} else {
		resp.Body.Close()
	}
}

// submit answers a question, which is the text of its page, and follows no redirect.
func submit(t *testing.T, base, name, reason, site, question string) (status int, text string) {
	t.Helper()
	form := url.Values{"name": {name}, "reason": {reason}}
	for _, field := range ownerField.FindAllStringSubmatch(question, -1) {
		form.Add("owner", field[1])
	}
	r, err := http.NewRequest("POST", base+"unlock", strings.NewReader(form.Encode()))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("Sec-Fetch-Site", site)
	resp, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

var ownerField = regexp.MustCompile(`<input type="hidden" name="owner" value="([^"]*)">`)

// POST /unlock needs a reason and the same origin, and leaves an audit line. The holder, in another
// process, is told.
func TestHandler_Unlock(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	locks := newClient(t, srv.Client(t), "web-1", func(o *core.Options) { o.NameMapper = func(n string) string { return "app:" + n } })
	other := newClient(t, srv.Client(t), "web-2")
	lease := hold(t, context.Background(), other.FairLock("app:order:42"))
	var audit log
	base := serve(t, locks, Options{AllowUnlock: true, Refresh: leastRefresh, Logger: slog.New(slog.NewTextHandler(&audit, nil))})

	_, question, _ := get(t, base+"unlock?name=app:order:42")
	if !strings.Contains(question, "Reason") || !strings.Contains(question, other.ID()) {
		t.Errorf("GET /unlock: %s", question)
	}
	for _, test := range []struct {
		name, reason, site string
		status             int
		held               bool
	}{
		{"app:order:42", "stuck", "cross-site", 403, true},
		{"app:order:42", " ", "same-origin", 422, true},
		{"app:order:42", strings.Repeat("x", longestReason+1), "same-origin", 422, true},
		{"app:nothing", "stuck", "same-origin", 404, true},
		{"app:order:42", "the handler hangs", "same-origin", 303, false},
		{"app:order:42", "again", "same-origin", 404, false},
	} {
		if status, _ := submit(t, base, test.name, test.reason, test.site, question); status != test.status {
			t.Errorf("%.20q from %s: status %d, want %d", test.reason, test.site, status, test.status)
		}
		if held, err := other.FairLock("app:order:42").IsLocked(t.Context()); err != nil || held != test.held {
			t.Errorf("%.20q from %s: held %v, %v", test.reason, test.site, held, err)
		}
	}
	select {
	case <-lease.Done():
	case <-time.After(20 * time.Second):
		t.Error("the holder was not told")
	}
	lines := strings.Split(strings.TrimSpace(audit.String()), "\n")
	if len(lines) != 1 || !strings.Contains(lines[0], `reason="the handler hangs"`) || !strings.Contains(lines[0], "app:order:42") ||
		!strings.Contains(lines[0], other.ID()) || !strings.Contains(lines[0], "from=127.0.0.1:") {
		t.Errorf("audit: %q", lines)
	}
}

// An unlock frees only the holders that its question showed. If others hold the lock by the time it
// is answered, the question is asked again.
func TestHandler_UnlockAfterTheHolderChanged(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	locks := newClient(t, srv.Client(t), "web-1")
	other := newClient(t, srv.Client(t), "web-2")
	base := serve(t, locks, Options{AllowUnlock: true, Refresh: time.Hour, Logger: slog.New(slog.DiscardHandler)})
	first, err := locks.Lock("order:42").Acquire(t.Context(), core.AcquireOptions{})
	if err != nil {
		t.Fatal(err)
	}
	_, question, _ := get(t, base+"unlock?name=order:42")
	if err := first.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	second := hold(t, context.Background(), other.Lock("order:42"))
	get(t, base) // the view that the unlock makes obsolete

	var next string
	for _, reason := range []string{"the handler hangs", ""} { // a mistake does not hide the change
		status, text := submit(t, base, "order:42", reason, "same-origin", question)
		if status != http.StatusConflict || !strings.Contains(text, "The holder has changed") || !strings.Contains(text, other.ID()) ||
			strings.Contains(text, locks.ID()) || !strings.Contains(text, `value="`+reason+`"`) {
			t.Errorf("reason %q: status %d, %s", reason, status, text)
		}
		if held, err := other.Lock("order:42").IsLocked(t.Context()); err != nil || !held || second.Err() != nil {
			t.Fatalf("reason %q: held %v, %v; the lease: %v", reason, held, err, second.Err())
		}
		next = text
	}
	if status, text := submit(t, base, "order:42", "it hangs, too", "same-origin", next); status != http.StatusSeeOther {
		t.Errorf("the second question: status %d, %s", status, text)
	}
	if held, err := other.Lock("order:42").IsLocked(t.Context()); err != nil || held {
		t.Errorf("held %v, %v", held, err)
	}
	if _, text, _ := get(t, base); !strings.Contains(text, "No lock is held") {
		t.Errorf("after the unlock: %s", text)
	}
}

// With a prefix, the page neither shows nor unlocks other locks.
func TestHandler_Prefix(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	locks := newClient(t, srv.Client(t), "web-1", func(o *core.Options) { o.NameMapper = func(n string) string { return "reqlock:" + n } })
	other := newClient(t, srv.Client(t), "web-2")
	base := serve(t, locks, Options{Prefix: "reqlock:shop:", AllowUnlock: true, Refresh: leastRefresh, Logger: slog.New(slog.DiscardHandler)})

	for _, part := range []string{"shop:", "bank:"} {
		hold(t, context.Background(), locks.Lock(part+"held"))
		hold(t, context.Background(), other.Lock("reqlock:"+part+"awaited"))
		await(t, context.Background(), locks.Lock(part+"awaited"))
		lost := hold(t, context.Background(), locks.Lock(part+"lost"))
		if freed, err := other.Lock("reqlock:" + part + "lost").ForceUnlock(t.Context()); !freed || err != nil {
			t.Fatal(freed, err)
		}
		<-lost.Done()
	}
	for len(locks.Waits()) < 2 || len(locks.Losses()) < 2 {
		time.Sleep(time.Millisecond)
	}
	_, text, _ := get(t, base)
	for _, want := range []string{"reqlock:shop:held", "reqlock:shop:awaited", ">shop:awaited", ">shop:lost"} {
		if !strings.Contains(text, want) {
			t.Errorf("the page lacks %s", want)
		}
	}
	_, data, _ := get(t, base+"locks.json")
	if strings.Contains(text, "bank:") || strings.Contains(data, "bank:") {
		t.Errorf("another name is shown: %s\n%s", text, data)
	}
	_, question, _ := get(t, serve(t, locks, Options{AllowUnlock: true})+"unlock?name=reqlock:bank:held")
	if status, text, _ := get(t, base+"unlock?name=reqlock:bank:held"); status != http.StatusNotFound || strings.Contains(text, locks.ID()) {
		t.Errorf("GET /unlock: status %d, %s", status, text)
	}
	if status, _ := submit(t, base, "reqlock:bank:held", "none", "same-origin", question); status != http.StatusNotFound {
		t.Errorf("POST /unlock: status %d", status)
	}
	if held, err := locks.Lock("bank:held").IsLocked(t.Context()); err != nil || !held {
		t.Errorf("held %v, %v", held, err)
	}
}

// While Redis has not accepted the downgrade of a writer yet, it is the write side that is held. An
// unlock of the read side would free nothing.
func TestAddHolds_DowngradeUnderWay(t *testing.T) {
	t.Parallel()
	owner := "web-1.4242.k3j9x2ab:7"
	inRedis := Lock{Name: "order:42", Kind: "write", Holders: []Holder{{Owner: owner, Count: 1}, {Owner: owner + ":write", Count: 1}}}
	known := addHolds([]Lock{inRedis}, []core.Hold{{Key: "order:42", Kind: "read", Owner: owner}}, false)
	if known[0].Kind != "write" || known[0].Holders[0].Held == 0 {
		t.Errorf("%+v", known[0])
	}
}

// Without Redis, the page shows what this process has, and says so.
func TestHandler_WithoutRedis(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	locks := newClient(t, srv.Client(t), "web-1", func(o *core.Options) { o.CommandTimeout = 2 * time.Second })
	lease, err := locks.Lock("order:42").Acquire(context.Background(), core.AcquireOptions{LeaseTime: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	base := serve(t, locks, Options{Refresh: leastRefresh})
	srv.Kill(t)
	if _, text, _ := get(t, base); !strings.Contains(text, "Redis cannot be read") || !strings.Contains(text, "order:42") {
		t.Errorf("%s", text)
	}
	if status, _, _ := get(t, base+"locks.json"); status != 503 {
		t.Errorf("locks.json: status %d", status)
	}
	_ = lease.Release(context.Background()) // Redis is gone
}

// A stream of updates ends when the server shuts down, which would wait for it.
func TestHandler_EventsEndWithTheServer(t *testing.T) {
	t.Parallel()
	locks := newClient(t, redistest.Start(t).Client(t), "web-1")
	srv := httptest.NewServer(Handler(locks, Options{Refresh: time.Hour}))
	defer srv.Close()
	resp, err := http.Get(srv.URL + "/events")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if _, err := resp.Body.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if err := srv.Config.Shutdown(ctx); err != nil {
		t.Error(err)
	}
}

func TestHandler_RefusesOptions(t *testing.T) {
	t.Parallel()
	locks := newClient(t, redistest.Start(t).Client(t), "web-1")
	for _, make := range []func(){
		func() { Handler(nil, Options{}) },
		func() { Handler(locks, Options{Refresh: -1}) },
		func() { Handler(locks, Options{Refresh: time.Millisecond}) },
		func() { Handler(locks, Options{UnlockHosts: []string{"locks.example.com"}}) },
		func() { Handler(locks, Options{AllowUnlock: true, UnlockHosts: []string{"https://locks.example.com"}}) },
		func() { Handler(locks, Options{AllowUnlock: true, UnlockHosts: []string{"locks.example.com:8080"}}) },
		func() { Handler(locks, Options{AllowUnlock: true, UnlockHosts: []string{"*.example.com"}}) },
		func() { Handler(locks, Options{AllowUnlock: true, UnlockHosts: []string{""}}) },
	} {
		func() {
			defer func() {
				if text := fmt.Sprint(recover()); !strings.HasPrefix(text, "reqlock: ") {
					t.Errorf("panic: %s", text)
				}
			}()
			make()
		}()
	}
}

func TestDuration(t *testing.T) {
	t.Parallel()
	for want, value := range map[string]any{
		"no limit": core.WaitForever, "0 ms": int64(0), "999 ms": int64(999), "1.5 s": int64(1500), "12 s": 12 * time.Second,
		"3 min 5 s": 185 * time.Second, "2 h 30 min": 150 * time.Minute, "3 days": 80 * time.Hour,
	} {
		if got := duration(value); got != want {
			t.Errorf("%v: %q, want %q", value, got, want)
		}
	}
}

// A reader sees locks come without touching the page, clicks through an unlock, and sees the holder
// told.
func TestHandler_InABrowser(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	locks := newClient(t, srv.Client(t), "web-7d4b9c6f5-abcde", annotated)
	other := newClient(t, srv.Client(t), "web-7d4b9c6f5-fghij", annotated)
	base := serve(t, locks, Options{AllowUnlock: true, Refresh: leastRefresh, Logger: slog.New(slog.DiscardHandler), Sections: []Section{
		{"Idempotency", func() []Row { return []Row{{"Answered again", "1,204"}, {"Running", "3"}, {"In conflict", "2"}} }},
		{"Plugin policy.wasm", func() []Row { return []Row{{"Calls", "48,310"}, {"Failed", "0"}, {"Breaker", "closed"}} }},
	}})
	page := browser.Open(t, base)
	page.View(browser.View{Width: 1180, Height: 900})
	page.Await(`document.getElementById("state").textContent === "live"`)
	page.Await(`document.body.innerText.includes("No lock is held")`)

	lost := hold(t, request("DELETE /carts/{id}", "01J9Z7QK2M"), locks.Lock("reqlock:cart:9311"))
	if freed, err := other.Lock("reqlock:cart:9311").ForceUnlock(t.Context()); !freed || err != nil {
		t.Fatal(freed, err)
	}
	<-lost.Done()
	lease := hold(t, request("POST /orders/{id}", "01J9Z7QK3T"), locks.Lock("reqlock:order:42"))
	for i := range 2 {
		await(t, request("POST /orders/{id}", fmt.Sprintf("01J9Z7QK4%c", 'A'+i)), locks.Lock("reqlock:order:42"))
	}
	hold(t, request("PUT /stock/{sku}", "01J9Z7QK5C"), locks.FencedLock("reqlock:stock:A-113"))
	hold(t, request("POST /tickets/{id}", "01J9Z7QK6B"), other.FairLock("reqlock:ticket:7"))
	await(t, request("POST /tickets/{id}", "01J9Z7QK7W"), locks.FairLock("reqlock:ticket:7"))
	for range 3 {
		hold(t, request("GET /reports/{id}", "01J9Z7QK8D"), other.ReadWriteLock("reqlock:report:2026-11").Read())
	}
	page.Await(`document.body.innerText.includes("reqlock:order:42") && document.body.innerText.includes("POST /orders/{id}")`)
	page.Await(`[...document.querySelectorAll("tbody tr")].some(row => row.cells[0].innerText.includes("order:42") && row.cells[5]?.innerText === "2 here")`)
	page.Await(`document.body.innerText.includes("reqlock:report:2026-11") && document.body.innerText.includes("reqlock:cart:9311")`)
	if *pictures != "" { // shows times that one may meet
		page.Await(`parseFloat(document.querySelector("tbody tr").cells[3].innerText) > 12 && document.querySelector("tbody tr").cells[3].innerText.endsWith(" s")`)
	}
	picture(t, page, "inspect-light", browser.View{Width: 1180, Height: 1440})
	picture(t, page, "inspect-dark", browser.View{Width: 1180, Height: 1440, Dark: true})
	picture(t, page, "inspect-phone", browser.View{Width: 400, Height: 900, Phone: true})
	var wide bool
	page.Eval(`document.documentElement.scrollWidth > 400`, &wide) // innerWidth grows with the page
	if wide {
		t.Error("a phone has to scroll sideways")
	}
	page.View(browser.View{Width: 1180, Height: 900})

	// While a button is pressed, the link under it stays, or there would be no click.
	page.Eval(`(() => {
		window.row = document.querySelector("tbody tr")
		dispatchEvent(new PointerEvent("pointerdown"))
		window.updates = 0
		new EventSource("events").onmessage = () => window.updates++
		return true
	})()`, nil)
	page.Await(`window.updates > 3`)
	var stays bool
	if page.Eval(`window.row.isConnected`, &stays); !stays {
		t.Error("an update replaced a row while the pointer was down")
	}
	page.Eval(`dispatchEvent(new PointerEvent("pointerup"))`, nil)
	page.Await(`!window.row.isConnected`)

	page.Follow(`a[href="unlock?name=reqlock%3aorder%3a42"]`)
	page.Await(`document.title === "Unlock reqlock:order:42" && document.getElementById("reason") !== null`)
	picture(t, page, "inspect-unlock", browser.View{Width: 860, Height: 520})
	page.Eval(`(() => { document.getElementById("reason").value = "the handler hangs"; return true })()`, nil)
	page.Follow("button")
	page.Await(`document.body.innerText.includes("Freed reqlock:order:42") && document.getElementById("state").textContent === "live"`)
	select {
	case <-lease.Done():
	case <-time.After(20 * time.Second):
		t.Fatal("the holder was not told")
	}
	if err := context.Cause(lease.Context()); !errors.Is(err, core.ErrLockLost) {
		t.Errorf("the cause is %v", err)
	}
	page.Await(`[...document.querySelectorAll("#losses ~ .scroll tr")].some(row => row.innerText.includes("reqlock:order:42"))`)
}

// picture writes a picture of the page, if the flag is set.
func picture(t *testing.T, page *browser.Page, name string, view browser.View) {
	t.Helper()
	page.View(view)
	if *pictures == "" {
		return
	}
	if err := os.WriteFile(filepath.Join(*pictures, name+".png"), page.Picture(), 0o644); err != nil {
		t.Fatal(err)
	}
}
