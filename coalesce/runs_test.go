package coalesce

import (
	"context"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/internal/lab/redistest"
)

// Runs has the runs of one client until they end. It adds up those who wait for one key: callers that
// wait for ever have a group of their own, whose leader does not wait in memory.
func TestRuns(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	locks, other := newLocks(t, s), newLocks(t, s)
	end := make(chan struct{})
	work := func(context.Context) (int, error) { <-end; return 7, nil }
	var all sync.WaitGroup
	for _, waitTime := range []time.Duration{0, 0, 0, core.WaitForever, core.WaitForever} {
		all.Go(func() { _, _, _ = Do(bg, locks, "report", Options{WaitTime: waitTime}, work) })
	}
	all.Go(func() { _, _, _ = Do(bg, locks, "index", Options{}, work) })
	all.Go(func() { _, _, _ = Do(bg, other, "report", Options{}, work) })
	want := map[*core.Client][]Run{locks: {{"index", 0}, {"report", 3}}, other: {{"report", 0}}}
	for client, runs := range want {
		eventually(t, "all share", func() bool { return slices.Equal(Runs(client), runs) })
	}
	close(end)
	all.Wait()
	for client := range want {
		if left := Runs(client); left != nil {
			t.Errorf("after the end: %v", left)
		}
	}
}

// Requests are there under the name of their lock.
func TestRuns_Requests(t *testing.T) {
	t.Parallel()
	locks := newLocks(t, redistest.Start(t))
	g, err := New(locks, Config{})
	if err != nil {
		t.Fatal(err)
	}
	end := make(chan struct{})
	var all sync.WaitGroup
	for range 3 {
		all.Go(func() {
			w := httptest.NewRecorder()
			g.Serve(w, httptest.NewRequest(http.MethodGet, "/report", nil), func(_ *http.Request, rec *Recorder) {
				<-end
				rec.Wrap(w).WriteHeader(http.StatusNoContent)
			})
		})
	}
	eventually(t, "two requests wait", func() bool {
		runs := Runs(locks)
		return len(runs) == 1 && runs[0].Waiting == 2 && strings.HasPrefix(runs[0].Key, "reqlock:coalesce:") && len(locks.Holds()) == 1
	})
	if hold := locks.Holds()[0]; hold.Name != Runs(locks)[0].Key || hold.Kind != "once" {
		t.Errorf("the hold %+v is not that of %v", hold, Runs(locks))
	}
	close(end)
	all.Wait()
}
