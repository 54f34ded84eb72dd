package core

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/reqlock/reqlock/internal/lab/redistest"
)

// replicaAcks asks for n acks and waits a short time for them.
func replicaAcks(n int) func(*Options) {
	return func(o *Options) {
		o.ReplicaAcks, o.ReplicaTimeout, o.CommandTimeout = n, 200*time.Millisecond, patience
	}
}

// patientAcks asks for one ack and waits long for it.
func patientAcks(o *Options) {
	o.ReplicaAcks, o.ReplicaTimeout, o.CommandTimeout, o.WatchdogTimeout = 1, patience, 2*patience, 4*patience
}

// replica starts a replica of the fixture's Redis.
func (fx *redisFixture) replica(t *testing.T) (*redistest.Server, *redis.Client) {
	t.Helper()
	srv := redistest.Start(t, "replicaof "+strings.Replace(fx.srv.Addr(), ":", " ", 1), "repl-diskless-sync-delay 0")
	if err := fx.rdb.ConfigSet(bg, "repl-diskless-sync-delay", "0").Err(); err != nil {
		t.Fatal(err)
	}
	fx.awaitReplica(t)
	return srv, srv.Client(t)
}

// awaitReplica waits until a replica acknowledges writes.
func (fx *redisFixture) awaitReplica(t *testing.T) {
	t.Helper()
	eventually(t, "a replica to listen", func() bool {
		pipe := fx.rdb.Pipeline()
		pipe.Set(bg, "up", 1, time.Minute)
		pipe.Del(bg, "up")
		acks := pipe.Do(bg, "WAIT", 1, 100)
		_, err := pipe.Exec(bg)
		n, _ := acks.Int()
		return err == nil && n == 1
	})
}

// slowClient waits longer for replies than patientAcks does.
func (fx *redisFixture) slowClient(t *testing.T) *redis.Client {
	return fx.srv.ClientWith(t, func(o *redis.Options) { o.ReadTimeout = 2 * patience })
}

// A waitSpy counts scripts that are not followed by a WAIT on their connection.
type waitSpy struct {
	waits  atomic.Int64
	missed atomic.Int64
}

func (*waitSpy) DialHook(next redis.DialHook) redis.DialHook { return next }

func (w *waitSpy) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		w.look([]redis.Cmder{cmd})
		return next(ctx, cmd)
	}
}

func (w *waitSpy) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		w.look(cmds)
		return next(ctx, cmds)
	}
}

func (w *waitSpy) look(cmds []redis.Cmder) {
	confirmed := cmds[len(cmds)-1].Name() == "wait"
	for i, cmd := range cmds {
		if cmd.Name() == "wait" {
			w.waits.Add(1)
			if i != len(cmds)-1 {
				w.missed.Add(1) // one for all
			}
		}
		writes := len(cmd.Args()) > 1 && (cmd.Args()[1] == acquireScript.SHA || cmd.Args()[1] == acquireScript.Source)
		if writes && !confirmed {
			w.missed.Add(1)
		}
	}
}

// What Acquire returns is on the replica. One WAIT on the connection of the scripts asks for all of
// them: on another connection it would prove nothing.
func TestReplicas_Confirm(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	_, replica := fx.replica(t)
	rdb := fx.slowClient(t)
	spy := new(waitSpy)
	rdb.AddHook(spy)
	c := fx.newLocksOn(t, rdb, patientAcks)
	const n = 100
	inParallel(n, func(i int) {
		for range 3 {
			lease, err := c.Lock(fmt.Sprint("k", i)).Acquire(bg, AcquireOptions{})
			if err != nil {
				t.Errorf("Acquire: %v", err)
				return
			}
			if there, err := replica.HExists(bg, lease.Name(), holdOf(lease).wire).Result(); !there || err != nil {
				t.Errorf("the replica does not have it (%v)", err)
			}
			if err := lease.Release(bg); err != nil {
				t.Errorf("Release: %v", err)
			}
		}
	})
	if spy.missed.Load() != 0 || spy.waits.Load() == 0 {
		t.Errorf("%d WAITs, missing after %d commands", spy.waits.Load(), spy.missed.Load())
	}
	if spy.waits.Load() > 2*n {
		t.Errorf("%d WAITs for %d acquires: they do not share", spy.waits.Load(), 3*n)
	}
}

// With too few acks every caller of the pipeline gets an error, and no lock stays.
func TestReplicas_TooFew(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		acks int
		stop func(*testing.T, *redistest.Server) // the replica
	}{
		"replica frozen":    {1, func(t *testing.T, s *redistest.Server) { s.Freeze(t) }},
		"replica gone":      {1, func(t *testing.T, s *redistest.Server) { s.Kill(t) }},
		"one is not enough": {2, func(*testing.T, *redistest.Server) {}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fx := newRedis(t)
			srv, _ := fx.replica(t)
			c := fx.newLocks(t, replicaAcks(tc.acks))
			tc.stop(t, srv)
			inParallel(50, func(i int) {
				lease, err := c.Lock(fmt.Sprint("k", i)).Acquire(bg, AcquireOptions{LeaseTime: time.Hour, WaitTime: WaitForever})
				if lease != nil || !errors.Is(err, ErrNotReplicated) || errors.Is(err, ErrNotAcquired) {
					t.Errorf("Acquire: %v, %v", lease, err)
				}
			})
			eventually(t, "what was granted to be released", func() bool { return fx.rdb.DBSize(bg).Val() == 0 })
			eventually(t, "the client to be idle", func() bool { return c.Stats() == Stats{} })
		})
	}
}

// When the replica is back, locks are granted again. The log says what is wrong, and when it is over.
func TestReplicas_ComeBack(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	srv, _ := fx.replica(t)
	var out lockedBuffer
	c := fx.newLocks(t, replicaAcks(1), logTo(&out))
	srv.Kill(t)
	wantErr(t, "Acquire", tryAcquire(c.Lock("a")), ErrNotReplicated)
	wantLines(t, &out, `cause="too few replicas confirm the locks" error="reqlock: not confirmed by enough replicas: 0 of 1 replicas`, 1)
	wantLines(t, &out, "lower core.Options.ReplicaAcks", 1)
	if all := c.Faults(); len(all) != 1 || all[0].Class != "too_few_acks" || !all[0].Ended.IsZero() {
		t.Errorf("faults %+v", all)
	}
	srv.Restart(t)
	fx.awaitReplica(t)
	mustRelease(t, eventuallyAcquire(t, c, "a", AcquireOptions{WaitTime: patience}))
	wantLines(t, &out, "locks are failing", 1)
	wantLines(t, &out, `locks work again" cause="too few replicas confirm the locks"`, 1)
}

// Waiters behind a grant that was not acknowledged are told together, not one after another.
func TestReplicas_WaitersAreTold(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	srv, _ := fx.replica(t)
	c := fx.newLocks(t, replicaAcks(1), pollInterval(100*time.Millisecond))
	other := fx.newLocks(t)
	theirs := mustAcquire(t, bg, other.Lock("a"), AcquireOptions{})
	var waiting []<-chan acquireResult
	for range 100 {
		waiting = append(waiting, acquireAsync(bg, c.Lock("a"), forever))
	}
	eventually(t, "all callers to wait", func() bool { return c.Stats().Waiting == len(waiting) })
	srv.Freeze(t)
	began := time.Now()
	mustRelease(t, theirs)
	for _, result := range waiting {
		wantErr(t, "Acquire", mustReceive(t, "the waiter to be told", result).err, ErrNotReplicated)
	}
	if took := time.Since(began); took > 100*200*time.Millisecond/2 {
		t.Errorf("it took %v: one after another", took)
	}
}

// A re-entry or extension counts when it is acknowledged. Until then all stays as it was. Releases
// need no ack.
func TestReplicas_ReentryAndExtension(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	srv, _ := fx.replica(t)
	c := fx.newLocks(t, replicaAcks(1))
	lease := eventuallyAcquire(t, c, "a", AcquireOptions{LeaseTime: time.Hour, WaitTime: patience})
	srv.Freeze(t)
	_, err := c.Lock("a").Acquire(lease.Context(), AcquireOptions{LeaseTime: 2 * time.Hour})
	wantErr(t, "re-entry", err, ErrNotReplicated)
	fx.eventuallyHoldCount(t, lease, 1)
	wantErr(t, "Extend", lease.Extend(bg, 3*time.Hour), ErrNotReplicated)
	if left := lease.Remaining(); left > time.Hour {
		t.Errorf("it has %v left, as if the replica had confirmed it", left)
	}
	if err := lease.Err(); err != nil {
		t.Errorf("the lease: %v", err)
	}
	mustRelease(t, lease)
	fx.wantFields(t, "a", nil)
}

// A renewal that is not acknowledged does not move the deadline: the holder stops when the replica
// would let others in.
func TestReplicas_Renewals(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	srv, _ := fx.replica(t)
	failed := make(chan error, 1000)
	rdb := fx.srv.Client(t)
	c := fx.newLocksOn(t, rdb, replicaAcks(1), watchdogTimeout(9*time.Second), func(o *Options) {
		o.Observer.RenewFailed = func(_ context.Context, e Event) { failed <- e.Err }
	})
	lease := eventuallyAcquire(t, c, "a", AcquireOptions{WaitTime: patience})
	deadline := lease.Remaining()
	eventually(t, "a renewal that the replica confirms", func() bool {
		left := lease.Remaining()
		longer := left > deadline
		deadline = left
		return longer
	})

	srv.Freeze(t)
	wantErr(t, "a renewal", mustReceive(t, "a renewal fails", failed), ErrNotReplicated)
	fx.wantCount(t, lease, 1) // Redis has renewed it
	mustReceive(t, "the lease to end", lease.Done())
	wantErr(t, "Err", lease.Err(), ErrLockLost)
	wantErr(t, "Context", context.Cause(lease.Context()), ErrLockLost)
}

// An ack of a second attempt proves nothing if the first one wrote the lock: the replica may not
// have it.
func TestReplicas_UnconfirmedEarlierTry(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	srv, _ := fx.replica(t)
	fx.loadScripts(t)
	proxy := fx.srv.Proxy(t)
	rdb := proxy.ClientWith(t, func(o *redis.Options) { o.ReadTimeout = 2 * patience })
	c := fx.newLocksOn(t, rdb, patientAcks)
	mustRelease(t, mustAcquire(t, bg, c.Lock("warm"), AcquireOptions{})) // a connection that has written, and has been confirmed
	srv.Freeze(t)
	proxy.OnMatch(1, runsScript(acquireScript), redistest.CutAfter)
	result := acquireAsync(bg, c.Lock("a"), AcquireOptions{LeaseTime: time.Hour})
	eventually(t, "Redis to grant it", func() bool { return len(fx.hash(t, "a")) == 1 })
	srv.Thaw(t)
	wantErr(t, "Acquire", mustReceive(t, "Acquire to return", result).err, ErrNotReplicated)
	eventually(t, "the lock to be released", func() bool { return len(fx.hash(t, "a")) == 0 })
	mustClose(t, c) // the hold is in doubt, and its second release would be awaited
}

// In a cluster the replicas of each master acknowledge its calls.
func TestReplicas_Cluster(t *testing.T) {
	t.Parallel()
	_, cluster := startCluster(t)
	c := newUncheckedLocks(t, cluster, replicaAcks(1))
	inParallel(50, func(i int) {
		lease, err := c.Lock(fmt.Sprint("k", i)).Acquire(bg, AcquireOptions{LeaseTime: time.Hour})
		if lease != nil || !errors.Is(err, ErrNotReplicated) {
			t.Errorf("Acquire: %v, %v", lease, err)
		}
	})
	eventually(t, "what was granted to be released", func() bool { return c.Stats() == Stats{} })
	for i := range 50 {
		if n := cluster.Exists(bg, fmt.Sprint("k", i)).Val(); n != 0 {
			t.Errorf("k%d is left", i)
		}
	}
	mustClose(t, c)
}

// New refuses options that cannot work.
func TestReplicas_BadOptions(t *testing.T) {
	t.Parallel()
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", ReadTimeout: time.Second})
	defer rdb.Close()
	for _, tc := range []struct {
		rdb  redis.UniversalClient
		opts Options
		says string
	}{
		{rdb, Options{ReplicaAcks: -1}, "ReplicaAcks is -1"},
		{rdb, Options{ReplicaAcks: 1, ReplicaTimeout: -1}, "ReplicaTimeout is -1ns"},
		{rdb, Options{ReplicaAcks: 1}, "ReadTimeout"},
		{rdb, Options{ReplicaAcks: 1, ReplicaTimeout: time.Second}, "ReadTimeout"},
		{rdb, Options{ReplicaAcks: 1, ReplicaTimeout: time.Second / 2, CommandTimeout: time.Second / 2}, "CommandTimeout"},
		{rdb, Options{ReplicaAcks: 1, ReplicaTimeout: time.Second / 2, WatchdogTimeout: 3 * time.Second / 2}, "WatchdogTimeout"},
		{rdb, Options{ReplicaAcks: 1, ReplicaTimeout: time.Second / 2}, ""},
		{rdb, Options{ReplicaTimeout: time.Hour}, ""}, // no ack is wanted
	} {
		c, err := New(tc.rdb, tc.opts)
		switch {
		case tc.says == "" && err != nil:
			t.Errorf("%+v: %v", tc.opts, err)
		case tc.says == "":
			mustClose(t, c)
		case c != nil || !errors.Is(err, ErrInvalidOptions) || !strings.Contains(err.Error(), tc.says) || !strings.HasPrefix(err.Error(), "reqlock:"):
			t.Errorf("%+v: %v, want an error that says %s", tc.opts, err, tc.says)
		}
	}
}

// A hand-over that is not acknowledged counts as a release for the holder. The waiters are told
// that they do not have the lock.
func TestReplicas_HandOver(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	srv, _ := fx.replica(t)
	c := fx.newLocks(t, replicaAcks(1), pollInterval(time.Hour))
	lease := eventuallyAcquire(t, c, "a", AcquireOptions{LeaseTime: time.Hour, WaitTime: patience})
	// Where the first attempt was not confirmed in time, the next one waited for its clean-up.
	eventually(t, "its subscription to end", func() bool { return c.Stats().Channels == 0 })
	var waiting []<-chan acquireResult
	for range 10 {
		waiting = append(waiting, startWaiter(t, bg, c, "a", forever))
	}
	eventuallyAsleep(t, c, "a")
	srv.Freeze(t)
	mustRelease(t, lease)
	for _, result := range waiting {
		wantErr(t, "Acquire", mustReceive(t, "the waiter to be told", result).err, ErrNotReplicated)
	}
	eventually(t, "the lock to be free", func() bool { return len(fx.hash(t, "a")) == 0 })
}
