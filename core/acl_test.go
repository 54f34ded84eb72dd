package core

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/reqlock/reqlock/core/internal/wire"
	"github.com/reqlock/reqlock/internal/lab/redistest"
)

// aclKinds are the locks that the user of docs/guides/redisson.md may use: one that is held, and
// one that has to wait for it.
var aclKinds = map[string]lockKind{
	"lock":              {lock: (*Client).Lock, rival: (*Client).Lock},
	"fair":              {lock: (*Client).FairLock, rival: (*Client).FairLock},
	"fenced":            {lock: (*Client).FencedLock, rival: (*Client).FencedLock},
	"semaphore":         {lock: onePermit, rival: onePermit},
	"write behind read": {lock: readSide, rival: writeSide},
	"read behind write": {lock: writeSide, rival: readSide},
}

// aclKinds must not miss a kind. A Once is no Lock.
func TestACLKinds(t *testing.T) {
	t.Parallel()
	c := newRedis(t).newLocks(t)
	var tested []string
	for _, kind := range aclKinds {
		tested = append(tested, kind.lock(c, "a").kind.Name)
	}
	for _, name := range Kinds() {
		if name != "once" && !slices.Contains(tested, name) {
			t.Errorf("the user of docs/guides/redisson.md is not tested with the kind %q: add it to aclKinds", name)
		}
	}
}

// An aclFixture is a Redis with the user that docs/guides/redisson.md shows.
type aclFixture struct {
	nodes   []*redis.Client
	connect func(t *testing.T) redis.UniversalClient // as that user
}

// The user in docs/guides/redisson.md may do all that locks do, for every kind and publish mode:
// Redis denies nothing, not even what would have been ignored. The user has no command that locks
// do not need.
func TestACL(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	fx := &aclFixture{[]*redis.Client{srv.Client(t)}, func(t *testing.T) redis.UniversalClient {
		return srv.ClientWith(t, func(o *redis.Options) {
			o.Username, o.Password = "orders", "secret"
			o.DisableIdentity = true // Redis 7.2 would log a CLIENT SETINFO that it denies
		})
	}}
	rights := fx.setUser(t, `on >secret .*`)
	t.Run("kinds", func(t *testing.T) {
		fx.useEverything(t, PublishPlain)
		fx.useEverything(t, PublishSharded)
	})
	fx.wantUsed(t, rights)
}

// In a cluster the user may also run what the Redis client runs to find the slots.
func TestACL_Cluster(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t)
	fx := &aclFixture{connect: func(t *testing.T) redis.UniversalClient {
		return cluster.ClientWith(t, func(o *redis.ClusterOptions) {
			o.Username, o.Password = "orders", "secret"
			o.DisableIdentity = true
		})
	}}
	for _, srv := range cluster.Servers {
		fx.nodes = append(fx.nodes, srv.Client(t))
	}
	fx.setUser(t, `on >secret .*`)
	rights := fx.setUser(t, `\+.*`)
	t.Run("kinds", func(t *testing.T) { fx.useEverything(t, PublishAuto) })
	fx.wantUsed(t, rights)
}

// setUser runs the line of docs/guides/redisson.md whose rules match the pattern, and returns the
// rules.
func (s *aclFixture) setUser(t *testing.T, rules string) []string {
	t.Helper()
	text, err := os.ReadFile("../docs/guides/redisson.md")
	if err != nil {
		t.Fatal(err)
	}
	line := regexp.MustCompile(`(?m)^ACL SETUSER orders ` + rules + `$`).Find(text)
	if line == nil {
		t.Fatalf("docs/guides/redisson.md has no line with ACL SETUSER orders %s", rules)
	}
	words := strings.Fields(string(line))
	args := make([]any, len(words))
	for i, word := range words {
		args[i] = word
	}
	for _, node := range s.nodes {
		if err := node.Do(bg, args...).Err(); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
	}
	return words[3:]
}

// useEverything does all that can be done with locks of each kind.
func (s *aclFixture) useEverything(t *testing.T, publish PublishMode) {
	for kindName, kind := range aclKinds {
		t.Run(fmt.Sprintf("%s, mode %d", kindName, publish), func(t *testing.T) {
			t.Parallel()
			mine, theirs := s.client(t, publish), s.client(t, publish)
			name := fmt.Sprintf("order:%s:%d", kindName, publish)
			if kindName == "fenced" { // tokens that are too large for Lua take another command
				if err := s.connect(t).Set(bg, wire.TokenCounter(name), int64(1)<<53, 0).Err(); err != nil {
					t.Fatal(err)
				}
			}
			if kindName == "semaphore" {
				countPermits(t, mine.Semaphore(name, 1))
			} else {
				enterAndLook(t, kind.lock(mine, name))
			}
			handOver(t, s, kind.lock(mine, name), kind.rival(theirs, name))
			waitAndLeave(t, s, kind.lock(mine, name), kind.rival(theirs, name))
			checkForceUnlock(t, kind.lock(mine, name), kind.lock(theirs, name))
			if kindName == "fair" {
				s.passOver(t, mine, name)
			}
		})
	}
	t.Run(fmt.Sprintf("ping, mode %d", publish), func(t *testing.T) {
		t.Parallel()
		if err := s.client(t, publish).Ping(bg); err != nil {
			t.Error(err)
		}
	})
	t.Run(fmt.Sprintf("latch, mode %d", publish), func(t *testing.T) {
		t.Parallel()
		name := fmt.Sprintf("order:latch:%d", publish)
		mine, theirs := s.client(t, publish).CountDownLatch(name), s.client(t, publish).CountDownLatch(name)
		mustSetCount(t, mine, 1)
		waiter := awaitAsync(bg, theirs)
		s.eventuallySubscribed(t, wire.LatchChannel(name))
		mustCountDown(t, mine)
		wantReleased(t, waiter)
	})
	t.Run(fmt.Sprintf("downgrade, mode %d", publish), func(t *testing.T) {
		t.Parallel()
		name := fmt.Sprintf("order:downgrade:%d", publish)
		downgrade(t, s.client(t, publish).ReadWriteLock(name), s.client(t, publish).ReadWriteLock(name))
	})
}

// eventuallySubscribed waits until a client has subscribed to a channel, plain or sharded.
func (s *aclFixture) eventuallySubscribed(t *testing.T, channel string) {
	t.Helper()
	eventually(t, "a subscriber to "+channel, func() bool {
		for _, node := range s.nodes {
			if node.PubSubNumSub(bg, channel).Val()[channel]+node.PubSubShardNumSub(bg, channel).Val()[channel] > 0 {
				return true
			}
		}
		return false
	})
}

// passOver takes a fair lock that is free and whose queue begins with a dead waiter.
func (s *aclFixture) passOver(t *testing.T, c *Client, name string) {
	t.Helper()
	c.pauses.absent = 20 * time.Millisecond
	rdb := s.connect(t)
	if err := errors.Join(
		rdb.RPush(bg, wire.FairQueue(name), "dead.1.abcdefgh:1").Err(),
		rdb.Do(bg, "ZADD", wire.FairDeadlines(name), time.Now().Add(time.Hour).UnixMilli(), "dead.1.abcdefgh:1").Err(),
	); err != nil {
		t.Fatal(err)
	}
	mustRelease(t, mustAcquire(t, bg, c.FairLock(name), AcquireOptions{WaitTime: patience}))
}

// client returns a lock client of that user. It must be idle when the test ends.
func (s *aclFixture) client(t *testing.T, publish PublishMode) *Client {
	t.Helper()
	c := newUncheckedLocks(t, s.connect(t), func(o *Options) {
		o.PublishMode = publish
		o.PollInterval = 10 * time.Millisecond // a subscription is pinged each second
		o.WatchdogTimeout = 9 * time.Second
	})
	t.Cleanup(func() {
		eventually(t, "the client to be idle", func() bool { return c.Stats() == Stats{} })
		mustClose(t, c)
	})
	return c
}

// wantUsed fails the test if Redis denied the user anything, or if a command of the user was not
// used.
func (s *aclFixture) wantUsed(t *testing.T, rights []string) {
	t.Helper()
	for _, node := range s.nodes {
		denied, err := node.ACLLog(bg, 100).Result()
		if err != nil {
			t.Fatal(err)
		}
		for _, entry := range denied {
			t.Errorf("denied: %s %s (%s)", entry.Reason, entry.Object, entry.Context)
		}
	}
	used := s.commands()
	for _, right := range rights {
		if command, ok := strings.CutPrefix(right, "+"); ok && !strings.Contains(used, "\ncmdstat_"+command+":") {
			t.Errorf("%s is not needed", right)
		}
	}
}

// commands returns Redis's statistics of commands.
func (s *aclFixture) commands() (stats string) {
	for _, node := range s.nodes {
		stats += node.Info(bg, "commandstats").Val()
	}
	return stats
}

// enterAndLook acquires a lock, waits for a renewal, enters it again, extends it, and calls the
// queries.
func enterAndLook(t *testing.T, lock *Lock) {
	t.Helper()
	ctx := WithOwner(bg)
	first := mustAcquire(t, ctx, lock, AcquireOptions{})
	var renewed time.Duration
	eventually(t, "a renewal", func() bool {
		before := renewed
		renewed = first.Remaining()
		return before > 0 && renewed > before
	})
	second := mustAcquire(t, ctx, lock, AcquireOptions{LeaseTime: time.Minute})
	if err := second.Extend(ctx, 2*time.Minute); err != nil {
		t.Error(err)
	}
	locked, err1 := lock.IsLocked(ctx)
	count, err2 := lock.HoldCount(ctx)
	ttl, err3 := lock.RemainingTTL(ctx)
	if err := errors.Join(err1, err2, err3); err != nil || !locked || count != 2 || ttl <= 0 {
		t.Errorf("locked %v, hold count %d, TTL %v; %v", locked, count, ttl, err)
	}
	mustRelease(t, second)
	mustRelease(t, first)
}

// countPermits sets and counts permits, waits for a renewal, and extends a lease.
func countPermits(t *testing.T, s *Semaphore) {
	t.Helper()
	if err := s.SetPermits(bg, 1); err != nil {
		t.Error(err)
	}
	lease := mustAcquire(t, bg, s, AcquireOptions{})
	var renewed time.Duration
	eventually(t, "a renewal", func() bool {
		before := renewed
		renewed = lease.Remaining()
		return before > 0 && renewed > before
	})
	wantPermits(t, s, 1, 0)
	mustRelease(t, lease)
	lease = mustAcquire(t, bg, s, AcquireOptions{LeaseTime: time.Minute})
	if err := lease.Extend(bg, 2*time.Minute); err != nil {
		t.Error(err)
	}
	mustRelease(t, lease)
}

// handOver releases a lock to another client, which has two waiters.
func handOver(t *testing.T, s *aclFixture, mine, theirs *Lock) {
	t.Helper()
	lease := mustAcquire(t, bg, mine, AcquireOptions{LeaseTime: time.Minute, WaitTime: patience})
	got := make(chan error, 2)
	for range 2 {
		go func() {
			got <- Do(bg, theirs, AcquireOptions{WaitTime: patience}, func(context.Context) error { return nil })
		}()
	}
	eventually(t, "two waiters", func() bool { s := theirs.c.Stats(); return s.Waiting == 2 && s.Channels > 0 })
	pings := func() string {
		return fmt.Sprint(regexp.MustCompile(`cmdstat_ping:.*`).FindAllString(s.commands(), -1))
	}
	before := pings()
	eventually(t, "a ping on the subscription", func() bool { return pings() != before })
	mustRelease(t, lease)
	for range 2 {
		if err := mustReceive(t, "both waiters", got); err != nil {
			t.Error(err)
		}
	}
}

// waitAndLeave makes a waiter leave the queue, and another one behind it get the lock.
func waitAndLeave(t *testing.T, s *aclFixture, mine, theirs *Lock) {
	t.Helper()
	lease := mustAcquire(t, bg, mine, AcquireOptions{LeaseTime: time.Minute, WaitTime: patience})
	waiting := func(n int) {
		eventually(t, fmt.Sprint(n, " waiters"), func() bool {
			return theirs.c.Stats().Waiting == n && (!theirs.kind.RedisQueue || s.length(wire.FairQueue(theirs.key)) == int64(n))
		})
	}
	patient := acquireAsync(bg, theirs, AcquireOptions{WaitTime: patience})
	waiting(1)
	ctx, leave := context.WithCancel(bg)
	defer leave()
	impatient := acquireAsync(ctx, theirs, AcquireOptions{WaitTime: patience})
	waiting(2)
	leave()
	wantErr(t, "Acquire", mustReceive(t, "it to leave", impatient).err, context.Canceled)
	waiting(1)
	mustRelease(t, lease)
	mustRelease(t, mustReceiveLease(t, "the waiter to get the lock", patient))
}

// length returns the length of a list on whichever node has it.
func (s *aclFixture) length(key string) (n int64) {
	for _, node := range s.nodes {
		n = max(n, node.LLen(bg, key).Val()) // 0 where it is not
	}
	return n
}

// checkForceUnlock unlocks a lock of another client, once all waiters have left the queue of a fair
// lock.
func checkForceUnlock(t *testing.T, mine, theirs *Lock) {
	t.Helper()
	lease := mustAcquire(t, bg, theirs, AcquireOptions{LeaseTime: time.Minute, WaitTime: patience})
	mustForce(t, mine)
	wantErr(t, "Release after a forced unlock", lease.Release(bg), ErrLockLost)
	if mine.kind.Counted {
		return // it has no IsLocked
	}
	if locked, err := mine.IsLocked(bg); locked || err != nil {
		t.Errorf("IsLocked after it: %v, %v", locked, err)
	}
}

// downgrade turns a write lock into a read lock, which another client then shares.
func downgrade(t *testing.T, mine, theirs *ReadWriteLock) {
	t.Helper()
	ctx := WithOwner(bg)
	var leases []*Lease
	for _, lock := range []*Lock{mine.Write(), mine.Read(), mine.Read()} {
		lease := mustAcquire(t, ctx, lock, AcquireOptions{})
		leases = append(leases, lease)
	}
	mustRelease(t, leases[0])
	shared := mustAcquire(t, bg, theirs.Read(), AcquireOptions{})
	mustRelease(t, leases[1])
	mustRelease(t, leases[2])
	mustRelease(t, shared)
}
