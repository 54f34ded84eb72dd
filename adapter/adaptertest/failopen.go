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
func (fx *fixture) unavailable(name string) func(*guard.Config) {
	fx.Helper()
	fx.replyToScripts(outOfMemory)
	direct := fx.newOtherLocks()
	return func(cfg *guard.Config) {
		cfg.Locker = func(_ *http.Request, asked string) core.Locker {
			if asked == name {
				return fx.locks.Lock(asked)
			}
			return direct.Lock(asked)
		}
	}
}

func failsOpen(cfg *guard.Config) { cfg.FailOpen = true }

const outOfMemory = "-OOM command not allowed when used memory > 'maxmemory'.\r\n"

func failOpenSeveral(fx *fixture) {
	s := fx.serveOrders(func(w http.ResponseWriter, r *http.Request) {
		fx.wantFree("reqlock:a")
		wantNoLease(fx)(w, r)
		_, _ = io.WriteString(w, "done")
	}, keysAre("a", "b"), failsOpen, fx.unavailable("reqlock:b"))
	s.get(order).want(fx, 200, "done")
	if o := fx.outcome(); !o.FailedOpen || o.Err == nil || !o.Ran || o.Status != fx.knownStatus(200) || o.Held <= 0 {
		fx.Errorf("the outcome is %+v", o)
	}
}

func failClosedSeveral(fx *fixture) {
	s := fx.serveOrders(func(http.ResponseWriter, *http.Request) { fx.Error("the handler ran without the lock") }, keysAre("a", "b"), fx.unavailable("reqlock:b"))
	s.get(order).wantProblem(fx, 503, "backend-unavailable", "1")
	fx.wantFree("reqlock:a")
}

func failOpenNested(fx *fixture) {
	unavailable := fx.unavailable("reqlock:inner")
	inner := fx.config(keyedBy(keyfuncs.Const("inner")), failsOpen, unavailable)
	s := fx.serve(Route{Pattern: orders, Guards: []guard.Config{fx.config(unavailable), inner}, Handler: func(w http.ResponseWriter, r *http.Request) {
		fx.wantHeld(lockName)
		wantNoLease(fx)(w, r) // LeaseFrom must not return the lease of the outer guard
		fx.wantHeld(lockName)
		_, _ = io.WriteString(w, "done")
	}})
	s.get(order).want(fx, 200, "done")
	fx.wantFree(lockName)
}
