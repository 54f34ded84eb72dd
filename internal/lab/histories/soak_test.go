package histories

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/reqlock/reqlock/internal/lab/redistest"
)

// These constants size the traffic.
const (
	servers = 2
	// requesters is how many run at a time.
	requesters = 24
	// ids is how many each route has.
	ids     = 12
	samples = 120
)

// TestSoak sends requests to two servers for as long as -dur, to routes of every mode. Some clients
// hang up. There are no faults, so no lock is lost, no warning is logged, each caller releases
// every lock that it acquired, and nothing grows.
func TestSoak(t *testing.T) {
	redisServer := redistest.Start(t)
	rdb := redisServer.Client(t)
	period := max(*length/samples, 250*time.Millisecond)
	var all []*soaked
	for i := range servers {
		all = append(all, startServer(t, fmt.Sprint("server ", i+1), redisServer.Addr(), period))
	}
	began := time.Now()
	watched := watchRedis(t, rdb, began, period)

	var traffic soakTraffic
	ctx, cancel := context.WithTimeout(t.Context(), *length)
	defer cancel()
	var clients sync.WaitGroup
	for i := range requesters {
		clients.Go(func() { traffic.run(t, ctx, "http://"+all[i%servers].addr, rand.New(rand.NewPCG(*seed, uint64(i)))) })
	}
	clients.Wait()
	for _, s := range all {
		s.stop(t)
	}
	charts := append(chartsOf(all, began), watched()...)
	dir := outputDir(t)
	for name, text := range map[string]string{"soak.svg": Draw(charts), "soak.csv": CSV(charts)} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Error(err)
		}
	}
	t.Logf("%d answers 200, %d refused, %d hung up; see %s", traffic.done.Load(), traffic.refused.Load(), traffic.left.Load(), filepath.Join(dir, "soak.svg"))

	balance(t, all, &traffic, rdb)
	flat(t, charts)
}

// balance compares the counts of all servers with each other and with those of Redis.
func balance(t *testing.T, all []*soaked, traffic *soakTraffic, rdb *redis.Client) {
	t.Helper()
	var sum Sample
	for _, s := range all {
		last := s.samples[len(s.samples)-1]
		for _, wrong := range last.Wrong {
			t.Errorf("%s: %s", s.name, wrong)
		}
		sum.Acquired += last.Acquired
		sum.Released += last.Released
		sum.Lost += last.Lost
		sum.RenewFailed += last.RenewFailed
		sum.Fenced += last.Fenced
		sum.FencedLeft += last.FencedLeft
		sum.Runs += last.Runs
		sum.Leases += last.Leases
		sum.Left += last.Left
	}
	t.Logf("%+v", sum)
	if sum.Lost != 0 || sum.RenewFailed != 0 {
		t.Errorf("%d locks lost, %d renewals failed", sum.Lost, sum.RenewFailed)
	}
	if sum.Acquired != sum.Released {
		t.Errorf("%d locks acquired, %d released", sum.Acquired, sum.Released)
	}
	// A client may leave just when its request gets its locks, of which it has two at most.
	if idle := sum.Acquired - sum.Leases; idle < 0 || idle > 2*sum.Left {
		t.Errorf("%d locks acquired, handlers ran under %d; %d clients left before", sum.Acquired, sum.Leases, sum.Left)
	}
	if n := traffic.done.Load(); n == 0 || traffic.refused.Load() == 0 || sum.Left == 0 {
		t.Errorf("%d requests done, %d refused, %d clients left: want some of each", n, traffic.refused.Load(), sum.Left)
	}
	// Redis counts its grants of fenced locks. If the caller left meanwhile, its lock is released.
	ctx := context.Background()
	var grants int64
	keys, err := rdb.Keys(ctx, "*").Result()
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range keys {
		switch {
		case strings.HasPrefix(key, "redisson_lock_token:"):
			n, err := rdb.Get(ctx, key).Int64()
			if err != nil {
				t.Fatal(err)
			}
			grants += n
		case strings.HasPrefix(key, "soak:"):
		default:
			// A record of /once may still be there.
			if ttl := rdb.PTTL(ctx, key).Val(); ttl < 0 || ttl > 2*time.Second {
				t.Errorf("Redis still has %s, with TTL %v", key, ttl)
			}
		}
	}
	if extra := grants - sum.Fenced; extra < 0 || extra > sum.FencedLeft {
		t.Errorf("Redis granted %d fenced locks, callers got %d, and %d left early", grants, sum.Fenced, sum.FencedLeft)
	}
	inside, err := rdb.HVals(ctx, "soak:inside").Result()
	for _, n := range inside {
		if n != "0" {
			t.Errorf("handlers are still inside: %v (%v)", inside, err)
			break
		}
	}
}

// flat checks that the curves do not rise.
func flat(t *testing.T, charts []Chart) {
	t.Helper()
	for _, c := range charts {
		slack, limited := map[string]float64{heapChart: 4, goroutineChart: 100, keyChart: 100, connectionChart: 30}[c.Title]
		if !limited {
			continue
		}
		for _, curve := range c.Curves {
			if from, to := curve.Grown(); to > 1.2*from+slack {
				t.Errorf("%s of %s: %.1f in the second quarter, %.1f in the last", c.Title, curve.Label, from, to)
			}
		}
	}
}

const (
	requestChart    = "handlers run per second"
	heapChart       = "heap in use, MiB"
	goroutineChart  = "goroutines"
	keyChart        = "keys in Redis"
	connectionChart = "connections of Redis"
)

// A soaked is a server under the soak.
type soaked struct {
	name, addr string
	cmd        *exec.Cmd
	input      io.Closer
	stderr     bytes.Buffer
	// ended gets the error with which the reader ends.
	ended chan error

	// samples are written by the reader until it ends.
	samples []Sample
}

func startServer(t *testing.T, name, redisAddr string, period time.Duration) *soaked {
	t.Helper()
	binary, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	s := &soaked{name: name, cmd: exec.Command(binary), ended: make(chan error, 1)}
	s.cmd.Env = append(os.Environ(), serverVariable+"="+redisAddr, sampleVariable+"="+period.String())
	s.cmd.Stderr = &s.stderr
	if s.input, err = s.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.cmd.Process.Kill() }) // if the test fails early
	lines := json.NewDecoder(out)
	var first Sample
	if err := lines.Decode(&first); err != nil {
		t.Fatalf("%s did not start: %v\n%s", name, err, &s.stderr)
	}
	s.addr = first.Addr
	go func() {
		for {
			var next Sample
			if err := lines.Decode(&next); err != nil {
				s.ended <- err
				return
			}
			s.samples = append(s.samples, next)
		}
	}()
	return s
}

// stop ends a server, which must be idle by then.
func (s *soaked) stop(t *testing.T) {
	t.Helper()
	_ = s.input.Close()
	select {
	case err := <-s.ended:
		if err != io.EOF {
			t.Errorf("%s: %v", s.name, err)
		}
	case <-time.After(2 * time.Minute):
		_ = s.cmd.Process.Kill()
		t.Errorf("%s did not end: %v", s.name, <-s.ended)
	}
	if err := s.cmd.Wait(); err != nil {
		t.Fatalf("%s failed: %v\n%s", s.name, err, &s.stderr)
	}
}

func chartsOf(all []*soaked, began time.Time) []Chart {
	runs, heap, goroutines := Chart{Title: requestChart}, Chart{Title: heapChart}, Chart{Title: goroutineChart}
	for _, s := range all {
		rate, used, running := Curve{Label: s.name}, Curve{Label: s.name}, Curve{Label: s.name}
		at, n := began, int64(0)
		for _, sample := range s.samples[:len(s.samples)-1] { // the last one is idle
			since := sample.At.Sub(began)
			used.Times, used.Values = append(used.Times, since), append(used.Values, float64(sample.Heap)/(1<<20))
			running.Values = append(running.Values, float64(sample.Goroutines))
			rate.Values = append(rate.Values, float64(sample.Runs-n)/sample.At.Sub(at).Seconds())
			at, n = sample.At, sample.Runs
		}
		rate.Times, running.Times = used.Times, used.Times
		runs.Curves, heap.Curves, goroutines.Curves = append(runs.Curves, rate), append(heap.Curves, used), append(goroutines.Curves, running)
	}
	return []Chart{runs, heap, goroutines}
}

// watchRedis counts keys and connections until the returned function is called.
func watchRedis(t *testing.T, rdb *redis.Client, began time.Time, period time.Duration) func() []Chart {
	keys, connections := Curve{Label: "keys"}, Curve{Label: "connections"}
	ctx, cancel := context.WithCancel(t.Context())
	var watching sync.WaitGroup
	watching.Go(func() {
		for {
			select {
			case <-ctx.Done():
				return
			case <-time.After(period):
			}
			n, err := rdb.DBSize(ctx).Result()
			var info string
			if err == nil {
				info, err = rdb.Info(ctx, "clients").Result()
			}
			if err != nil {
				if ctx.Err() == nil {
					t.Errorf("Redis did not answer the test: %v", err)
				}
				return
			}
			_, text, _ := strings.Cut(info, "connected_clients:")
			clients, err := strconv.Atoi(strings.TrimSpace(strings.SplitN(text, "\n", 2)[0]))
			if err != nil {
				t.Errorf("INFO clients: %v", err)
				return
			}
			since := time.Since(began)
			keys.Times, keys.Values = append(keys.Times, since), append(keys.Values, float64(n))
			connections.Values = append(connections.Values, float64(clients))
		}
	})
	return func() []Chart {
		cancel()
		watching.Wait()
		connections.Times = keys.Times
		return []Chart{{keyChart, []Curve{keys}}, {connectionChart, []Curve{connections}}}
	}
}

// soakTraffic counts the answers that clients got.
type soakTraffic struct{ done, refused, left atomic.Int64 }

// run sends one request after another.
func (s *soakTraffic) run(t *testing.T, ctx context.Context, base string, random *rand.Rand) {
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport, Timeout: time.Minute}
	for n := 0; ctx.Err() == nil; n++ {
		s.send(t, ctx, client, base, random)
	}
}

func (s *soakTraffic) send(t *testing.T, ctx context.Context, client *http.Client, base string, random *rand.Rand) {
	hangs := random.IntN(5) == 0
	if hangs {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Duration(random.Int64N(int64(20*time.Millisecond))))
		defer cancel()
	}
	method, path, header := http.MethodGet, "/once", ""
	if i := random.IntN(len(soakRoutes) + 1); i < len(soakRoutes) {
		prefix := "/wait/"
		if random.IntN(3) == 0 {
			prefix = "/at-once/"
		}
		path = fmt.Sprint(prefix, soakRoutes[i].path, "/", random.IntN(ids))
		if random.IntN(2) == 0 {
			method = http.MethodPost
		}
	} else {
		method, header = http.MethodPost, strconv.Itoa(random.IntN(ids))
	}
	r, err := http.NewRequestWithContext(ctx, method, base+path, nil)
	if err != nil {
		t.Error(err)
		return
	}
	if header != "" {
		r.Header.Set("Idempotency-Key", header)
	}
	response, err := client.Do(r)
	if err == nil {
		_, err = io.Copy(io.Discard, response.Body)
		_ = response.Body.Close()
	}
	switch {
	case err != nil && ctx.Err() != nil && (errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)):
		s.left.Add(1)
	case err != nil:
		t.Errorf("%s %s: %v", method, path, err)
	case response.StatusCode == http.StatusOK:
		s.done.Add(1)
	case response.StatusCode == http.StatusConflict:
		s.refused.Add(1)
	default:
		t.Errorf("%s %s: status %d", method, path, response.StatusCode)
	}
}
