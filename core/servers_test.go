package core

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/reqlock/reqlock/internal/lab/redistest"
)

// A RedLock needs servers of its own. Two addresses of one server, and two of its databases, are one
// server.
func TestRed_OneServer(t *testing.T) {
	t.Parallel()
	a, fx := newRedis(t), newRedis(t)
	one, other := a.newLocks(t), fx.newLocks(t)
	localhost := a.newLocksOn(t, a.srv.ClientWith(t, func(o *redis.Options) { o.Addr = strings.Replace(o.Addr, "127.0.0.1", "localhost", 1) }))
	proxied, _ := a.newProxiedLocks(t)
	database := a.newLocksOn(t, a.srv.ClientWith(t, func(o *redis.Options) { o.DB = 1 }))
	for name, locks := range map[string][]Locker{
		"three clients": {one.Lock("a"), a.newLocks(t).Lock("a"), a.newLocks(t).Lock("a")},
		"other names":   {one.Lock("a"), a.newLocks(t).Lock("b"), other.Lock("c")},
		"an address":    {one.Lock("a"), other.Lock("a"), localhost.Lock("a")},
		"a proxy":       {other.Lock("a"), one.Lock("a"), proxied.Lock("a")},
		"a database":    {other.Lock("a"), one.Lock("a"), database.Lock("a")},
		"in MultiLocks": {MultiLock(one.Lock("a")), MultiLock(other.Lock("a")), MultiLock(other.Lock("b"), database.Lock("a"))},
	} {
		for range 2 {
			ctx, cancel := context.WithTimeout(bg, patience)
			_, err := RedLock(locks...).Acquire(ctx, AcquireOptions{WaitTime: WaitForever})
			cancel()
			if !errors.Is(err, ErrInvalidOptions) || !strings.Contains(err.Error(), "are on one server, with the run ID") {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	a.wantFree(t, "a")
	fx.wantFree(t, "a")
}

// Each client asks once, however often a RedLock is acquired.
func TestRed_AsksServersOnce(t *testing.T) {
	t.Parallel()
	v := newVoters(t, 3)
	for _, fx := range v.masters {
		fx.rdb.ConfigResetStat(bg)
	}
	for range 3 {
		mustRelease(t, mustAcquire(t, bg, v.redLock("r"), AcquireOptions{WaitTime: patience}))
	}
	for i, fx := range v.masters {
		if stats := fx.rdb.Info(bg, "commandstats").Val(); !strings.Contains(stats, "cmdstat_info:calls=1,") {
			t.Errorf("master %d: %s", i, stats)
		}
	}
}

// A RedLock works on servers that do not say who they are.
func TestRed_ServersUnknown(t *testing.T) {
	t.Parallel()
	var locks []Locker
	for range 3 {
		fx := newRedis(t)
		locks = append(locks, fx.newLocksOn(t, fx.newUser(t, "~*", "&*", "+@all", "-info")).Lock("a"))
	}
	mustRelease(t, mustAcquire(t, bg, RedLock(locks...), AcquireOptions{WaitTime: patience}))
}

// A MultiLock may have a name on several servers and databases, and a read lock twice, but no other
// lock by two clients.
func TestMulti_OneServer(t *testing.T) {
	t.Parallel()
	a, fx := newRedis(t), newRedis(t)
	one, twin, other := a.newLocks(t), a.newLocks(t), fx.newLocks(t)
	database := a.newLocksOn(t, a.srv.ClientWith(t, func(o *redis.Options) { o.DB = 1 }))
	for name, l := range map[string]Locker{
		"two servers":   MultiLock(one.Lock("a"), other.Lock("a")),
		"two databases": MultiLock(one.Lock("b"), database.Lock("b")),
		"two names":     MultiLock(one.Lock("c"), twin.Lock("d")),
		"two readers":   MultiLock(one.ReadWriteLock("e").Read(), twin.ReadWriteLock("e").Read()),
	} {
		lease, err := l.Acquire(bg, AcquireOptions{WaitTime: patience})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		mustRelease(t, lease)
	}
	for name, l := range map[string]Locker{
		"twice":              MultiLock(one.Lock("f"), twin.Lock("f")),
		"reader and writer":  MultiLock(one.ReadWriteLock("g").Read(), twin.ReadWriteLock("g").Write()),
		"twice, among three": MultiLock(one.Lock("h"), other.Lock("h"), twin.Lock("h")),
	} {
		began := time.Now()
		if _, err := l.Acquire(bg, AcquireOptions{WaitTime: time.Hour}); !errors.Is(err, ErrInvalidOptions) || !strings.Contains(err.Error(), "two clients of one server") {
			t.Errorf("%s: %v after %s", name, err, time.Since(began))
		}
	}
}

// A cluster counts as all of its masters.
func TestRed_OneCluster(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t)
	var locks []Locker
	for range 3 {
		c := newUncheckedLocks(t, cluster.Client(t))
		defer mustClose(t, c)
		locks = append(locks, c.Lock("a"))
	}
	_, err := RedLock(locks...).Acquire(bg, AcquireOptions{WaitTime: patience})
	wantErr(t, "Acquire", err, ErrInvalidOptions)
}
