package adaptertest

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/idempotency"
	"github.com/reqlock/reqlock/internal/lab/redistest"
)

// A configChange is a row of the table in docs/guides/idempotency-rules.md: the old version runs a
// request, and the new one gets its repeat.
type configChange struct {
	old, changed func(*fixture, *idempotency.Config)
	as           func(*http.Request) // changes both requests
	dies         bool                // makes the run of the old version end without a result
	others       []configChange      // other changes of the row
}

// RunChanges walks the table with two versions of a server.
func RunChanges(t *testing.T, a Adapter) {
	set := func(change func(*idempotency.Config)) func(*fixture, *idempotency.Config) {
		return func(_ *fixture, cfg *idempotency.Config) { change(cfg) }
	}
	nothing := set(func(*idempotency.Config) {})
	sealed := func(fx *fixture, cfg *idempotency.Config) { cfg.Codec = idempotency.AEAD(fx.aead(1)) }
	refusing := set(refuses)
	changes := map[string]configChange{
		"`Scope` returns another text": {changed: set(func(cfg *idempotency.Config) {
			cfg.Scope = func(*http.Request) (string, error) { return "another", nil }
		})},
		"`Route`, or the pattern if it is not set": {changed: set(func(cfg *idempotency.Config) { cfg.Route = "another" })},
		"`Locks` has another Redis": {changed: func(fx *fixture, cfg *idempotency.Config) {
			cfg.Locks = fx.newLocks(redistest.Start(fx.T).Addr(), core.Options{})
		}},
		"`Methods` without the method": {changed: set(func(cfg *idempotency.Config) { cfg.Methods = []string{http.MethodPatch} })},
		"`KeyUUID` is set, the key is a UUID in capitals": {
			changed: set(func(cfg *idempotency.Config) { cfg.KeyUUID = true }),
			as:      with("Idempotency-Key", "8E03978E-40D5-43E8-BC93-6894A57F9324"),
		},
		"`KeyUUID` is set, the key is no UUID":                   {changed: set(func(cfg *idempotency.Config) { cfg.KeyUUID = true }), as: with("Idempotency-Key", "42")},
		"`Strict` is set, the key has no quotes":                 {changed: set(func(cfg *idempotency.Config) { cfg.Strict = true })},
		"`Header` has another name":                              {changed: set(func(cfg *idempotency.Config) { cfg.Header = "X-Key" })},
		"`Fingerprint` is another one":                           {changed: set(func(cfg *idempotency.Config) { cfg.Fingerprint = idempotency.FingerprintNone })},
		"`MaxRequestBody` is below the size of the body":         {changed: set(func(cfg *idempotency.Config) { cfg.MaxRequestBody = 3 })},
		"`Codec` is set":                                         {changed: sealed},
		"`Codec` is removed":                                     {old: sealed, changed: nothing},
		"`OnUnknown` from rerun to refuse, and the old run died": {changed: refusing, dies: true},
		"`OnUnknown` from refuse to rerun, and the old run died": {old: refusing, changed: nothing, dies: true},
		"`Store`, `TTL`, `ErrorTTL`, `MaxResponseBody`, `Headers`, `MaxKeys`, `WaitTime`, `LeaseTime`, `MaxHold`, `MaxWaiters`, `Optional`, `FailOpen` or `OnUnknown` is another one": {
			changed: set(func(cfg *idempotency.Config) {
				cfg.WaitTime, cfg.LeaseTime, cfg.MaxHold, cfg.MaxWaiters = time.Second, time.Minute, time.Second, 1
				cfg.Optional, cfg.FailOpen = true, true
			}),
			others: []configChange{
				{changed: set(func(cfg *idempotency.Config) { cfg.Store = func(int, http.Header) bool { return false } })},
				{changed: set(func(cfg *idempotency.Config) { cfg.TTL, cfg.ErrorTTL = time.Millisecond, time.Millisecond })},
				{changed: set(func(cfg *idempotency.Config) { cfg.MaxResponseBody = 1 })},
				{changed: set(func(cfg *idempotency.Config) { cfg.Headers = func(string) bool { return false } })},
				{changed: set(func(cfg *idempotency.Config) { cfg.MaxKeys = 1 })},
				{changed: refusing},
			},
		},
	}
	page, err := os.ReadFile("../../docs/guides/idempotency-rules.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := 0
	_, table, _ := strings.Cut(string(page), "\n## Changing the configuration\n")
	for line := range strings.Lines(table) {
		cells := strings.Split(line, " | ")
		change, known := changes[strings.TrimPrefix(cells[0], "| ")]
		switch {
		case !strings.HasPrefix(line, "| `"):
			continue
		case !known || len(cells) != 3:
			t.Errorf("no test walks the row %q", line)
			continue
		}
		rows++
		t.Run(strings.TrimPrefix(cells[0], "| "), func(t *testing.T) {
			t.Parallel()
			for i, c := range append([]configChange{change}, change.others...) {
				if got := c.walk(newFixture(t, a)); got != cells[1] {
					t.Errorf("change %d: the repeat gets %s; the page says %s", i, got, cells[1])
				}
			}
		})
	}
	if rows != len(changes) {
		t.Errorf("the page has %d rows, want %d", rows, len(changes))
	}
}

var problemType = regexp.MustCompile(`"urn:reqlock:problem:([a-z-]+)"`)

// walk returns what the repeat gets, in the words of the page.
func (c configChange) walk(fx *fixture) string {
	if c.old == nil {
		c.old = func(*fixture, *idempotency.Config) {}
	}
	if c.as == nil {
		c.as = func(*http.Request) {}
	}
	var runs atomic.Int64
	handle := func(w http.ResponseWriter, _ *http.Request) {
		if runs.Add(1) == 1 && c.dies {
			panic(http.ErrAbortHandler)
		}
		w.Header().Set("X-Mine", "kept")
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, "done")
	}
	version := func(change func(*fixture, *idempotency.Config)) *testServer {
		return fx.serveOnce(handle, func(cfg *idempotency.Config) { change(fx, cfg) })
	}
	before, after := version(c.old), version(c.changed)
	first := before.send(before.newRequestWithKey("paid", c.as))
	fx.outcome()
	again := after.postWithKey("paid", c.as)
	switch {
	case runs.Load() > 1 && again.status == 201:
		return "runs again"
	case again.status == 201 && again.body == first.body && again.header.Get("Idempotent-Replayed") == "true" && again.header.Get("X-Mine") == "kept":
		return "the answer"
	}
	if problem := problemType.FindStringSubmatch(again.body); problem != nil {
		return fmt.Sprintf("%d `%s`", again.status, problem[1])
	}
	return fmt.Sprintf("%d %q", again.status, again.body)
}
