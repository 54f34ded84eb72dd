package core

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/reqlock/reqlock/internal/lab/redistest"
)

// A flightCounter is a hook that counts round trips of scripts.
type flightCounter struct {
	flying    atomic.Int64
	pipelines atomic.Int64 // of more than one command, so far
	parcels   atomic.Int64 // commands for several locks, so far
}

func (*flightCounter) DialHook(next redis.DialHook) redis.DialHook { return next }

func (f *flightCounter) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if strings.HasPrefix(cmd.Name(), "eval") {
			f.flying.Add(1)
			defer f.flying.Add(-1)
			f.count(cmd)
		}
		return next(ctx, cmd)
	}
}

func (f *flightCounter) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if strings.HasPrefix(cmds[0].Name(), "eval") { // and not the way in which connections begin
			f.flying.Add(1)
			f.pipelines.Add(1)
			defer f.flying.Add(-1)
			f.count(cmds...)
		}
		return next(ctx, cmds)
	}
}

func (f *flightCounter) count(cmds ...redis.Cmder) {
	for _, cmd := range cmds {
		if keys, _ := cmd.Args()[2].(int); keys > 1 {
			f.parcels.Add(1)
		}
	}
}

// Calls that share a pipeline or a command share nothing else: each caller gets its own error,
// refusal or NOSCRIPT.
func TestBatch_EachCallerGetsItsOwnReply(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	other := fx.newLocks(t)
	rdb := fx.srv.Client(t)
	flights := new(flightCounter)
	rdb.AddHook(flights)
	c := fx.newLocksOn(t, rdb)

	const n = 200
	var theirs []*Lease
	var wrong []string
	for i := range n {
		switch i % 4 {
		case 1:
			theirs = append(theirs, mustAcquire(t, bg, other.Lock(fmt.Sprint("k", i)), AcquireOptions{}))
		case 2:
			wrong = append(wrong, fmt.Sprint("k", i))
			if err := fx.rdb.Set(bg, wrong[len(wrong)-1], "a string", 0).Err(); err != nil {
				t.Fatal(err)
			}
		}
	}
	for range 5 {
		if err := fx.rdb.ScriptFlush(bg).Err(); err != nil {
			t.Fatal(err)
		}
		inParallel(n, func(i int) {
			l := c.Lock(fmt.Sprint("k", i))
			lease, err := l.Acquire(bg, AcquireOptions{})
			switch i % 4 {
			case 1:
				if !errors.Is(err, ErrNotAcquired) {
					t.Errorf("held by another: %v", err)
				}
			case 2:
				if !errors.Is(err, ErrWrongKind) {
					t.Errorf("a string: %v", err)
				}
			default:
				if err != nil {
					t.Errorf("free: %v", err)
				} else if err := lease.Release(bg); err != nil {
					t.Errorf("Release: %v", err)
				}
			}
		})
	}
	if flights.pipelines.Load() == 0 || flights.parcels.Load() == 0 {
		t.Error("nothing was sent in pipelines, or nothing in one command: this test shows nothing")
	}
	for _, l := range theirs {
		mustRelease(t, l)
	}
	if err := fx.rdb.Del(bg, wrong...).Err(); err != nil {
		t.Fatal(err)
	}
}

// A connection that breaks or goes mute under a pipeline leaves the outcome of every call in it
// unknown. Each call is retried.
func TestBatch_DeadConnection(t *testing.T) {
	t.Parallel()
	for name, action := range map[string]redistest.Action{
		"cut before execution": redistest.CutBefore,
		"cut after execution":  redistest.CutAfter,
		"replies swallowed":    redistest.DropReply,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fx := newRedis(t)
			c, proxy := fx.newLossyLocks(t, commandTimeout(patience))
			for _, script := range []func([]string) bool{runsScript(acquireScript), runsScript(releaseScript), runsScript(manyScript)} {
				for _, n := range []int{1, 3, 10, 30} {
					proxy.OnMatch(n, script, action)
				}
			}
			inParallel(100, func(i int) {
				for range 3 {
					lease, err := c.Lock(fmt.Sprint("k", i)).Acquire(bg, AcquireOptions{LeaseTime: time.Hour})
					if err != nil {
						t.Errorf("Acquire: %v", err)
					} else if err := lease.Release(bg); err != nil {
						t.Errorf("Release: %v", err)
					}
				}
			})
			eventually(t, "the keys to go", func() bool { return fx.rdb.DBSize(bg).Val() == 0 })
			proxy.Cut() // or a silent connection keeps the end of the test
			proxy.Restore()
			// Do not wait for the second release of holds in doubt, which comes after
			// CommandTimeout.
			mustClose(t, c)
		})
	}
}

// A Redis that pauses delays its callers, and does no other harm.
func TestBatch_ClientPause(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	c := fx.newLocks(t)
	stop := make(chan struct{})
	var cycles atomic.Int64
	var wg sync.WaitGroup
	defer wg.Wait()
	defer close(stop)
	for i := range 50 {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				acquireAndRelease(t, c, fmt.Sprint("k", i))
				cycles.Add(1)
			}
		})
	}
	for range 3 {
		before := cycles.Load()
		eventually(t, "100 cycles", func() bool { return cycles.Load() > before+100 })
		fx.srv.PauseClients(t, 300*time.Millisecond)
	}
	before := cycles.Load()
	eventually(t, "100 cycles afterwards", func() bool { return cycles.Load() > before+100 })
}

// Callers leave while Redis does not answer. A call that was still queued is never sent. A call
// that was sent is cleaned up in the background.
func TestBatch_CallersLeave(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	fx.loadScripts(t)
	proxy := fx.srv.Proxy(t)
	rdb := proxy.ClientWith(t, readTimeout(2*patience))
	flights := new(flightCounter)
	rdb.AddHook(flights)
	c := fx.newLocksOn(t, rdb, commandTimeout(2*patience))
	queued := countCommands(proxy, func(args []string) bool {
		return slices.ContainsFunc(args, func(arg string) bool { return strings.HasPrefix(arg, "queued") })
	})

	held := proxy.OnEvery(runsScript(acquireScript, manyScript), redistest.HoldReply)
	ctx, hangUp := context.WithCancel(bg)
	var leaving []<-chan acquireResult
	for i, more := 0, true; more; i++ { // until the others must wait for what is in flight
		if i == 400 {
			t.Fatalf("%d round trips for %d callers, want them to end", flights.flying.Load(), i)
		}
		before := flights.flying.Load() // The caller may fly as soon as it is there.
		leaving = append(leaving, acquireAsync(ctx, c.Lock(fmt.Sprint("sent", i)), AcquireOptions{}))
		more = within(4*time.Second, func() bool { return flights.flying.Load() > before }) // a line may be dialed
	}
	for i := range 100 {
		leaving = append(leaving, acquireAsync(ctx, c.Lock(fmt.Sprint("queued", i)), AcquireOptions{}))
	}
	eventually(t, "all callers to wait for an answer", func() bool { return c.Stats().Waiting == len(leaving) })
	hangUp()
	for _, result := range leaving {
		if r := mustReceive(t, "the caller to be let go", result); !errors.Is(r.err, context.Canceled) {
			t.Errorf("Acquire: %v, %v", r.lease, r.err)
		}
	}
	if n := c.Stats().Cleanups; n != 0 {
		t.Errorf("%d clean-ups before anything was answered", n)
	}
	held.Remove()
	held.Release()
	eventually(t, "the client to be idle and Redis empty", func() bool { return c.Stats() == Stats{} && fx.rdb.DBSize(bg).Val() == 0 })
	if n := queued(); n != 0 {
		t.Errorf("%d commands for callers that had left before theirs was sent", n)
	}
}

// Renewals get through when no other call does.
func TestBatch_RenewalsPassBlockedCalls(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	fx.loadScripts(t)
	proxy := fx.srv.Proxy(t)
	rdb := proxy.ClientWith(t, readTimeout(2*patience))
	c := fx.newLocksOn(t, rdb, commandTimeout(2*patience), watchdogTimeout(6*time.Second))
	lease := mustAcquire(t, bg, c.Lock("a"), AcquireOptions{})
	held := proxy.OnEvery(runsScript(acquireScript, manyScript), redistest.HoldReply)
	ctx, hangUp := context.WithCancel(bg)
	var stuck []<-chan acquireResult
	eventually(t, "as many commands and pipelines as there may be to be stuck", func() bool {
		stuck = append(stuck, acquireAsync(ctx, c.Lock(fmt.Sprint("stuck", len(stuck))), AcquireOptions{}))
		pool := rdb.PoolStats()
		return pool.TotalConns-pool.IdleConns >= 8
	})
	for range 3 {
		mustBeRenewed(t, lease)
	}
	fx.wantCount(t, lease, 1)
	hangUp()
	for _, result := range stuck {
		mustReceive(t, "the caller to be let go", result)
	}
	held.Remove()
	held.Release()
	mustRelease(t, lease)
}

// Close under the load of hundreds of callers answers each of them, and leaves nothing here or in
// Redis.
func TestBatch_CloseUnderLoad(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	c := newUncheckedLocks(t, fx.srv.Client(t))
	var cycles atomic.Int64
	closing := make(chan struct{})
	go func() {
		defer close(closing)
		if !within(patience, func() bool { return cycles.Load() > 300 }) {
			t.Error("locks do not go round")
		}
		mustClose(t, c)
	}()
	inParallel(200, func(i int) {
		for {
			lease, err := c.Lock(fmt.Sprint("k", i)).Acquire(bg, AcquireOptions{})
			if errors.Is(err, ErrClosed) {
				return
			}
			if err != nil {
				t.Errorf("Acquire: %v", err)
				return
			}
			if err := lease.Release(bg); err != nil {
				t.Errorf("Release: %v", err)
			}
			cycles.Add(1)
		}
	})
	mustReceive(t, "the client to be closed", closing)
	if n := fx.rdb.DBSize(bg).Val(); n != 0 {
		t.Errorf("%d keys are left", n)
	}
}

// While one of three masters does not answer, locks on the other two work.
func TestBatch_OneOfThreeMastersIsFrozen(t *testing.T) {
	t.Parallel()
	servers, cluster := startCluster(t)
	c := newUncheckedLocks(t, cluster, commandTimeout(2*patience))
	inParallel(100, func(i int) { // the client gets to know the cluster, and its scripts
		acquireAndRelease(t, c, fmt.Sprint("k", i))
	})
	master := func(name string) string {
		node, err := cluster.MasterForKey(bg, name)
		if err != nil {
			t.Fatal(err)
		}
		return node.Options().Addr
	}
	frozen := servers[0]
	frozen.Freeze(t)
	t.Cleanup(func() { frozen.Thaw(t) })
	var stuck []<-chan acquireResult
	for i := range 200 {
		if name := fmt.Sprint("k", i); master(name) == frozen.Addr() {
			stuck = append(stuck, acquireAsync(bg, c.Lock(name), AcquireOptions{}))
		}
	}
	if len(stuck) == 0 {
		t.Fatal("no name is on the frozen node: this test shows nothing")
	}
	inParallel(200, func(i int) {
		if name := fmt.Sprint("k", i); master(name) != frozen.Addr() {
			for range 10 {
				acquireAndRelease(t, c, name)
			}
		}
	})
	for _, result := range stuck {
		select {
		case <-result:
			t.Error("a lock on the frozen node was answered before the others: this test shows nothing")
		default:
		}
	}
	frozen.Thaw(t)
	for _, result := range stuck {
		if r := mustReceive(t, "Redis to go on", result); r.err == nil {
			mustRelease(t, r.lease)
		}
	}
	mustClose(t, c)
}

// Locks in a slot work before, while and after it moves to another node.
func TestBatch_SlotMoves(t *testing.T) {
	t.Parallel()
	for name, acks := range map[string]int{"alone": 0, "with replicas": 1} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			servers, cluster := startCluster(t)
			const key = "{moving}"
			slot := int(cluster.ClusterKeySlot(bg, key).Val())
			node, err := cluster.MasterForKey(bg, key)
			if err != nil {
				t.Fatal(err)
			}
			from := slices.IndexFunc(servers, func(s *redistest.Server) bool { return s.Addr() == node.Options().Addr })
			source, target := servers[from], servers[(from+1)%3]
			ids := make(map[*redistest.Server]string)
			for _, s := range servers {
				ids[s] = s.Client(t).ClusterMyID(bg).Val()
			}
			setSlot := func(s *redistest.Server, args ...any) {
				t.Helper()
				if err := s.Client(t).Do(bg, append([]any{"CLUSTER", "SETSLOT", slot}, args...)...).Err(); err != nil {
					t.Fatal(err)
				}
			}
			if acks > 0 {
				startReplica(t, servers, source, key)
			}
			c := newUncheckedLocks(t, cluster, commandTimeout(2*patience), func(o *Options) {
				o.ReplicaAcks, o.ReplicaTimeout, o.WatchdogTimeout = acks, patience, 4*patience
			})
			all := func(what string) {
				t.Helper()
				inParallel(50, func(i int) {
					lease, err := c.Lock(fmt.Sprint(key, i)).Acquire(bg, AcquireOptions{})
					if err != nil {
						t.Errorf("%s: Acquire: %v", what, err)
					} else if err := lease.Release(bg); err != nil {
						t.Errorf("%s: Release: %v", what, err)
					}
				})
			}
			all("before")
			setSlot(target, "IMPORTING", ids[source])
			setSlot(source, "MIGRATING", ids[target])
			if acks > 0 {
				startReplica(t, servers, target, key)
			}
			all("on its way") // keys that are not there: ASK
			setSlot(target, "NODE", ids[target])
			setSlot(source, "NODE", ids[target])
			all("moved")
			all("known to have moved")
			mustClose(t, c)
			if n := target.Client(t).DBSize(bg).Val(); n != 0 {
				t.Errorf("%d keys are left", n)
			}
		})
	}
}
