package adaptertest

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/guard"
	"github.com/reqlock/reqlock/internal/lab/redistest"
	"github.com/reqlock/reqlock/keyfuncs"
)

var processes = []scenario{
	{name: "two server processes, requests wait", run: processesWait},
	{name: "two server processes, requests do not wait", run: processesAtOnce},
}

// With these variables, [Main] runs a server process of one adapter.
const (
	redisVariable   = "REQLOCK_CONFORMANCE_REDIS"
	adapterVariable = "REQLOCK_CONFORMANCE_ADAPTER"
)

// serverProcess serves the adapter's routes until its input ends. It writes its address to its
// output, and returns an error if anything is left at the end.
func serverProcess(a Adapter, redisAddr string, input io.Reader, output io.Writer) error {
	rdb := redis.NewClient(&redis.Options{Addr: redisAddr})
	defer rdb.Close()
	locks, err := core.New(rdb, core.Options{})
	if err != nil {
		return err
	}
	handler := countingHandler(rdb)
	once, err := processRoutes(rdb)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	stop := a.serve(Server{Listener: listener, ErrorLog: log.New(os.Stderr, "", 0)}, locks, append(once,
		Route{Pattern: "/wait/{id}", Guards: []guard.Config{{Key: keyfuncs.PathValue("id"), WaitTime: 3 * patience}}, Handler: handler},
		Route{Pattern: "/at-once/{id}", Guards: []guard.Config{{Key: keyfuncs.PathValue("id")}}, Handler: handler},
	)...)
	fmt.Fprintln(output, listener.Addr())

	_, _ = io.Copy(io.Discard, input)
	ctx, cancel := context.WithTimeout(background, patience)
	defer cancel()
	if err := stop(ctx); err != nil {
		return fmt.Errorf("shutdown: %w", err)
	}
	if !within(patience, func() bool { return locks.Stats() == core.Stats{} }) {
		return fmt.Errorf("the lock client is not idle: %+v", locks.Stats())
	}
	if err := locks.Close(ctx); err != nil {
		return err
	}
	_ = rdb.Close()
	return redistest.Leaks(ignored(a)...)
}

// The Redis keys that the handlers of all processes share.
const (
	insideKey = "test:inside"
	totalKey  = "test:total"
)

// countingHandler answers 500 if another handler is inside, in any process. It counts runs without
// atomic commands, so that two at a time would miss one.
func countingHandler(rdb *redis.Client) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		ctx := r.Context()
		inside, err := rdb.Incr(ctx, insideKey).Result()
		if err != nil || inside != 1 {
			http.Error(w, fmt.Sprintf("%d handlers are inside (%v)", inside, err), http.StatusInternalServerError)
			return
		}
		total, err := rdb.Get(ctx, totalKey).Int()
		if err != nil && err != redis.Nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		if err := rdb.Set(ctx, totalKey, total+1, 0).Err(); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		if inside, err = rdb.Decr(ctx, insideKey).Result(); err != nil || inside != 0 {
			http.Error(w, fmt.Sprintf("%d handlers are left inside (%v)", inside, err), http.StatusInternalServerError)
		}
	}
}

// A process is a server process.
type process struct {
	*os.Process
	url    string
	killed bool
}

// kill ends the process as a crash would.
func (p *process) kill(fx *fixture) {
	fx.Helper()
	p.killed = true
	if err := p.Kill(); err != nil {
		fx.Fatal(err)
	}
}

// startProcess runs a server process with its Redis at an address. It ends with the test, without
// an error unless it was killed.
func (fx *fixture) startProcess(redisAddr string, environment ...string) *process {
	fx.Helper()
	binary, err := os.Executable()
	if err != nil {
		fx.Fatal(err)
	}
	cmd := exec.Command(binary)
	cmd.Env = append(append(os.Environ(), redisVariable+"="+redisAddr, adapterVariable+"="+fx.adapter.Name), environment...)
	errors := &testLog{}
	cmd.Stderr = errors
	input, err := cmd.StdinPipe()
	if err != nil {
		fx.Fatal(err)
	}
	output, err := cmd.StdoutPipe()
	if err != nil {
		fx.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		fx.Fatal(err)
	}
	p := &process{Process: cmd.Process}
	fx.ends = append(fx.ends, func() {
		_ = input.Close()
		kill := time.AfterFunc(3*patience, func() { _ = cmd.Process.Kill() })
		defer kill.Stop()
		if err := cmd.Wait(); err != nil && !p.killed {
			fx.Errorf("a server process failed: %v\n%s", err, errors.text())
		}
	})
	addr, err := bufio.NewReader(output).ReadString('\n')
	if err != nil {
		fx.Fatalf("a server process did not start: %v\n%s", err, errors.text())
	}
	p.url = "http://" + strings.TrimSpace(addr)
	return p
}

// flood sends n requests at the same time, half to each of two processes, and counts the statuses.
func (fx *fixture) flood(path string, n int) map[int]int {
	fx.Helper()
	servers := []*process{fx.startProcess(fx.redis.Addr()), fx.startProcess(fx.redis.Addr())}
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: n}, Timeout: 3 * patience}
	defer client.CloseIdleConnections()
	results := make(chan answer, n)
	for i := range n {
		go func() {
			r, err := http.NewRequestWithContext(fx.Context(), http.MethodPost, servers[i%len(servers)].url+path, nil)
			if err != nil {
				results <- answer{err: err}
				return
			}
			results <- (&testServer{fx: fx, client: client}).send(r)
		}()
	}
	statuses := make(map[int]int)
	for range n {
		a := mustReceive(fx, "all requests are answered", results)
		if a.err != nil || a.status != 200 && a.status != 409 {
			fx.Errorf("answer %d %s (%v)", a.status, a.body, a.err)
		}
		statuses[a.status]++
	}
	if total, err := fx.rdb.Get(fx.Context(), totalKey).Int(); err != nil || total != statuses[200] {
		fx.Errorf("%d handlers ended, the counter is %d (%v)", statuses[200], total, err)
	}
	fx.ends = append(fx.ends, func() { fx.rdb.Del(background, insideKey, totalKey) })
	return statuses
}

const crowd = 200

func processesWait(fx *fixture) {
	if statuses := fx.flood("/wait/"+key, crowd); statuses[200] != crowd {
		fx.Errorf("answers %v, want 200 for all %d", statuses, crowd)
	}
}

func processesAtOnce(fx *fixture) {
	if statuses := fx.flood("/at-once/"+key, crowd); statuses[200] == 0 || statuses[409] == 0 {
		fx.Errorf("answers %v, want some of both 200 and 409", statuses)
	}
}
