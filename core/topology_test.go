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
	"github.com/reqlock/reqlock/core/internal/wire"
	"github.com/reqlock/reqlock/internal/lab/redistest"
)

// A topology is more than one server.
type topology struct {
	connect func(t testing.TB) redis.UniversalClient
	masters func(t testing.TB) []*redistest.Server
	// masterOf waits until the master of a name's keys is not old, which may be nil, and its
	// replicas have all its data.
	masterOf func(t testing.TB, name string, old *redistest.Server) *redistest.Server
}

func onSentinel(s *redistest.Sentinel) *topology {
	return &topology{
		connect: func(t testing.TB) redis.UniversalClient { return s.Client(t) },
		masters: func(t testing.TB) []*redistest.Server { return []*redistest.Server{s.AwaitMaster(t, nil)} },
		masterOf: func(t testing.TB, _ string, old *redistest.Server) *redistest.Server {
			return s.AwaitMaster(t, old)
		},
	}
}

func onCluster(c *redistest.Cluster) *topology {
	return &topology{
		connect: func(t testing.TB) redis.UniversalClient {
			// Close waits as long for the connections to a master that is frozen.
			return c.ClientWith(t, func(o *redis.ClusterOptions) { o.ReadTimeout = 2 * time.Second })
		},
		masters: c.Masters,
		masterOf: func(t testing.TB, name string, old *redistest.Server) *redistest.Server {
			return c.AwaitMaster(t, c.Slot(t, name), old)
		},
	}
}

// client returns a lock client, which must be idle when the test ends.
func (top *topology) client(t testing.TB, opts ...func(*Options)) *Client {
	t.Helper()
	c := newUncheckedLocks(t, top.connect(t), opts...)
	t.Cleanup(func() {
		eventuallyIdle(t, c)
		mustClose(t, c)
	})
	return c
}

// look asks every master.
func (top *topology) look(t testing.TB, question func(ctx context.Context, rdb *redis.Client) error) error {
	t.Helper()
	var all error
	for _, s := range top.masters(t) {
		rdb := redis.NewClient(&redis.Options{Addr: s.Addr()})
		all = errors.Join(all, question(bg, rdb), rdb.Close())
	}
	return all
}

// subscribedChannels returns the channels with subscribers on any master.
func (top *topology) subscribedChannels(t testing.TB) (channels []string) {
	t.Helper()
	err := top.look(t, func(ctx context.Context, rdb *redis.Client) error {
		plain, err := rdb.PubSubChannels(ctx, "redisson*").Result()
		shards, shardErr := rdb.PubSubShardChannels(ctx, "*").Result()
		channels = slices.Concat(channels, plain, shards)
		return errors.Join(err, shardErr)
	})
	if err != nil {
		t.Fatal(err)
	}
	return channels
}

// eventuallySubscribed waits for a subscriber to a lock's channel.
func (top *topology) eventuallySubscribed(t testing.TB, name string) {
	t.Helper()
	eventually(t, "a subscriber to "+name, func() bool {
		return slices.ContainsFunc(top.subscribedChannels(t), func(c string) bool { return strings.Contains(c, name) })
	})
}

// wantEmpty fails the test if anything but counters of tokens is left.
func (top *topology) wantEmpty(t testing.TB) {
	t.Helper()
	var left []string
	if !within(patience, func() bool {
		left = top.subscribedChannels(t)
		return len(left) == 0 && top.look(t, func(ctx context.Context, rdb *redis.Client) error {
			keys, err := rdb.Keys(ctx, "*").Result()
			left = append(left, withoutTokens(keys)...)
			return err
		}) == nil && len(left) == 0
	}) {
		t.Errorf("left in Redis: %.500q", left)
	}
}

// acquireWithRetries acquires a lock like a caller that retries after every error.
func acquireWithRetries(ctx context.Context, l Locker, opts AcquireOptions) (*Lease, error) {
	for {
		lease, err := l.Acquire(ctx, opts)
		if err == nil || ctx.Err() != nil {
			return lease, err
		}
		time.Sleep(time.Millisecond)
	}
}

func insistAsync(ctx context.Context, l Locker, opts AcquireOptions) <-chan acquireResult {
	result := make(chan acquireResult, 1)
	go func() {
		lease, err := acquireWithRetries(ctx, l, opts)
		result <- acquireResult{lease, err}
	}()
	return result
}

// Every kind of lock works on sentinels and clusters as on a single server. Redisson:
// testInCluster.
func (top *topology) testKinds(t *testing.T) {
	for name, kind := range excludingKinds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for what, test := range map[string]func(*testing.T, *topology, string, lockKind){
				"exclusion": topologyExclusion,
				"waiting":   topologyWaiting,
				"renewal":   topologyRenewal,
				"loss":      topologyLoss,
			} {
				t.Run(what, func(t *testing.T) {
					t.Parallel()
					test(t, top, name+":"+what, kind)
				})
			}
		})
	}
}

func topologyExclusion(t *testing.T, top *topology, name string, kind lockKind) {
	clients := []*Client{top.client(t), top.client(t)}
	inParallel(3, func(n int) {
		checkExclusion(t, 6, 45, AcquireOptions{WaitTime: patience}, func(i int) Locker {
			return kind.rival(clients[i%2], fmt.Sprint(name, n))
		})
	})
}

// The waiter is woken by a message: it does not poll.
func topologyWaiting(t *testing.T, top *topology, name string, kind lockKind) {
	holder, waiter := top.client(t), top.client(t, pollInterval(time.Hour))
	for range 3 {
		lease := mustAcquire(t, bg, kind.lock(holder, name), AcquireOptions{LeaseTime: time.Hour})
		waiting := acquireAsync(bg, kind.rival(waiter, name), AcquireOptions{WaitTime: patience})
		top.eventuallySubscribed(t, name)
		mustRelease(t, lease)
		mustRelease(t, mustReceiveLease(t, "the waiter to be woken", waiting))
	}
}

func topologyRenewal(t *testing.T, top *topology, name string, kind lockKind) {
	const lease = 6 * time.Second
	c, other := top.client(t, watchdogTimeout(lease)), top.client(t)
	var leases []*Lease
	for i := range 20 { // on all masters
		leases = append(leases, mustAcquire(t, bg, kind.lock(c, fmt.Sprint(name, i)), AcquireOptions{}))
	}
	begun := time.Now()
	eventually(t, "more than a lease to pass", func() bool { return time.Since(begun) > lease*5/4 })
	for i := range leases {
		wantErr(t, "Acquire of a lock that is renewed", tryAcquire(kind.rival(other, fmt.Sprint(name, i))), ErrNotAcquired)
	}
	for _, lease := range leases {
		mustRelease(t, lease)
	}
}

func topologyLoss(t *testing.T, top *topology, name string, kind lockKind) {
	c := top.client(t, watchdogTimeout(6*time.Second))
	lease := mustAcquire(t, bg, kind.lock(c, name), AcquireOptions{})
	rdb := top.connect(t)
	if err := errors.Join(rdb.Del(bg, name).Err(), rdb.Del(bg, wire.PermitsTaken(name)).Err()); err != nil {
		t.Fatal(err)
	}
	mustReceive(t, "the loss to be noticed", lease.Done())
	wantErr(t, "cause of the lease's context", context.Cause(lease.Context()), ErrLockLost)
	wantErr(t, "Release", lease.Release(bg), ErrLockLost)
	mustRelease(t, mustAcquire(t, bg, kind.lock(c, name), AcquireOptions{}))
}

// A load is goroutines of several clients that acquire and release locks until they are told to
// stop.
type load struct {
	done   atomic.Int64 // passages
	stop   context.CancelFunc
	ending sync.WaitGroup
}

// pace is how long a caller of a load rests between two locks. Without it, the callers would keep
// the processors from all other tests.
const pace = 10 * time.Millisecond

func (top *topology) load(t testing.TB, names int) *load {
	ctx, cancel := context.WithCancel(bg)
	l := &load{stop: cancel}
	for range 2 {
		c := top.client(t, commandTimeout(time.Second), pollInterval(time.Second))
		for i := range 2 * names {
			l.ending.Go(func() {
				for ctx.Err() == nil {
					lease, err := acquireWithRetries(ctx, c.Lock(fmt.Sprint("load:", i%names)), AcquireOptions{WaitTime: time.Second, LeaseTime: 10 * time.Second})
					if err == nil && lease.Release(bg) == nil {
						l.done.Add(1)
					}
					time.Sleep(pace)
				}
			})
		}
	}
	t.Cleanup(l.end)
	return l
}

func (l *load) end() {
	l.stop()
	l.ending.Wait()
}

// mustProgress waits for another hundred locks.
func (l *load) mustProgress(t testing.TB) {
	t.Helper()
	from := l.done.Load()
	if !within(3*patience, func() bool { return l.done.Load() > from+100 }) {
		t.Fatalf("%d locks were taken in %s", l.done.Load()-from, 3*patience)
	}
}

// failOver ends the master of a name's keys. A replica that has all its data takes over.
func (top *topology) failOver(name string, end func(*redistest.Server, testing.TB)) func(testing.TB) {
	return func(t testing.TB) {
		old := top.masterOf(t, name, nil)
		end(old, t)
		top.masterOf(t, name, old)
	}
}

// A failover happens while locks of each kind are held and waited for: a replica that has a lock
// keeps it for its holder, the waiter's subscription follows, and everyone else goes on. Redisson:
// testLockFailoverInCluster.
func (top *topology) testFailover(t *testing.T, name string, poll time.Duration, failover func(t testing.TB)) {
	load := top.load(t, 3)
	load.mustProgress(t)
	holder := top.client(t, commandTimeout(3*time.Second), watchdogTimeout(6*patience)) // failovers may take their time
	waiter := top.client(t, commandTimeout(3*time.Second), pollInterval(poll))
	leases, waiting := make(map[string]*Lease), make(map[string]<-chan acquireResult)
	for kindName, kind := range excludingKinds {
		leases[kindName] = mustAcquire(t, bg, kind.lock(holder, name+kindName), AcquireOptions{})
		waiting[kindName] = insistAsync(t.Context(), kind.rival(waiter, name+kindName), forever)
	}
	for kindName := range excludingKinds {
		top.eventuallySubscribed(t, name+kindName)
	}

	failover(t)

	load.mustProgress(t)
	for kindName, lease := range leases {
		top.eventuallySubscribed(t, name+kindName) // on the new master
		if err := lease.Err(); err != nil {
			t.Fatalf("%s: the holder lost a lock that the new master has: %v", kindName, err)
		}
		select {
		case got := <-waiting[kindName]:
			t.Fatalf("%s: the waiter got a lock that is held (%v)", kindName, got.err)
		default:
		}
		_ = lease.Release(bg) // an error says that it is released in the background
		mustRelease(t, mustReceiveLease(t, kindName+": the waiter to be woken after the failover", waiting[kindName]))
	}
	load.end()
}

// What a master granted, and no replica has, is gone with it: the new master gives the lock to the
// next owner, with a fencing token that may have been used before. Asynchronous replicas cannot
// promise more. No waiter hangs: those who sleep ask again when they subscribe to the new master,
// or with their next poll. The holders believe their LeaseTime, or are told with the next renewal.
// It returns the old master, which is dead.
func (top *topology) testUnreplicated(t *testing.T, tag string) *redistest.Server {
	// After a failed dial a Redis client returns that error for up to a second, even if there is a
	// new master. A release outlasts that.
	patient := commandTimeout(patience)
	renewed := top.client(t, patient, watchdogTimeout(15*time.Second))
	holder := top.client(t, patient)
	waiters := map[string]*Client{
		"listens": top.client(t, patient, pollInterval(time.Hour)),
		"polls":   top.client(t, patient, pollInterval(time.Second)),
	}
	type double struct {
		name    string
		lease   *Lease
		waiting <-chan acquireResult
	}
	var doubles []double
	for waiter, c := range waiters {
		for kindName, kind := range lockKinds {
			name := tag + kindName + " " + waiter
			mustRelease(t, mustAcquire(t, bg, kind.lock(c, name), AcquireOptions{})) // the counter of tokens is known everywhere
			doubles = append(doubles, double{name: name})
		}
	}

	old := top.masterOf(t, tag, nil)
	isolateMaster(t, old)
	told := mustAcquire(t, bg, renewed.Lock(tag), AcquireOptions{})
	for i, d := range doubles {
		kindName, waiter, _ := strings.Cut(strings.TrimPrefix(d.name, tag), " ")
		kind := lockKinds[kindName]
		doubles[i].lease = mustAcquire(t, bg, kind.lock(holder, d.name), AcquireOptions{LeaseTime: time.Hour})
		doubles[i].waiting = insistAsync(t.Context(), kind.rival(waiters[waiter], d.name), forever)
	}
	for _, c := range waiters {
		eventually(t, "the callers to wait", func() bool { s := c.Stats(); return s.Waiting == s.Channels && s.Waiting == len(lockKinds) })
	}
	old.Kill(t)
	top.masterOf(t, tag, old)
	eventually(t, "the holder to find the new master", func() bool {
		_, err := holder.Lock(tag).IsLocked(bg)
		return err == nil
	})

	for _, d := range doubles {
		got := mustReceive(t, d.name+": the waiter to ask the new master", d.waiting)
		if got.err != nil {
			t.Fatalf("%s: %v", d.name, got.err)
		}
		first, second := d.lease.Err(), got.lease.Err()
		if errors.Is(first, ErrLockLost) {
			// A reader asserts what it needs, and so finds out. So does a client whose own channel was
			// on the old master.
			first = nil
		}
		if first != nil || second != nil {
			t.Errorf("%s: the holders have %v and %v, and each should believe to be the only one", d.name, first, second)
		}
		before, fenced := d.lease.Token()
		if token, _ := got.lease.Token(); fenced && token != before {
			t.Errorf("%s: token %d after %d, which the new master has not heard of", d.name, token, before)
		}
		mustRelease(t, got.lease)
		wantErr(t, d.name+": Release by who had it from the old master", d.lease.Release(bg), ErrLockLost)
	}
	mustReceive(t, "the first holder to be told", told.Done())
	wantErr(t, "cause of its context", context.Cause(told.Context()), ErrLockLost)
	return old
}
