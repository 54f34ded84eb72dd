package adaptertest

import (
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/reqlock/reqlock/idempotency"
	"github.com/reqlock/reqlock/internal/lab/redistest"
)

var onceProcesses = []scenario{
	{name: "once: the process dies before the run", run: onceDiesBeforeRun, setup: []func(*setup){proxied}},
	{name: "once: the process dies during the run", run: onceDiesInRun, setup: []func(*setup){proxied}},
	{name: "once: the process dies after the run, before the store", run: onceDiesBeforeStore, setup: []func(*setup){proxied}},
	{name: "once: the process dies after the store, before the answer", run: onceDiesBeforeAnswer, setup: []func(*setup){proxied}},
	{name: "once: the process is paused for longer than its lease", run: onceStandsStill, setup: []func(*setup){proxied}},
	{name: "once: Redis dies between run and store", run: onceRedisDies, setup: []func(*setup){proxied}},
}

// leaseVariable has the LeaseTime of a server process, so that a test can wait until a lease
// expires. "": none.
const leaseVariable = "REQLOCK_CONFORMANCE_LEASE"

// shortLease is longer than a machine pauses.
const shortLease = 4 * time.Second

// A server process has a route for each UnknownOutcome.
const (
	rerun  = "/rerun"
	refuse = "/refuse"
)

// processRoutes are the idempotent routes of a server process.
func processRoutes(rdb *redis.Client) ([]Route, error) {
	lease, err := time.ParseDuration("0" + os.Getenv(leaseVariable))
	if err != nil {
		return nil, err
	}
	var routes []Route
	for pattern, unknown := range map[string]idempotency.UnknownOutcome{rerun: idempotency.OutcomeRerun, refuse: idempotency.OutcomeRefuse} {
		routes = append(routes, Route{Pattern: pattern, Handler: runsHandler(rdb), Once: []idempotency.Config{{
			Scope:     idempotency.ScopeGlobal,
			WaitTime:  3 * patience,
			LeaseTime: lease,
			OnUnknown: unknown,
		}}})
	}
	return routes, nil
}

// runsHandler counts the runs of a path in Redis and answers with their number. If the client asks
// for it, it stays inside until letOut.
func runsHandler(rdb *redis.Client) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		n, err := rdb.Incr(background, runsKey(r.URL.Path)).Result()
		if err == nil && r.Header.Get(stays) != "" {
			err = rdb.BLPop(background, 3*patience, leaveKey(r.URL.Path)).Err()
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.WriteHeader(http.StatusCreated)
		fmt.Fprintf(w, "run %d", n)
	}
}

const stays = "X-Stay"

func runsKey(path string) string  { return "test:runs:" + path }
func leaveKey(path string) string { return "test:leave:" + path }

// A pair is two server processes. The first reaches Redis through the proxy.
type pair struct {
	fx            *fixture
	process       *process // It serves first.
	first, second *testServer
}

// pair starts two processes. The leases of the first last for lease.
func (fx *fixture) pair(lease time.Duration) *pair {
	fx.Helper()
	p := &pair{fx: fx, process: fx.startProcess(fx.proxy.Addr(), leaseVariable+"="+lease.String())}
	p.first, p.second = fx.siteOf(p.process), fx.siteOf(fx.startProcess(fx.redis.Addr()))
	fx.ends = append(fx.ends, func() { // the processes have ended
		for _, pattern := range []string{"test:*", "*:record"} {
			for _, name := range fx.rdb.Keys(background, pattern).Val() {
				fx.rdb.Del(background, name)
			}
		}
	})
	for _, path := range []string{rerun, refuse} { // loads all scripts
		var other func(*http.Request)
		var first answer
		tries := 0
		// Even on a slow machine.
		fx.eventually("a lease of the first outlasts its start", func() bool {
			tries++
			other = with("Idempotency-Key", fmt.Sprint(p.process.Pid, "-", tries))
			first = p.first.postWithKey("", to(path), other)
			return first.status == 201
		})
		p.second.postWithKey("", to(path), other).wantReplay(fx, first)
		fx.rdb.Del(background, runsKey(path))
	}
	return p
}

// siteOf returns a client of a server process.
func (fx *fixture) siteOf(p *process) *testServer {
	client := &http.Client{Transport: &http.Transport{}, Timeout: 4 * patience}
	fx.ends = append(fx.ends, client.CloseIdleConnections)
	return &testServer{fx: fx, url: p.url, client: client}
}

func to(path string) func(*http.Request) {
	return func(r *http.Request) { r.URL.Path = path }
}

// These match the scripts of a run by their arguments, without knowing the marker or the record.
func takesKey(args []string) bool { return isOnce(args) && len(args) == 10 }
func stores(args []string) bool   { return isOnce(args) && len(args) == 13 }

func isOnce(args []string) bool { return isScript(args) && len(args) > 2 && args[2] == "2" }

// runs returns how many runs of a path have begun.
func (p *pair) runs(path string) int {
	n, _ := strconv.Atoi(p.fx.rdb.Get(background, runsKey(path)).Val())
	return n
}

func (p *pair) wantRuns(path string, n int) {
	p.fx.Helper()
	if got := p.runs(path); got != n {
		p.fx.Errorf("%s: the handler ran %d times, want %d", path, got, n)
	}
}

// letOut lets the handler of a path return.
func (p *pair) letOut(path string) { p.fx.rdb.LPush(background, leaveKey(path), "go") }

// wantUnknown repeats at the second process a request whose outcome is unknown after that many
// runs. It waits until the lease of the first process expires, unless that is over. A repeat that
// has waited for the first run does not run.
func (p *pair) wantUnknown(path string, begun int, over bool) {
	fx := p.fx
	fx.Helper()
	if path == refuse {
		for range 2 {
			p.second.postWithKey("", to(path)).wantProblem(fx, 409, "outcome-unknown", "")
		}
		p.wantRuns(path, begun)
		return
	}
	if !over {
		p.second.postWithKey("", to(path)).wantProblem(fx, 409, "run-failed", "1")
		p.wantRuns(path, begun)
	}
	a := p.second.postWithKey("", to(path))
	a.wantOwn(fx, 201, fmt.Sprint("run ", begun+1))
	p.second.postWithKey("", to(path)).wantReplay(fx, a)
	p.wantRuns(path, begun+1)
}

// crash kills the first process when a request reaches a step.
func (p *pair) crash(request *pendingRequest, step *redistest.Rule) {
	p.fx.Helper()
	mustReceive(p.fx, "the request has come that far", step.Hit())
	p.process.kill(p.fx)
	if a := mustReceive(p.fx, "the client is told", request.result); a.err == nil {
		p.fx.Errorf("a process that died answered %d %q", a.status, a.body)
	}
}

// eachRoute runs a test for each UnknownOutcome, with its own processes.
func (fx *fixture) eachRoute(test func(p *pair, path string)) {
	for _, path := range []string{rerun, refuse} {
		test(fx.pair(shortLease), path)
	}
}

func onceDiesBeforeRun(fx *fixture) {
	fx.eachRoute(func(p *pair, path string) {
		granted := fx.proxy.OnMatch(1, takesKey, redistest.HoldReply)
		p.crash(p.first.start(p.first.newRequestWithKey("", to(path))), granted)
		p.wantUnknown(path, 0, false)
	})
}

func onceDiesInRun(fx *fixture) {
	fx.eachRoute(func(p *pair, path string) {
		inside := fx.proxy.OnMatch(1, func(args []string) bool { return strings.EqualFold(args[0], "BLPOP") }, redistest.HoldRequest)
		p.crash(p.first.start(p.first.newRequestWithKey("", to(path), with(stays, "yes"))), inside)
		p.wantUnknown(path, 1, false)
	})
}

// A store that arrives after others went on changes nothing.
func onceDiesBeforeStore(fx *fixture) {
	fx.eachRoute(func(p *pair, path string) {
		storing := fx.proxy.OnMatch(1, stores, redistest.HoldRequest)
		p.crash(p.first.start(p.first.newRequestWithKey("", to(path))), storing)
		p.wantUnknown(path, 1, false)
		before := p.second.send(p.second.newRequestWithKey("", to(path)))
		storing.Release()
		mustReceive(fx, "the late store was executed", storing.Done())
		if after := p.second.postWithKey("", to(path)); after.status != before.status || after.body != before.body {
			fx.Errorf("answer %d %q, before the late store it was %d %q", after.status, after.body, before.status, before.body)
		}
	})
}

func onceDiesBeforeAnswer(fx *fixture) {
	for _, path := range []string{rerun, refuse} {
		p := fx.pair(time.Minute) // the store comes within it
		stored := fx.proxy.OnMatch(1, stores, redistest.HoldReply)
		p.crash(p.first.start(p.first.newRequestWithKey("", to(path))), stored)
		for range 2 {
			a := p.second.postWithKey("", to(path))
			a.want(fx, 201, "run 1")
			if a.header.Get("Idempotent-Replayed") != "true" {
				fx.Errorf("the answer is not a replay: %v", a.header)
			}
		}
		p.wantRuns(path, 1)
	}
}

// The second process goes on while the first is paused. When the first continues, its client gets
// its answer, and nothing is stored.
func onceStandsStill(fx *fixture) {
	fx.eachRoute(func(p *pair, path string) {
		first := p.first.start(p.first.newRequestWithKey("", to(path), with(stays, "yes")))
		fx.eventually("the handler runs", func() bool { return p.runs(path) == 1 })
		p.signal(redistest.StopSignal)
		defer p.signal(redistest.ContinueSignal) // a paused process does not end
		p.wantUnknown(path, 1, false)
		before := p.second.send(p.second.newRequestWithKey("", to(path)))
		p.signal(redistest.ContinueSignal)
		p.letOut(path)
		first.mustGetAnswer().wantOwn(fx, 201, "run 1")
		for _, s := range []*testServer{p.first, p.second} {
			if after := s.postWithKey("", to(path)); after.status != before.status || after.body != before.body {
				fx.Errorf("answer %d %q, before the first woke up it was %d %q", after.status, after.body, before.status, before.body)
			}
		}
	})
}

func (p *pair) signal(sig os.Signal) {
	p.fx.Helper()
	if err := p.process.Signal(sig); err != nil {
		p.fx.Fatal(err)
	}
}

// Redis dies after the run. After the lease it comes back with the data from during the run. The
// client has its answer; for repeats the outcome is unknown.
func onceRedisDies(fx *fixture) {
	fx.eachRoute(func(p *pair, path string) {
		storing := fx.proxy.OnMatch(1, stores, redistest.HoldRequest)
		first := p.first.start(p.first.newRequestWithKey("", to(path)))
		mustReceive(fx, "the handler ran", storing.Hit())
		began := time.Now()
		fx.redis.Save(fx.T)
		fx.redis.Kill(fx.T)
		first.mustGetAnswer().wantOwn(fx, 201, "run 1")
		fx.eventually("the lease is over", func() bool { return time.Since(began) > shortLease })
		fx.redis.Restart(fx.T)
		p.wantUnknown(path, 1, true)
		p.process.kill(fx) // its background retries must not trigger the rule of the next route
	})
}
