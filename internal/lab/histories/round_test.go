package histories

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/internal/lab/redistest"
)

// processes is how many processes of a round take locks at a time. callers is how many locks each
// of them takes at a time.
const (
	processes = 3
	callers   = 4
)

// traffic is how long processes take locks in a round.
const traffic = 5 * time.Second

// A stage runs the rounds of one topology. It has the servers and their faults.
type stage struct {
	topology string
	acks     int
	kinds    []string
	addrs    func(process int) []string // the addresses that a process connects to
	direct   func() []string            // the addresses that the test connects to
	faults   []faultKind
	eachKey  func(t *testing.T, look func(ctx context.Context, rdb *redis.Client, key string))
	records  bool
}

// A faultKind is a fault that can happen in a round.
type faultKind struct {
	what string
	loss Loss
	do   func(t *testing.T, r *round)
}

// In a round, processes take locks while faults happen.
type round struct {
	*stage
	t      *testing.T
	number int
	random *rand.Rand
	sites  []Site

	mu      sync.Mutex
	history History
	running []*exec.Cmd
	inputs  []io.Closer
	killed  []bool
	errors  []*bytes.Buffer
	readers sync.WaitGroup
	bad     error // bad output of a process
}

// TestHistories runs rounds until -dur is over, on all topologies at the same time.
func TestHistories(t *testing.T) {
	t.Logf("-seed %d", *seed)
	dir := outputDir(t)
	for name, open := range map[string]func(t *testing.T) *stage{
		"single server":       onSingle,
		"sentinel, with acks": func(t *testing.T) *stage { return onSentinel(t, 2) },
		"sentinel":            func(t *testing.T) *stage { return onSentinel(t, 0) },
		"cluster":             onCluster,
		"three masters":       onMasters,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := open(t)
			random := rand.New(rand.NewPCG(*seed, uint64(len(name))))
			total, happened := newTally(), map[string]int{}
			began := time.Now()
			for n := 0; n == 0 || time.Since(began) < *length && !t.Failed(); n++ {
				r := &round{stage: s, t: t, number: n, random: random, history: History{Watchdog: watchdog, Hidden: hidden, Prompt: prompt}}
				tally := r.run(dir)
				for _, f := range r.history.Faults {
					happened[f.What]++
				}
				total.add(tally)
				total.Operations += tally.Operations
			}
			t.Logf("%d calls ordered; grants %v, %d of them of guests from other processes, refusals checked %v and %d not, waiters checked %v with up to %v beside what was free, records found %v; faults %v",
				total.Operations, total.Grants, total.Guests, total.Refusals, total.Unchecked, total.Waiters, total.Beside.Round(time.Millisecond), total.Records, happened)
			for _, kind := range s.kinds {
				if total.Grants[kind] == 0 {
					t.Errorf("no %s lock was granted", kind)
				}
			}
		})
	}
}

func (t *Tally) add(other Tally) {
	for _, pair := range [][2]map[string]int{{t.Grants, other.Grants}, {t.Refusals, other.Refusals}, {t.Records, other.Records}, {t.Waiters, other.Waiters}} {
		for kind, n := range pair[1] {
			pair[0][kind] += n
		}
	}
	t.Beside = max(t.Beside, other.Beside)
	t.Unchecked += other.Unchecked
	t.Guests += other.Guests
}

// run runs a round and checks its history. It returns once all names are free.
func (r *round) run(dir string) Tally {
	var names []Name
	for _, kind := range r.kinds {
		if kind == "write" {
			continue // processes choose between read and write
		}
		for i := range 2 {
			n := Name{Kind: kind, Name: fmt.Sprintf("round%d:%s:%d", r.number, kind, i)}
			if kind == "semaphore" {
				n.Permits = 1 + 2*i
			}
			names = append(names, n)
		}
	}
	tokens := r.t.TempDir()
	for i := range processes {
		r.sites = append(r.sites, Site{
			Topology: r.topology, Addrs: r.addrs(i), Acks: r.acks, Names: names,
			Process: i, Seed: r.random.Uint64(), Callers: callers, Unrecords: !r.records, Tokens: tokens,
		})
		r.start(r.sites[i])
	}
	began := time.Now()
	// The first round has all kinds of faults, one after the other. Later rounds have none to
	// three.
	kinds := r.faults
	if r.number > 0 {
		kinds = nil
		for range r.random.IntN(4) {
			kinds = append(kinds, r.faults[r.random.IntN(len(r.faults))])
		}
	}
	for _, kind := range kinds {
		time.Sleep(time.Duration(r.random.Int64N(int64(traffic) / 5)))
		r.happen(kind)
	}
	time.Sleep(time.Until(began.Add(traffic)))
	r.stop()
	r.sweep(names)
	violations, tally := Check(&r.history)
	if len(violations) > 0 {
		r.report(violations, dir)
	}
	return tally
}

// happen runs a fault and records it.
func (r *round) happen(kind faultKind) {
	r.t.Helper()
	f := Fault{What: kind.what, Loss: kind.loss, Begin: now()}
	kind.do(r.t, r)
	f.End = now()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.history.Faults = append(r.history.Faults, f)
}

// start starts a process.
func (r *round) start(site Site) {
	t := r.t
	t.Helper()
	text, err := json.Marshal(site)
	if err != nil {
		t.Fatal(err)
	}
	binary, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd, stderr := exec.Command(binary), new(bytes.Buffer)
	cmd.Env = append(os.Environ(), siteVariable+"="+string(text))
	cmd.Stderr = stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout = write
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_ = write.Close()
	r.readers.Go(func() {
		defer read.Close()
		err := readLines(read, func(l line) {
			r.mu.Lock()
			defer r.mu.Unlock()
			if l.Run != nil {
				r.history.Runs = append(r.history.Runs, *l.Run)
			} else {
				r.history.Calls = append(r.history.Calls, *l.Call)
			}
		})
		if err != nil {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.bad = err
		}
	})
	r.running, r.inputs = append(r.running, cmd), append(r.inputs, in)
	r.killed, r.errors = append(r.killed, false), append(r.errors, stderr)
}

// stop ends the processes, which must finish their work first.
func (r *round) stop() {
	for _, in := range r.inputs {
		_ = in.Close() // it may have been killed
	}
	kill := time.AfterFunc(3*time.Minute, func() {
		for _, cmd := range r.running {
			_ = cmd.Process.Kill()
		}
	})
	defer kill.Stop()
	r.readers.Wait()
	for i, cmd := range r.running {
		if err := cmd.Wait(); err != nil && !r.killed[i] {
			r.t.Errorf("round %d: process %d failed: %v\n%s", r.number, i, err, r.errors[i])
		}
	}
	if r.bad != nil {
		r.t.Error(r.bad)
	}
}

// sweep takes each lock once, which must succeed, and looks for keys without a TTL.
func (r *round) sweep(names []Name) {
	t := r.t
	c, err := Site{Topology: r.topology, Addrs: r.direct()}.open(quiet)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), longestBlock)
	defer cancel()
	var all sync.WaitGroup
	for _, n := range names {
		if n.Kind == "once" || n.Kind == "rerun" || n.Kind == "refuse" {
			continue // a record may block the lock; its keys expire
		}
		if n.Kind == "read" {
			n.Kind = "write"
		}
		n.Takes = n.Permits // all of them
		all.Go(func() {
			for {
				lease, err := c.locker(n).Acquire(ctx, core.AcquireOptions{WaitTime: core.WaitForever})
				if err == nil {
					err = lease.Release(ctx)
				}
				switch {
				case err == nil:
					return
				case ctx.Err() != nil:
					t.Errorf("round %d: %s is not free %v after all processes have ended: %v", r.number, n.Name, longestBlock, err)
					return
				}
				// The test's clients find the new master late.
				time.Sleep(10 * time.Millisecond)
			}
		})
	}
	all.Wait()
	if err := c.close(ctx); err != nil {
		t.Errorf("round %d: Close: %v", r.number, err)
	}
	r.eachKey(t, func(ctx context.Context, rdb *redis.Client, key string) {
		// Counters of tokens never expire.
		if ttl, err := rdb.PTTL(ctx, key).Result(); err == nil && ttl == -1 && !strings.HasPrefix(key, "redisson_lock_token:") {
			t.Errorf("round %d: key %s never expires", r.number, key)
		}
	})
}

// report fails the test and writes the history and its picture.
func (r *round) report(violations []Violation, dir string) {
	for i, v := range violations {
		base := filepath.Join(dir, strings.Map(func(c rune) rune {
			if strings.ContainsRune("/: ,", c) {
				return '-'
			}
			return c
		}, fmt.Sprintf("%s-%s-%d", r.t.Name(), v.Name, i)))
		text, err := json.MarshalIndent(r.history, "", " ")
		if err == nil {
			err = os.WriteFile(base+".json", text, 0o644)
		}
		if err == nil && v.Picture != nil {
			err = v.Picture(base + ".html")
		}
		r.t.Errorf("round %d: %v\nsee %s.json and .html (%v); faults: %s", r.number, v, base, err, r.describeFaults())
	}
}

func (r *round) describeFaults() string {
	var all []string
	for _, f := range r.history.Faults {
		all = append(all, fmt.Sprintf("%s for %v", f.What, time.Duration(f.End-f.Begin).Round(time.Millisecond)))
	}
	return strings.Join(all, "; ")
}

// pause waits for a random time: usually short, sometimes longer than a lease.
func (r *round) pause() {
	most := 500 * time.Millisecond
	if r.random.IntN(4) == 0 {
		most = 2 * watchdog
	}
	time.Sleep(50*time.Millisecond + time.Duration(r.random.Int64N(int64(most))))
}

// pick returns a process that is alive.
func (r *round) pick() int {
	for {
		if i := r.random.IntN(len(r.running)); !r.killed[i] {
			return i
		}
	}
}

// These faults hit processes, in every topology.
var processFaults = []faultKind{
	{what: "a process is stopped", do: func(t *testing.T, r *round) {
		p := r.running[r.pick()].Process
		signal(t, p, redistest.StopSignal)
		r.pause()
		signal(t, p, redistest.ContinueSignal)
	}},
	{what: "a process is killed", do: func(t *testing.T, r *round) {
		i := r.pick()
		r.killed[i] = true
		signal(t, r.running[i].Process, os.Kill)
		next := r.sites[i%processes]
		next.Process, next.Seed = len(r.running), r.random.Uint64()
		r.start(next)
	}},
}

func signal(t *testing.T, p *os.Process, s os.Signal) {
	t.Helper()
	if err := p.Signal(s); err != nil {
		t.Fatal(err)
	}
}

// each scans all keys of some servers.
func each(servers func() []*redistest.Server) func(t *testing.T, look func(ctx context.Context, rdb *redis.Client, key string)) {
	return func(t *testing.T, look func(ctx context.Context, rdb *redis.Client, key string)) {
		t.Helper()
		ctx := context.Background()
		for _, s := range servers() {
			rdb := redis.NewClient(&redis.Options{Addr: s.Addr()})
			keys := rdb.Scan(ctx, 0, "", 1000).Iterator()
			for keys.Next(ctx) {
				look(ctx, rdb, keys.Val())
			}
			if err := keys.Err(); err != nil {
				t.Error(err)
			}
			_ = rdb.Close()
		}
	}
}

func addrs(servers []*redistest.Server) (all []string) {
	for _, s := range servers {
		all = append(all, s.Addr())
	}
	return all
}

var allKinds = []string{"lock", "fair", "fenced", "read", "write", "once", "semaphore", "guests", "rerun", "refuse"}

// durable makes a server confirm a write only once it survives a kill.
var durable = []string{"appendonly yes", "appendfsync always"}
