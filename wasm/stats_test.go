package wasm

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/reqlock/reqlock/guard"
)

// Each call has one outcome, which Stats counts and the observer sees.
func TestOutcomes(t *testing.T) {
	t.Parallel()
	var seen events
	p := start(t, "c", Config{MaxBody: 10, MaxInstances: 1, MaxQueue: 1, Observer: seen.observer()})
	failing := request("PUT", "/", "", "acme")
	failing.Body = io.NopCloser(iotest.ErrReader(errors.New("the client fails")))
	gone, leave := context.WithCancel(context.Background())
	leave()
	type step struct {
		r    *http.Request
		want Outcome
	}
	steps := []step{
		{request("GET", "/", "", "acme"), OutcomeLocked},
		{request("GET", "/health", ""), OutcomeSkipped},
		{request("GET", "/", ""), OutcomeDenied},
		{faulty("t"), OutcomeTrap},
		{faulty("q"), OutcomeInvalid},
		{faulty("n"), OutcomeNoKey},
		{request("PUT", "/", strings.Repeat("x", 11), "acme"), OutcomeBody},
		{failing, OutcomeBody},
	}
	var want []Outcome
	for _, s := range steps {
		err := p.Policy(s.r, new(guard.Policy))
		want = append(want, s.want)
		if failed := s.want != OutcomeLocked && s.want != OutcomeSkipped; failed != (err != nil) {
			t.Errorf("%s: %v", s.want, err)
		}
	}
	p.queue.slots <- struct{}{}
	_ = p.Policy(request("GET", "/", "", "acme").WithContext(gone), new(guard.Policy))
	p.queue.leave()
	closePlugin(t, p)
	_ = p.Policy(request("GET", "/", "", "acme"), new(guard.Policy))
	want = append(want, OutcomeGone, OutcomeClosed)

	if got := seen.outcomes(); !reflect.DeepEqual(got, want) {
		t.Errorf("outcomes %v, want %v", got, want)
	}
	counted := make(map[Outcome]uint64)
	for i, o := range want {
		counted[o]++
		e := seen.calls[i]
		if ran := i < len(steps); (e.Ran > 0) != ran || (e.Queued > 0) != (o == OutcomeGone) || !strings.HasPrefix(e.Plugin, "sha256:") {
			t.Errorf("%+v", e)
		}
		if known := fmt.Sprint(o); known == "unknown" {
			t.Errorf("outcome %d has no name", o)
		}
	}
	s := p.Stats()
	if !reflect.DeepEqual(s.Calls, counted) || s.Instances != 0 || s.Running != 0 || s.Queued != 0 || s.GuestTime <= 0 {
		t.Errorf("%+v, want calls %v", s, counted)
	}
	byName := p.Calls()
	for o := range outcomes {
		if n, ok := byName[o.String()]; !ok || n != counted[o] {
			t.Errorf("%d calls %s, want %d", n, o, counted[o])
		}
	}
}

func TestOutcome_Timeout(t *testing.T) {
	t.Parallel()
	p := start(t, "wat", Config{Timeout: 20 * time.Millisecond})
	err := p.Policy(faulty("l"), new(guard.Policy))
	if s := p.Stats(); s.Calls[OutcomeTimeout] != 1 || s.GuestTime < 20*time.Millisecond || !errors.Is(err, ErrTimeout) {
		t.Errorf("%+v, %v", s, err)
	}
}

// The observer sees new versions, good ones and bad ones.
func TestReload_Observed(t *testing.T) {
	t.Parallel()
	var seen events
	f, look := watchByHand(t, keyed(t, "a"))
	f.cfg.Observer = seen.observer()
	for _, code := range [][]byte{keyed(t, "b"), keyed(t, "c")[:60]} {
		f.replace(code)
		look() // notices
		look() // loads
	}
	if len(seen.reloads) != 2 {
		t.Fatalf("%+v", seen.reloads)
	}
	for i, e := range seen.reloads {
		if (e.Err != nil) != (i == 1) || e.Took <= 0 || e.Plugin != "policy.wasm" || len(e.Version) != len("sha256:")+12 {
			t.Errorf("%+v", e)
		}
	}
	if s := f.Stats(); s.Reloads != 1 || s.FailedReloads != 1 {
		t.Errorf("%+v", s)
	}
}
