package inspect

import (
	"context"
	"net/http"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/reqlock/reqlock/coalesce"
	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/internal/lab/browser"
	"github.com/reqlock/reqlock/internal/lab/redistest"
)

// share has callers of one key in a process, until the test or end does. It returns when all but
// one wait, and that one has the lock (holds is 1) or waits for another process (0).
func share(t *testing.T, ctx context.Context, locks *core.Client, key string, callers, holds int, end <-chan struct{}, finish func()) {
	t.Helper()
	var all sync.WaitGroup
	for range callers {
		all.Go(func() {
			result, _, err := coalesce.Do(ctx, locks, key, coalesce.Options{}, func(context.Context) (int, error) {
				<-end
				return 7, nil
			})
			if result != 7 || err != nil {
				t.Errorf("%s: result %d, %v", key, result, err)
			}
		})
	}
	t.Cleanup(func() {
		finish()
		all.Wait()
	})
	waits := func() bool {
		for _, run := range coalesce.Runs(locks) {
			if run.Key == key {
				return run.Waiting == callers-1 && len(locks.Holds()) == holds && len(locks.Holds())+len(locks.Waits()) == 1
			}
		}
		return false
	}
	for late := time.Now().Add(20 * time.Second); !waits(); time.Sleep(time.Millisecond) {
		if time.Now().After(late) {
			t.Fatalf("%d callers of %s do not share: %v", callers, key, coalesce.Runs(locks))
		}
	}
}

// sharedIn returns the section of shared runs. "": there is none.
func sharedIn(t *testing.T, url string) string {
	t.Helper()
	status, text, _ := get(t, url)
	if status != http.StatusOK {
		t.Fatalf("status %d", status)
	}
	_, section, _ := strings.Cut(text, `id="shared"`)
	section, _, _ = strings.Cut(section, "</section>")
	return section
}

// The page of each process shows the runs that its callers share, and how many of them wait.
func TestHandler_SharedRuns(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	mapped := func(o *core.Options) { o.NameMapper = func(name string) string { return "app:" + name } }
	locks := newClient(t, srv.Client(t), "web-1", annotated, mapped)
	other := newClient(t, srv.Client(t), "web-2", annotated, mapped)
	base, elsewhere := serve(t, locks, Options{Refresh: leastRefresh}), serve(t, other, Options{Refresh: leastRefresh})
	if section := sharedIn(t, serve(t, locks, Options{})); section != "" {
		t.Errorf("no one shares: %s", section)
	}
	end, finish := context.WithCancel(context.Background())
	share(t, request("GET /reports/{id}", "req-1"), locks, "report:<11>", 4, 1, end.Done(), finish)
	share(t, request("GET /reports/{id}", "req-2"), other, "report:<11>", 3, 0, end.Done(), finish)

	for url, want := range map[string][]string{
		base:                   {"report:&lt;11&gt;", `<td class="c">runs here</td>`, "GET /reports/{id}", "req-1", `<td class="n w">3</td>`},
		elsewhere:              {"report:&lt;11&gt;", `<td class="c">waits for another run</td>`, "req-2", `<td class="n w">2</td>`},
		base + "?q=REQ-1":      {"report:&lt;11&gt;"},
		base + "?q=order":      nil,
		elsewhere + "?q=req-1": nil,
		serve(t, locks, Options{Prefix: "app:report:"}): {"runs here"},
		serve(t, locks, Options{Prefix: "report:"}):     nil,
	} {
		section := sharedIn(t, url)
		if want == nil && section != "" {
			t.Errorf("%s: %s", url, section)
		}
		for _, text := range want {
			if !strings.Contains(section, text) {
				t.Errorf("%s lacks %s: %s", url, text, section)
			}
		}
	}
	finish()
	for late := time.Now().Add(20 * time.Second); sharedIn(t, base) != ""; time.Sleep(leastRefresh) {
		if time.Now().After(late) {
			t.Fatal("a run that has ended is still shown")
		}
	}
}

// The run that most callers wait for comes first. A run whose caller holds nothing and waits for
// nothing in core may have any name in Redis, so a page with a prefix leaves it out.
func TestSharedRuns(t *testing.T) {
	t.Parallel()
	runs := []coalesce.Run{{Key: "a", Waiting: 1}, {Key: "b"}, {Key: "c", Waiting: 9}, {Key: "d", Waiting: 1}}
	holds := []core.Hold{{Name: "a", Kind: "once", Held: time.Second}, {Name: "b", Kind: "lock", Held: time.Hour}}
	waits := []core.Wait{
		{Name: "a", Kind: "once", Waited: time.Hour}, // of another guard
		{Name: "d", Kind: "once", Waited: time.Minute, Annotation: core.Annotation{Route: "GET /d"}},
	}
	here := sharedRun{Run: runs[0], State: runsHere, For: time.Second}
	waiting := sharedRun{Run: runs[3], State: runsOther, For: time.Minute, Annotation: core.Annotation{Route: "GET /d"}}
	for all, want := range map[bool][]sharedRun{
		true:  {{Run: runs[2], State: asksServer}, here, waiting, {Run: runs[1], State: asksServer}},
		false: {here, waiting},
	} {
		if got := sharedRuns(runs, holds, waits, all); !reflect.DeepEqual(got, want) {
			t.Errorf("all %v: %+v, want %+v", all, got, want)
		}
	}
}

// A reader sees a run come and go without touching the page, and reads it on a phone.
func TestHandler_SharedRunsInABrowser(t *testing.T) {
	t.Parallel()
	locks := newClient(t, redistest.Start(t).Client(t), "web-1", annotated)
	page := browser.Open(t, serve(t, locks, Options{Refresh: leastRefresh}))
	page.View(browser.View{Width: 400, Height: 900, Phone: true})
	page.Await(`document.getElementById("state").textContent === "live" && document.getElementById("runs") === null`)
	end, finish := context.WithCancel(context.Background())
	share(t, request("GET /reports/{id}", "01J9Z7QK3T"), locks, "reqlock:coalesce:"+strings.Repeat("0123456789abcdef", 4), 6, 1, end.Done(), finish)
	page.Await(`(() => {
		const cells = document.querySelector("#runs tbody tr")?.cells
		return cells && cells[1].innerText === "runs here" && cells[2].innerText.includes("01J9Z7QK3T") && cells[4].innerText === "5"
	})()`)
	picture(t, page, "inspect-shared", browser.View{Width: 400, Height: 900, Phone: true})
	var wide, labeled bool
	page.Eval(`document.documentElement.scrollWidth > 400`, &wide)
	page.Eval(`[...document.querySelectorAll("#runs td")].every(cell => getComputedStyle(cell, "::before").content.length > 2)`, &labeled)
	if wide || !labeled {
		t.Errorf("on a phone: it scrolls sideways %v, each cell says what it is %v", wide, labeled)
	}
	finish()
	page.Await(`document.getElementById("runs") === null`)
}
