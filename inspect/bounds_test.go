package inspect

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/internal/lab/redistest"
)

// The page shows the first waiters and holders and counts the rest, so its size does not grow with
// them, nor with what a client has chosen: names, and the IDs of requests.
func TestHandler_PageIsBounded(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client(t)
	locks := newClient(t, rdb, "web-1", annotated)
	long := strings.Repeat("n", 60_000)
	hold(t, request("GET /"+long, long), locks.Lock(long))
	for range 40 {
		hold(t, request("GET /", long), locks.ReadWriteLock("order:read").Read())
	}
	hold(t, context.Background(), locks.Lock("order:42"))
	const waiters = 400
	ctx, leave := context.WithCancel(request("GET /"+long, long))
	var waiting sync.WaitGroup
	for range waiters {
		waiting.Go(func() {
			_, _ = locks.Lock("order:42").Acquire(ctx, core.AcquireOptions{WaitTime: time.Hour})
		})
	}
	t.Cleanup(waiting.Wait)
	t.Cleanup(leave)
	for len(locks.Waits()) < waiters {
		time.Sleep(time.Millisecond)
	}
	base := serve(t, locks, Options{AllowUnlock: true})
	_, text, _ := get(t, base)
	if len(text) > mostBytes+8<<10 { // what does not change is less than that
		t.Errorf("the page has %d KiB", len(text)>>10)
	}
	_, list, _ := strings.Cut(text, `id="waits"`)
	list, _, _ = strings.Cut(list, "</section>")
	if rows := strings.Count(list, `<th scope="row">`); rows < 10 || rows > mostRows/3 || !strings.Contains(list, fmt.Sprintf("and %d more", waiters-rows)) {
		t.Errorf("%d rows of waiters", rows)
	}
	for _, want := range []string{"and 30 more", "<dt>Waiting</dt><dd>400 here</dd>", `<td class="w" rowspan="1">400 here</td>`} {
		if !strings.Contains(text, want) {
			t.Errorf("the page lacks %s", want)
		}
	}
	// The name is too long for a link, and may be unlocked all the same.
	if status, _, _ := get(t, base+"unlock?name="+long); status != http.StatusOK || strings.Contains(text, "unlock?name=nnn") {
		t.Errorf("the long name: status %d", status)
	}
}

// locks.json says whether there are more locks.
func TestHandler_JSONSaysWhatIsLeftOut(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client(t)
	locks := newClient(t, rdb, "web-1")
	base := serve(t, locks, Options{Refresh: leastRefresh})
	read := func() (l Listing) {
		_, text, _ := get(t, base+"locks.json")
		if err := json.Unmarshal([]byte(text), &l); err != nil || l.Locks == nil {
			t.Fatal(text, err)
		}
		return l
	}
	if l := read(); len(l.Locks) > 0 || l.Truncated {
		t.Errorf("without locks: %+v", l)
	}
	pipe := rdb.Pipeline()
	for i := range defaultLimit + 1 {
		pipe.HSet(t.Context(), fmt.Sprint("order:", i), redissonOwner, 1)
	}
	if _, err := pipe.Exec(t.Context()); err != nil {
		t.Fatal(err)
	}
	time.Sleep(leastRefresh) // for a new view
	if l := read(); len(l.Locks) != defaultLimit || !l.Truncated {
		t.Errorf("%d locks, truncated %t", len(l.Locks), l.Truncated)
	}
}

// Without Redis, a process with many locks shows as many as with it.
func TestHandler_OwnLocksAreBounded(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	locks := newClient(t, srv.Client(t), "web-1", func(o *core.Options) { o.CommandTimeout = 2 * time.Second })
	var releases sync.WaitGroup
	defer releases.Wait()
	for i := range defaultLimit + 1 {
		lease, err := locks.Lock(fmt.Sprint("order:", i)).Acquire(context.Background(), core.AcquireOptions{LeaseTime: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		defer releases.Go(func() { _ = lease.Release(context.Background()) }) // Redis is gone
	}
	srv.Kill(t)
	_, text, _ := get(t, serve(t, locks, Options{}))
	if n := strings.Count(text, `<th scope="row"`); n != mostRows || !strings.Contains(text, fmt.Sprintf("and %d more locks", defaultLimit+1-mostRows)) {
		t.Errorf("%d locks", n)
	}
}

// HEAD /events answers with the header alone, and does not stream for ever.
func TestHandler_HeadOfEvents(t *testing.T) {
	t.Parallel()
	base := serve(t, newClient(t, redistest.Start(t).Client(t), "web-1"), Options{Refresh: leastRefresh})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodHead, base+"events", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK || resp.Header.Get("Content-Type") != "text/event-stream" {
		t.Errorf("%s, %v", resp.Status, resp.Header)
	}
	// The handler has returned: the next request of the connection is answered.
	h := newHandler(newClient(t, redistest.Start(t).Client(t), "web-2"), Options{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		h.ServeHTTP(discard{http.Header{}}, r)
	}()
	select {
	case <-done:
	case <-ctx.Done():
		t.Error("HEAD /events streams")
	}
}

// discard is a client that never leaves.
type discard struct{ header http.Header }

func (d discard) Header() http.Header         { return d.header }
func (d discard) Write(p []byte) (int, error) { return len(p), nil }
func (d discard) WriteHeader(int)             {}
