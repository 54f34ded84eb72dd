package conformance

import (
	"io"
	"net/http"

	"github.com/reqlock/reqlock/guard"
	"github.com/reqlock/reqlock/internal/redistest"
	"github.com/reqlock/reqlock/keyfuncs"
)

// What FailOpen does to each refusal is in the table of refusals.go.
var failOpen = []scenario{
	{name: "FailOpen gives back the locks it has got", run: failOpenSeveral, setup: []func(*setup){proxied}},
	{name: "FailOpen inside another guard", run: failOpenNested, setup: []func(*setup){proxied}},
	{name: "without FailOpen the locks it has got are given back too", run: failClosedSeveral, setup: []func(*setup){proxied}},
}

func failsOpen(cfg *guard.Config) { cfg.FailOpen = true }

const outOfMemory = "-OOM command not allowed when used memory > 'maxmemory'.\r\n"

func failOpenSeveral(e *env) {
	s := e.serveOrders(func(w http.ResponseWriter, r *http.Request) {
		e.wantFree("reqlock:a")
		wantNoLease(e)(w, r)
		_, _ = io.WriteString(w, "done")
	}, keysAre("a", "b"), failsOpen)
	e.proxy.OnMatch(1, isScriptFor("reqlock:b"), redistest.ReplyWith(outOfMemory))
	s.get(order).want(e, 200, "done")
	if o := e.outcome(); !o.FailedOpen || o.Err == nil || o.Status != 0 || o.Held <= 0 {
		e.Errorf("observed %+v", o)
	}
}

func failClosedSeveral(e *env) {
	s := e.serveOrders(func(http.ResponseWriter, *http.Request) { e.Error("the handler runs") }, keysAre("a", "b"))
	e.proxy.OnMatch(1, isScriptFor("reqlock:b"), redistest.ReplyWith(outOfMemory))
	s.get(order).wantProblem(e, 503, "backend-unavailable", "1")
	e.wantFree("reqlock:a")
}

func failOpenNested(e *env) {
	inner := e.config(keyedBy(keyfuncs.Const("inner")), failsOpen)
	s := e.serve(Route{Pattern: orders, Guards: []guard.Config{e.config(), inner}, Handler: func(w http.ResponseWriter, r *http.Request) {
		e.wantHeld(lockName)
		wantNoLease(e)(w, r) // the outer guard's lock is not the inner handler's to give away
		e.wantHeld(lockName)
		_, _ = io.WriteString(w, "done")
	}})
	e.proxy.OnMatch(1, isScriptFor("reqlock:inner"), redistest.ReplyWith(outOfMemory))
	s.get(order).want(e, 200, "done")
	e.wantFree(lockName)
}
