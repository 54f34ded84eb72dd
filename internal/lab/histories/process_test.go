package histories

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/reqlock/reqlock/core"
)

// siteVariable makes the test binary a process of a round.
const siteVariable = "REQLOCK_HISTORIES_SITE"

// runProcess takes locks until in ends. It writes its calls to out, and returns when its clients
// are idle.
func runProcess(text string, in io.Reader, out io.Writer) error {
	var site Site
	if err := json.Unmarshal([]byte(text), &site); err != nil {
		return err
	}
	c, err := site.open(quiet)
	if err != nil {
		return err
	}
	p := &process{site: site, clients: c, out: out}
	p.handlers = p.pays()
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	var callers sync.WaitGroup
	for i := range site.Callers {
		callers.Go(func() {
			c := &caller{process: p, id: i, random: rand.New(rand.NewPCG(site.Seed, uint64(site.Process*1000+i)))}
			for ctx.Err() == nil {
				c.visit(ctx)
			}
		})
	}
	_, _ = io.Copy(io.Discard, in) // until the test closes or ends
	stop()
	callers.Wait()
	for end := time.Now().Add(4 * hidden); !c.idle(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			return fmt.Errorf("a client is not idle %v after the last release: %+v", 4*hidden, c.locks[0].Stats())
		}
	}
	closing, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return errors.Join(c.close(closing), p.err)
}

type process struct {
	site     Site
	clients  *clients
	handlers map[[2]bool]http.Handler

	mu  sync.Mutex
	out io.Writer
	err error
}

// A line is what a process reports: a call, or a step of an idempotent request.
type line struct {
	*Call
	Run *Run `json:",omitempty"`
}

// write reports with a single write, so that a killed process leaves whole lines.
func (p *process) write(l line) {
	if l.Call != nil {
		l.Call.Process = p.site.Process
	}
	line, err := json.Marshal(l)
	p.mu.Lock()
	defer p.mu.Unlock()
	if err == nil {
		_, err = p.out.Write(append(line, '\n'))
	}
	p.err = errors.Join(p.err, err)
}

// fail makes the process fail at its end.
func (p *process) fail(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.err = errors.Join(p.err, err)
}

func (p *process) record(c Call) { p.write(line{Call: &c}) }

// A caller takes one lock after another.
type caller struct {
	*process
	id     int
	random *rand.Rand
	n      int
}

// between returns a random duration.
func (c *caller) between(least, most time.Duration) time.Duration {
	return least + time.Duration(c.random.Int64N(int64(most-least)))
}

// chance returns true in n percent of calls.
func (c *caller) chance(percent int) bool { return c.random.IntN(100) < percent }

// visit takes one lock and releases it.
func (c *caller) visit(ctx context.Context) {
	n := c.site.Names[c.random.IntN(len(c.site.Names))]
	switch n.Kind {
	case "rerun", "refuse":
		c.request(ctx, n)
		return
	case "read":
		if c.chance(50) {
			n.Kind = "write"
		}
	case "semaphore":
		n.Takes = 1
		if c.chance(20) {
			n.Takes += c.random.IntN(n.Permits)
		}
	case "once": // a new one each second, because a record ends it
		n.Name = fmt.Sprintf("%s:%d", n.Name, now()/int64(time.Second))
	}
	opts := core.AcquireOptions{}
	if c.chance(60) {
		opts.WaitTime = c.between(time.Millisecond, longestWait)
	}
	if c.chance(30) {
		opts.LeaseTime = c.between(100*time.Millisecond, longestLease).Truncate(time.Millisecond)
	}
	if c.chance(10) { // the caller leaves early
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, c.between(time.Millisecond, 200*time.Millisecond))
		defer cancel()
	}
	call := Call{Name: n.Name, Kind: n.Kind, Lease: opts.LeaseTime, Wait: opts.WaitTime, Takes: n.Takes, Permits: n.Permits}
	switch {
	case n.Kind == "once":
		c.visitOnce(ctx, call, opts)
	case n.Kind == "guests" && c.chance(75):
		c.visitAsGuest(ctx, call, opts)
	default:
		c.enter(ctx, n, call, opts, 1)
	}
	time.Sleep(c.between(0, 5*time.Millisecond))
}

// enter takes a lock and releases it. In between it re-enters with the owner in ctx.
func (c *caller) enter(ctx context.Context, n Name, call Call, opts core.AcquireOptions, depth int) {
	c.begin(&call)
	lease, err := c.clients.locker(n).Acquire(ctx, opts)
	if !c.acquired(&call, lease, err) {
		return
	}
	if n.Kind == "guests" {
		if err := c.invite(call, lease); err != nil {
			c.fail(err)
		}
		time.Sleep(c.between(0, 100*time.Millisecond)) // The others need a moment to read the file.
	}
	valid := c.keep(lease)
	if valid > 0 && depth < 3 && n.Kind != "red" && n.Kind != "semaphore" && c.chance(15) {
		inner := call
		inner.Hold = ""
		// Detached, because lease.Context also ends with the lease.
		again, cancel := lease.Bind(context.WithoutCancel(ctx))
		c.enter(again, n, inner, opts, depth+1)
		cancel()
		if v := c.keep(lease); v > 0 {
			valid = v
		}
	}
	c.release(call, valid, lease.Release)
}

func (c *caller) visitOnce(ctx context.Context, call Call, opts core.AcquireOptions) {
	c.begin(&call)
	lease, found, err := c.clients.locks[0].Once(call.Name).Acquire(ctx, opts)
	if found != nil {
		call.What, call.End, call.Result, call.Record = Acquire, now(), Found, string(found)
		c.record(call)
		return
	}
	var plain *core.Lease
	if lease != nil {
		plain = lease.Lease
	}
	if !c.acquired(&call, plain, err) {
		return
	}
	valid := c.keep(plain)
	if !c.site.Unrecords && c.chance(20) {
		call.Record = "of " + call.Hold
		leaving := call
		leaving.What, leaving.Begin, leaving.Valid, leaving.Result = Leaving, now(), valid, ""
		c.record(leaving)
		c.release(call, valid, func(ctx context.Context) error {
			return lease.ReleaseWith(ctx, []byte(call.Record), time.Hour)
		})
		return
	}
	c.release(call, valid, lease.Release)
}

// begin records that an Acquire is about to be called.
func (c *caller) begin(call *Call) {
	c.n++
	call.Hold = fmt.Sprintf("%d.%d.%d", c.site.Process, c.id, c.n)
	if call.Owner == "" {
		call.Owner = call.Hold
	}
	call.What, call.Begin, call.Token = Began, now(), 0
	c.record(*call)
}

// acquired records the result of an Acquire, and reports whether it holds the lock.
func (c *caller) acquired(call *Call, lease *core.Lease, err error) bool {
	call.What, call.End, call.Result = Acquire, now(), Granted
	switch {
	case err == nil:
		call.Token, _ = lease.Token()
	case errors.Is(err, core.ErrParentLost):
		call.Result = ParentLost
	case errors.Is(err, core.ErrNotAcquired):
		call.Result = Refused
	default:
		call.Result, call.Err = Failed, err.Error()
	}
	c.record(*call)
	return err == nil
}

// keep works under a lock for a while, and returns the last moment at which it certainly held it.
func (c *caller) keep(lease *core.Lease) (valid int64) {
	work := c.between(0, 10*time.Millisecond)
	switch {
	case c.chance(3):
		work = c.between(0, 2*watchdog)
	case c.chance(15):
		work = c.between(0, 300*time.Millisecond)
	}
	for end := time.Now().Add(work); ; time.Sleep(time.Millisecond) {
		before := now()
		if lease.Err() != nil {
			return valid
		}
		valid = before
		if time.Now().After(end) {
			return valid
		}
	}
}

// release releases a lock and records it.
func (c *caller) release(call Call, valid int64, release func(context.Context) error) {
	call.What, call.Begin, call.Valid, call.Result, call.Err = Release, now(), valid, Released, ""
	err := release(context.Background())
	call.End = now()
	if err != nil {
		call.Result, call.Err = Failed, err.Error()
		if errors.Is(err, core.ErrLockLost) {
			call.Result = Lost
			call.Record = "" // it was not stored
		}
	}
	c.record(call)
}

// readLines reads what a process writes, until the process ends.
func readLines(in io.Reader, add func(line)) error {
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var l line
		if err := json.Unmarshal(lines.Bytes(), &l); err != nil {
			return fmt.Errorf("a process wrote %.200q: %w", lines.Text(), err)
		}
		add(l)
	}
	return lines.Err()
}

// serve runs a process if the environment asks for one, and reports whether it did.
func serve() (done bool, err error) {
	if site := os.Getenv(siteVariable); site != "" {
		return true, runProcess(site, os.Stdin, os.Stdout)
	}
	if addr := os.Getenv(serverVariable); addr != "" {
		return true, runServer(addr, os.Stdin, os.Stdout)
	}
	return false, nil
}
