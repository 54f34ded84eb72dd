package histories

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/reqlock/reqlock/idempotency"
	httplock "github.com/reqlock/reqlock/middleware/nethttp"
)

// A runPlan is what the handler of one request does.
type runPlan struct {
	// run lacks its times.
	run  Run
	work time.Duration
	// stalls is true if the handler goes on when its context ends.
	stalls bool
	ending Ending
}

type planKey struct{}

// pays returns the idempotent handlers of a process, by OutcomeRefuse and by whether repeats wait.
func (p *process) pays() map[[2]bool]http.Handler {
	all := make(map[[2]bool]http.Handler)
	for _, refuses := range []bool{false, true} {
		for _, waits := range []bool{false, true} {
			cfg := idempotency.Config{Scope: idempotency.ScopeGlobal, Route: kindOf(refuses), Logger: quiet}
			if refuses {
				cfg.OnUnknown = idempotency.OutcomeRefuse
			}
			if waits {
				cfg.WaitTime = longestWait
			}
			all[[2]bool{refuses, waits}] = httplock.Idempotent(p.clients.locks[0], cfg)(http.HandlerFunc(p.pay))
		}
	}
	return all
}

// pay does what the plan of its request says, and records it.
func (p *process) pay(w http.ResponseWriter, r *http.Request) {
	plan := r.Context().Value(planKey{}).(runPlan)
	run := plan.run
	run.What, run.Begin = RunBegan, now()
	p.write(line{Run: &run})
	for end := time.Now().Add(plan.work); time.Now().Before(end); time.Sleep(time.Millisecond) {
		before := now()
		if r.Context().Err() == nil {
			run.Valid = before
		} else if !plan.stalls {
			break
		}
	}
	run.What, run.End, run.Ending = RunEnded, now(), plan.ending
	if run.Ending == Freed && r.Context().Err() != nil {
		run.Ending = Late
	}
	p.write(line{Run: &run})
	switch plan.ending {
	case Died:
		panic(http.ErrAbortHandler)
	case Freed:
		w.WriteHeader(http.StatusBadGateway)
	default:
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, run.answerOf())
	}
}

// request sends an idempotent request, often with a key that others use as well, and sometimes with
// another payload.
func (c *caller) request(ctx context.Context, n Name) {
	c.n++
	run := Run{
		Process: c.site.Process, Refuses: n.Kind == "refuse", Payload: "50",
		// There is a new key from time to time, because an answer ends one. Older keys come again after
		// the lease of a run that has lost its lock.
		Key: fmt.Sprintf("%s:%d", n.Name, now()/int64(2*time.Second)-c.random.Int64N(4)),
		ID:  fmt.Sprintf("%d.%d.%d", c.site.Process, c.id, c.n),
	}
	if c.chance(30) {
		run.Payload = "70"
	}
	plan := runPlan{run: run, work: c.between(0, 20*time.Millisecond), stalls: c.chance(50), ending: Answered}
	if c.chance(25) {
		plan.work = c.between(0, 2*watchdog)
	}
	switch {
	case c.chance(40):
		plan.ending = Freed
	case c.chance(30):
		plan.ending = Died
	}
	plan.run.Asked = now()
	r := httptest.NewRequest(http.MethodPost, "/pay", strings.NewReader(run.Payload))
	r.Header.Set("Idempotency-Key", run.Key)
	r = r.WithContext(context.WithValue(ctx, planKey{}, plan))
	w := httptest.NewRecorder()
	func() {
		defer func() { _ = recover() }() // as a server does
		c.handlers[[2]bool{run.Refuses, c.chance(50)}].ServeHTTP(w, r)
	}()
	if w.Header().Get("Idempotent-Replayed") != "" {
		run.What, run.Answer = Replayed, w.Body.String()
		c.write(line{Run: &run})
	}
}
