package adaptertest

import (
	"io"
	"net/http"

	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/guard"
	"github.com/reqlock/reqlock/keyfuncs"
)

// The table in refusals.go covers FailOpen for each refusal.
var failOpen = []scenario{
	{name: "FailOpen releases the locks it acquired", run: failOpenSeveral, setup: []func(*setup){proxied}},
	{name: "FailOpen inside another guard", run: failOpenNested, setup: []func(*setup){proxied}},
	{name: "a refusal releases the locks it acquired", run: failClosedSeveral, setup: []func(*setup){proxied}},
}

// unavailable makes one lock of a guard fail as if Redis had no memory left.
func (e *env) unavailable(name string) func(*guard.Config) {
	e.Helper()
	e.replyToScripts(outOfMemory)
	direct := e.stranger()
	return func(cfg *guard.Config) {
		cfg.Locker = func(_ *http.Request, asked string) core.Locker {
			if asked == name {
				return e.locks.Lock(asked)
			}
			return direct.Lock(asked)
		}
	}
}

func failsOpen(cfg *guard.Config) { cfg.FailOpen = true }

const outOfMemory = "-OOM command not allowed when used memory > 'maxmemory'.\r\n"

func failOpenSeveral(e *env) {
	s := e.serveOrders(func(w http.ResponseWriter, r *http.Request) {
		e.wantFree("reqlock:a")
		wantNoLease(e)(w, r)
		_, _ = io.WriteString(w, "done")
	}, keysAre("a", "b"), failsOpen, e.unavailable("reqlock:b"))
	s.get(order).want(e, 200, "done")
	if o := e.outcome(); !o.FailedOpen || o.Err == nil || !o.Ran || o.Status != e.knownStatus(200) || o.Held <= 0 {
		e.Errorf("the outcome is %+v", o)
	}
}

func failClosedSeveral(e *env) {
	s := e.serveOrders(func(http.ResponseWriter, *http.Request) { e.Error("the handler ran without the lock") }, keysAre("a", "b"), e.unavailable("reqlock:b"))
	s.get(order).wantProblem(e, 503, "backend-unavailable", "1")
	e.wantFree("reqlock:a")
}

func failOpenNested(e *env) {
	unavailable := e.unavailable("reqlock:inner")
	inner := e.config(keyedBy(keyfuncs.Const("inner")), failsOpen, unavailable)
	s := e.serve(Route{Pattern: orders, Guards: []guard.Config{e.config(unavailable), inner}, Handler: func(w http.ResponseWriter, r *http.Request) {
		e.wantHeld(lockName)
		wantNoLease(e)(w, r) // LeaseFrom must not return the lease of the outer guard
		e.wantHeld(lockName)
		_, _ = io.WriteString(w, "done")
	}})
	s.get(order).want(e, 200, "done")
	e.wantFree(lockName)
}
