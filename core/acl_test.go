package core

import (
	"context"
	"errors"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// aclKinds are the locks that the user of docs/redisson.md may use: what one holds, and what another waits for.
var aclKinds = map[string]struct {
	held, wanted func(c *Client, name string) *Lock
}{
	"lock":              {(*Client).Lock, (*Client).Lock},
	"fair":              {(*Client).FairLock, (*Client).FairLock},
	"fenced":            {(*Client).FencedLock, (*Client).FencedLock},
	"write behind read": {aclRead, aclWrite},
	"read behind write": {aclWrite, aclRead},
}

func aclRead(c *Client, name string) *Lock  { return c.ReadWriteLock(name).Read() }
func aclWrite(c *Client, name string) *Lock { return c.ReadWriteLock(name).Write() }

// The user that docs/redisson.md shows is allowed all that locks do, of each kind and with each way to publish: nothing is
// denied, not even what would have been ignored. And it is allowed no command that none of them needs.
func TestACL(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	rights := documentedACL(t)
	args := []any{"ACL", "SETUSER", "orders", "on", ">secret"}
	for _, right := range rights {
		args = append(args, right)
	}
	if err := b.rdb.Do(context.Background(), args...).Err(); err != nil {
		t.Fatalf("%q: %v", args, err)
	}

	t.Run("kinds", func(t *testing.T) {
		for mode, publish := range map[string]PublishMode{"plain": Plain, "sharded": Sharded} {
			for kind, lock := range aclKinds {
				t.Run(kind+"/"+mode, func(t *testing.T) {
					t.Parallel()
					mine, theirs := b.limited(t, publish), b.limited(t, publish)
					name := "order:" + kind + ":" + mode
					enterAndLook(t, lock.held(mine, name))
					handOver(t, b, lock.held(mine, name), lock.wanted(theirs, name))
					waitInVain(t, lock.held(mine, name), lock.wanted(theirs, name))
					force(t, lock.held(mine, name), lock.held(theirs, name))
				})
			}
			t.Run("downgrade/"+mode, func(t *testing.T) {
				t.Parallel()
				name := "order:downgrade:" + mode
				downgrade(t, b.limited(t, publish).ReadWriteLock(name), b.limited(t, publish).ReadWriteLock(name))
			})
		}
	})

	denied, err := b.rdb.ACLLog(context.Background(), 100).Result()
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range denied {
		t.Errorf("denied: %s %s (%s)", entry.Reason, entry.Object, entry.Context)
	}
	used := b.rdb.Info(context.Background(), "commandstats").Val()
	for _, right := range rights {
		if command, ok := strings.CutPrefix(right, "+"); ok && !strings.Contains(used, "\ncmdstat_"+command+":") {
			t.Errorf("%s is not needed", right)
		}
	}
}

// documentedACL are the rules for the user in docs/redisson.md, without name and password.
func documentedACL(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile("../docs/redisson.md")
	if err != nil {
		t.Fatal(err)
	}
	line := regexp.MustCompile(`(?m)^ACL SETUSER orders on >secret (.*)$`).FindSubmatch(text)
	if line == nil {
		t.Fatal("docs/redisson.md has no line that begins with ACL SETUSER orders on >secret")
	}
	return strings.Fields(string(line[1]))
}

// limited is a client of that user. It is closed, and idle, when the test ends; keys that nobody deletes may be left.
func (b *bundle) limited(t *testing.T, publish PublishMode) *Client {
	t.Helper()
	rdb := b.srv.ClientWith(t, func(o *redis.Options) {
		o.Username, o.Password = "orders", "secret"
		o.DisableIdentity = true // Redis 7.2 would log a CLIENT SETINFO that it denies
	})
	c := newLooseClient(t, rdb, func(o *Options) {
		o.PublishMode = publish
		o.PollInterval = 10 * time.Millisecond // a subscription is pinged as often
		o.WatchdogTimeout = 300 * time.Millisecond
	})
	t.Cleanup(func() {
		if !within(patience, func() bool { return c.Stats() == Stats{} }) {
			t.Errorf("the client is not idle: %+v", c.Stats())
		}
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := c.Close(ctx); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return c
}

// enterAndLook takes a lock, enters it again, extends it, has the watchdog renew it, and asks all that can be asked.
func enterAndLook(t *testing.T, lock *Lock) {
	t.Helper()
	ctx := WithOwner(context.Background())
	first, err := lock.Acquire(ctx, AcquireOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var renewed time.Duration
	eventually(t, "the watchdog has renewed the lock", func() bool {
		before := renewed
		renewed = first.Remaining()
		return before > 0 && renewed > before
	})
	second, err := lock.Acquire(ctx, AcquireOptions{LeaseTime: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
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

// handOver releases a lock to another client, in which two wait for it.
func handOver(t *testing.T, b *bundle, mine, theirs *Lock) {
	t.Helper()
	lease, err := mine.Acquire(context.Background(), AcquireOptions{LeaseTime: time.Minute, WaitTime: patience})
	if err != nil {
		t.Fatal(err)
	}
	got := make(chan error, 2)
	for range 2 {
		go func() {
			got <- Do(context.Background(), theirs, AcquireOptions{WaitTime: patience}, func(context.Context) error { return nil })
		}()
	}
	eventually(t, "two wait", func() bool { s := theirs.c.Stats(); return s.Waiting == 2 && s.Channels > 0 })
	pings := func() string {
		return regexp.MustCompile(`cmdstat_ping:.*`).FindString(b.rdb.Info(context.Background(), "commandstats").Val())
	}
	before := pings()
	eventually(t, "a subscription has been pinged", func() bool { return pings() != before })
	mustRelease(t, lease)
	for range 2 {
		if err := await(t, "they have had it", got); err != nil {
			t.Error(err)
		}
	}
}

// waitInVain waits for a lock in vain.
func waitInVain(t *testing.T, mine, theirs *Lock) {
	t.Helper()
	lease, err := mine.Acquire(context.Background(), AcquireOptions{LeaseTime: time.Minute, WaitTime: patience})
	if err != nil {
		t.Fatal(err)
	}
	_, err = theirs.Acquire(context.Background(), AcquireOptions{WaitTime: 50 * time.Millisecond})
	wantErr(t, "Acquire", err, ErrNotAcquired)
	mustRelease(t, lease)
}

// force frees a lock that another client holds, as soon as those who gave up have left the queue of a fair lock.
func force(t *testing.T, mine, theirs *Lock) {
	t.Helper()
	lease, err := theirs.Acquire(context.Background(), AcquireOptions{LeaseTime: time.Minute, WaitTime: patience})
	if err != nil {
		t.Fatal(err)
	}
	if forced, err := mine.ForceUnlock(context.Background()); !forced || err != nil {
		t.Errorf("ForceUnlock: %v, %v", forced, err)
	}
	wantErr(t, "Release after a forced unlock", lease.Release(context.Background()), ErrLockLost)
	if locked, err := mine.IsLocked(context.Background()); locked || err != nil {
		t.Errorf("IsLocked after it: %v, %v", locked, err)
	}
}

// downgrade turns a write lock into a read lock, which it shares then.
func downgrade(t *testing.T, mine, theirs *ReadWriteLock) {
	t.Helper()
	ctx := WithOwner(context.Background())
	var leases []*Lease
	for _, lock := range []*Lock{mine.Write(), mine.Read(), mine.Read()} {
		lease, err := lock.Acquire(ctx, AcquireOptions{})
		if err != nil {
			t.Fatal(err)
		}
		leases = append(leases, lease)
	}
	mustRelease(t, leases[0])
	shared, err := theirs.Read().Acquire(context.Background(), AcquireOptions{})
	if err != nil {
		t.Fatal(err)
	}
	mustRelease(t, leases[1])
	mustRelease(t, leases[2])
	mustRelease(t, shared)
}
