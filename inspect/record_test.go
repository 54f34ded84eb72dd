package inspect

import (
	"context"
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/internal/lab/browser"
	"github.com/reqlock/reqlock/internal/lab/redistest"
)

// Each holder has a row of its own, with what is known about it.
func TestHandler_OneRowAHolder(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	locks, other := newClient(t, srv.Client(t), "web-1", annotated), newClient(t, srv.Client(t), "web-2")
	for range 2 {
		hold(t, context.Background(), other.ReadWriteLock("report").Read())
	}
	hold(t, request("GET /mine", "req-7"), locks.ReadWriteLock("report").Read())
	_, text, _ := get(t, serve(t, locks, Options{}))
	_, table, _ := strings.Cut(text, "<tbody>")
	table, _, _ = strings.Cut(table, "</tbody>")
	rows := strings.Split(strings.TrimSpace(table), "\n")
	if len(rows) != 3 || !strings.Contains(rows[0], `rowspan="3"`) {
		t.Fatalf("%d rows: %s", len(rows), table)
	}
	for i, row := range rows {
		if own := strings.Contains(row, locks.ID()+":"); own != (i == 0) || own != strings.Contains(row, "req-7") || strings.Count(row, "<code>") != map[bool]int{true: 2, false: 1}[own] {
			t.Errorf("row %d: %s", i, row)
		}
	}
}

// Callers that wait are counted once: those of this process, and those elsewhere.
func TestHandler_CountsWaitersOnce(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	locks, other := newClient(t, srv.Client(t), "web-1"), newClient(t, srv.Client(t), "web-2")
	hold(t, context.Background(), locks.Lock("order"))
	hold(t, context.Background(), locks.FairLock("ticket"))
	for range 2 {
		await(t, context.Background(), locks.Lock("order"))
		await(t, context.Background(), other.FairLock("ticket"))
	}
	await(t, context.Background(), other.Lock("order"))
	await(t, context.Background(), locks.FairLock("ticket"))
	base := serve(t, locks, Options{Refresh: leastRefresh})
	deadline := time.Now().Add(20 * time.Second)
	for {
		_, text, _ := get(t, base)
		if strings.Contains(text, ">2 here, 1 elsewhere<") && strings.Contains(text, ">1 here, 2 elsewhere<") && strings.Contains(text, ">3 here, 3 elsewhere<") {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal(text)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// With more than 1000 locks, the page says so first, has the locks of its process and a hundred
// rows, finds any lock, and an update costs less than 50 KB.
func TestHandler_ManyLocks(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	rdb := srv.Client(t)
	locks, other := newClient(t, rdb, "web-7d4b9c6f5-abcde", annotated), newClient(t, srv.Client(t), "web-7d4b9c6f5-fghij")
	pipe := rdb.Pipeline()
	for i := range 3 * defaultLimit {
		name := fmt.Sprintf("reqlock:order:01J9Z7QK3T-%04d", i)
		pipe.HSet(t.Context(), name, redissonOwner, 1)
		pipe.PExpire(t.Context(), name, time.Hour)
	}
	if _, err := pipe.Exec(t.Context()); err != nil {
		t.Fatal(err)
	}
	for i := range 20 {
		hold(t, request("POST /mine/{id}", "01J9Z7QK3T"), locks.Lock(fmt.Sprint("zz:mine:", i)))
	}
	hold(t, context.Background(), other.Lock("zz:theirs"))
	await(t, request("POST /theirs/{id}", "01J9Z7QK4T"), locks.Lock("zz:theirs"))
	for len(locks.Waits()) == 0 {
		time.Sleep(time.Millisecond)
	}
	h := newHandler(locks, Options{AllowUnlock: true, Refresh: time.Hour})
	page := func(query string) *view {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), "GET", "/"+query, nil)
		if err != nil {
			t.Fatal(err)
		}
		v, ok := h.current(discard{http.Header{}}, r)
		if !ok {
			t.Fatal("no view")
		}
		return v
	}
	v := page("")
	text, err := v.content()
	if err != nil || len(text) >= 50_000 {
		t.Errorf("an update has %d bytes, %v", len(text), err)
	}
	note, tiles := strings.Index(text, "more than 1000 locks"), strings.Index(text, "tiles")
	if note < 0 || note > tiles {
		t.Error("the note is not at the top")
	}
	rows := v.Rows()
	if len(rows) != mostRows || rows[0].Name != "zz:theirs" || rows[0].Waiting.Here != 1 || rows[0].Holder == nil {
		t.Errorf("%d rows, the first is %+v", len(rows), rows[0])
	}
	own := 0
	for _, r := range rows {
		if r.Own {
			own++
		}
	}
	if own != 20 || len(v.listing().Locks) != defaultLimit {
		t.Errorf("%d holds of this process, %d locks in JSON", own, len(v.listing().Locks))
	}
	if rows := page("?q=/THEIRS/").Rows(); len(rows) != 0 { // routes of waiters are in their list
		t.Errorf("a route of a waiter: %d rows", len(rows))
	}
	if waits := page("?q=/THEIRS/").Waits(); len(waits.Items) != 1 {
		t.Errorf("%+v", waits)
	}
	if rows := page("?q=mine:1").Rows(); len(rows) != 11 {
		t.Errorf("part of a name: %d rows", len(rows))
	}
	for i := range 3 * defaultLimit { // read or not, each is found by its name
		if i%500 == 7 {
			name := fmt.Sprintf("reqlock:order:01J9Z7QK3T-%04d", i)
			if rows := page("?q=" + name).Rows(); len(rows) != 1 || rows[0].Name != name {
				t.Errorf("%s: %d rows", name, len(rows))
			}
		}
	}
}

// The bar of the time left is against the lease of the hold: its own, or what was seen of it.
func TestHandler_BarOfALease(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	rdb := srv.Client(t)
	locks, other := newClient(t, rdb, "web-1"), newClient(t, srv.Client(t), "web-2")
	hold(t, context.Background(), locks.Lock("mine"))
	hold(t, context.Background(), other.Lock("theirs"))
	base := serve(t, locks, Options{Refresh: leastRefresh})
	bar := regexp.MustCompile(`<meter max="100" value="(\d+)">`)
	bars := func() []string {
		t.Helper()
		_, text, _ := get(t, base)
		_, table, _ := strings.Cut(text, `id="locks"`)
		table, _, _ = strings.Cut(table, "</table>")
		var values []string
		for _, m := range bar.FindAllStringSubmatch(table, -1) {
			values = append(values, m[1])
		}
		return values
	}
	if got := bars(); len(got) != 2 {
		t.Fatalf("%v", got)
	}
	for _, name := range []string{"mine", "theirs"} {
		mustDo(t, rdb, "PEXPIRE", name, 15_000) // a quarter of a minute
	}
	time.Sleep(leastRefresh) // for a new view
	for i, value := range bars() {
		if n, err := strconv.Atoi(value); err != nil || n > 25 || n < 5 {
			t.Errorf("bar %d: %s%%", i, value)
		}
	}
}

// What is over is still told: refusals and losses by lock, and the last fault of Redis.
func TestHandler_TellsWhatIsOver(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	rdb := srv.Client(t)
	locks := newClient(t, rdb, "web-1")
	lease, err := locks.Lock("order:42").Acquire(t.Context(), core.AcquireOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := locks.Lock("order:42").Acquire(t.Context(), core.AcquireOptions{}); err == nil {
		t.Fatal("two holders")
	}
	if err := lease.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	base := serve(t, locks, Options{Refresh: leastRefresh})
	_, text, _ := get(t, base)
	if !strings.Contains(text, "Not acquired in this process") || !strings.Contains(text, `<td class="n x">1</td>`) || !strings.Contains(text, `data-state="live">`) {
		t.Errorf("a refusal: %s", text)
	}
	mustDo(t, rdb, "CONFIG", "SET", "maxmemory", 1)
	if _, err := locks.Lock("full").Acquire(t.Context(), core.AcquireOptions{}); err == nil {
		t.Fatal("acquired on a full Redis")
	}
	time.Sleep(leastRefresh) // for a new view
	if _, text, _ = get(t, base); !strings.Contains(text, "Locks fail: Redis is out of memory") || !strings.Contains(text, `data-state="live, locks fail"`) {
		t.Errorf("a full Redis: %s", text)
	}
	mustDo(t, rdb, "CONFIG", "SET", "maxmemory", 0)
	hold(t, context.Background(), locks.Lock("full"))
	time.Sleep(leastRefresh)
	if _, text, _ = get(t, base); !strings.Contains(text, "Redis works. Locks failed from") || !strings.Contains(text, `data-state="live">`) {
		t.Errorf("afterwards: %s", text)
	}
	if !regexp.MustCompile(`<time [^>]*>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d \S+</time>`).MatchString(text) {
		t.Error("there is no clock with its zone")
	}
}

// A lock that was freed before its question is a page that leads back.
func TestHandler_FreedMeanwhile(t *testing.T) {
	t.Parallel()
	locks := newClient(t, redistest.Start(t).Client(t), "web-1")
	base := serve(t, locks, Options{AllowUnlock: true})
	lease, err := locks.FencedLock("fenced").Acquire(t.Context(), core.AcquireOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := lease.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]int{"fenced": http.StatusOK, "nothing": http.StatusNotFound} {
		status, text, header := get(t, base+"unlock?name="+name)
		if status != want || !strings.HasPrefix(header.Get("Content-Type"), "text/html") || !strings.Contains(text, "freed meanwhile") ||
			!strings.Contains(text, `<a href="./">`) || strings.Contains(text, "<form") {
			t.Errorf("%s: status %d, %s", name, status, text)
		}
	}
}

// A selection and a pause keep the page as it is, a filter is kept in the URL, and what an unlock has
// done leaves it.
func TestHandler_PauseInABrowser(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	locks := newClient(t, srv.Client(t), "web-7d4b9c6f5-abcde", func(o *core.Options) { o.CommandTimeout = 2 * time.Second })
	lease, err := locks.Lock("order:42").Acquire(context.Background(), core.AcquireOptions{LeaseTime: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	page := browser.Open(t, serve(t, locks, Options{Refresh: leastRefresh})+"?freed=order%3A1&owner=a&left=0")
	page.Await(`location.search === "" && document.querySelector(".note.good") !== null`)
	page.Await(`document.getElementById("state").textContent === "live"`)
	page.Eval(`(() => {
		window.updates = 0
		new EventSource("events").onmessage = () => window.updates++
		window.row = document.querySelector("#locks tbody tr")
		getSelection().selectAllChildren(document.querySelector("#locks .o code"))
		window.row = document.querySelector("#locks tbody tr")
		return true
	})()`, nil)
	stays := func(what string) {
		t.Helper()
		page.Eval(`window.updates = 0, true`, nil)
		page.Await(`window.updates > 3`)
		var same bool
		if page.Eval(`window.row.isConnected`, &same); !same {
			t.Errorf("an update replaced the page: %s", what)
		}
	}
	stays("a selection")
	page.Eval(`getSelection().removeAllRanges(), true`, nil)
	page.Await(`!window.row.isConnected`)
	page.Click("#pause")
	page.Eval(`window.row = document.querySelector("#locks tbody tr"), true`, nil)
	page.Await(`document.getElementById("state").textContent === "paused"`)
	stays("a pause")
	page.Click("#pause")
	page.Await(`!window.row.isConnected && document.getElementById("state").textContent === "live"`)
	var wraps bool
	page.View(browser.View{Width: 700, Height: 900})
	page.Eval(`document.querySelector("#locks .o code").getClientRects().length > 1`, &wraps)
	if wraps {
		t.Error("an owner wraps")
	}
	page.Eval(`(() => {
		const q = document.getElementById("q")
		q.value = "nothing like it"
		q.dispatchEvent(new Event("input"))
		return true
	})()`, nil)
	page.Await(`location.search === "?q=nothing+like+it" && document.body.innerText.includes("No lock that was read has")`)
	srv.Kill(t)
	page.Await(`document.getElementById("state").textContent === "live, Redis unreadable"`)
	_ = lease.Release(context.Background()) // Redis is gone
}
