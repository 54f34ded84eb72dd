package inspect

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/delegation"
	"github.com/reqlock/reqlock/embedded"
	"github.com/reqlock/reqlock/internal/lab/redistest"
)

// newLocks returns a lock client whose owners begin with the process name and "…".
func newLocks(t *testing.T, rdb redis.UniversalClient, process string) *core.Client {
	t.Helper()
	locks, err := core.New(rdb, core.Options{ClientID: process, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := locks.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return locks
}

// take acquires a lock until the test ends.
func take(t *testing.T, ctx context.Context, l core.Locker) *core.Lease {
	t.Helper()
	lease, err := l.Acquire(ctx, core.AcquireOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := lease.Release(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return lease
}

// wait waits for a lock until the test ends.
func wait(t *testing.T, l core.Locker) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := l.Acquire(ctx, core.AcquireOptions{WaitTime: core.WaitForever})
		done <- err
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("a waiter: %v", err)
		}
	})
}

// leave leaves the record of a Once.
func leave(t *testing.T, locks *core.Client, name string, record string) {
	t.Helper()
	lease, _, err := locks.Once(name).Acquire(t.Context(), core.AcquireOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := lease.ReleaseWith(t.Context(), []byte(record), time.Hour); err != nil {
		t.Fatal(err)
	}
}

// redissonOwner is an owner as Redisson writes it.
const redissonOwner = "301aaf8b-4c7e-4a6e-9f0e-1d2c3b4a5968:57"

func mustDo(t *testing.T, rdb redis.UniversalClient, args ...any) {
	t.Helper()
	if err := rdb.Do(t.Context(), args...).Err(); err != nil {
		t.Fatal(args, err)
	}
}

// eventually waits until show returns a lock that ok accepts.
func eventually(t *testing.T, rdb redis.UniversalClient, name string, ok func(*Lock) bool) *Lock {
	t.Helper()
	var last *Lock
	for range 1000 {
		l, err := Show(t.Context(), rdb, name)
		if err != nil && !errors.Is(err, ErrNotFound) {
			t.Fatal(err)
		}
		if last = l; l != nil && ok(l) {
			return l
		}
		time.Sleep(10 * time.Millisecond)
	}
	text, _ := json.Marshal(last)
	t.Fatalf("%s stays %s", name, text)
	return nil
}

// sites are the ways to run Redis.
var sites = map[string]func(t *testing.T) redis.UniversalClient{
	"single":   func(t *testing.T) redis.UniversalClient { return redistest.Start(t).Client(t) },
	"sentinel": func(t *testing.T) redis.UniversalClient { return redistest.StartSentinel(t, 1).Client(t) },
	"cluster":  func(t *testing.T) redis.UniversalClient { return redistest.StartCluster(t).Client(t) },
	"embedded": func(t *testing.T) redis.UniversalClient {
		srv, err := embedded.Start()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = srv.Close() })
		return srv.Client()
	},
}

// describe writes a lock in one line, without times.
func describe(l *Lock) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s", l.Name, l.Kind)
	if s := l.Semaphore; s != nil {
		fmt.Fprintf(&b, " %d of %d, %d free", s.Taken, s.Permits, s.Free)
	}
	for _, h := range l.Holders {
		fmt.Fprintf(&b, " %s=%d", masked(h.Client, h.Owner), h.Count)
		if h.Expired {
			b.WriteString("!")
		}
	}
	for _, w := range l.Queue {
		fmt.Fprintf(&b, " %d:%s", w.Place, masked(w.Client, w.Owner))
		if w.Absent {
			b.WriteString("?")
		}
	}
	if l.Token > 0 {
		fmt.Fprintf(&b, " token %d", l.Token)
	}
	if l.Record != nil {
		fmt.Fprintf(&b, " record %d %v", l.Record.Size, l.Record.Marker)
	}
	if l.MoreHolders > 0 || l.MoreQueue > 0 {
		fmt.Fprintf(&b, " more %d %d", l.MoreHolders, l.MoreQueue)
	}
	if l.Listeners != 0 {
		fmt.Fprintf(&b, " listeners %d", l.Listeners)
	}
	return b.String()
}

// masked returns the process of an owner, and its suffix if it writes. If the process is unknown, it
// is the beginning of the owner.
func masked(client, owner string) string {
	process, _, _ := strings.Cut(cmp.Or(client, owner[:min(len(owner), 8)]), ".")
	if strings.HasSuffix(owner, ":write") {
		process += ":write"
	}
	return process
}

// List and Show see every kind of lock of any holder.
func TestList_Kinds(t *testing.T) {
	t.Parallel()
	for where, start := range sites {
		t.Run(where, func(t *testing.T) {
			t.Parallel()
			rdb := start(t)
			a, b := newLocks(t, rdb, "a"), newLocks(t, rdb, "b")
			bg := context.Background()

			take(t, bg, a.Lock("order:plain"))
			twice := core.WithOwner(bg)
			take(t, twice, a.Lock("order:twice"))
			take(t, twice, a.Lock("order:twice"))
			take(t, bg, a.Lock("order:awaited"))
			wait(t, b.Lock("order:awaited"))
			take(t, bg, a.FairLock("order:fair"))
			wait(t, b.FairLock("order:fair"))
			take(t, bg, a.FencedLock("order:fenced"))
			take(t, bg, a.FairLock("order:tokens:fair").Fenced())
			wait(t, b.FairLock("order:tokens:fair").Fenced())
			take(t, bg, a.FairLock("order:tokens:first").Fenced()) // No one waits, so nothing in Redis tells that it is fair.
			take(t, bg, a.ReadWriteLock("order:tokens:write").Write().Fenced())
			written, err := a.ReadWriteLock("order:tokens:read").Write().Fenced().Acquire(bg, core.AcquireOptions{})
			if err != nil {
				t.Fatal(err)
			}
			written.Release(bg)
			take(t, bg, a.ReadWriteLock("order:tokens:read").Read())
			take(t, bg, a.ReadWriteLock("order:read").Read())
			take(t, bg, b.ReadWriteLock("order:read").Read())
			take(t, bg, a.ReadWriteLock("order:write").Write())
			wait(t, b.ReadWriteLock("order:write").Read())
			writer := core.WithOwner(bg)
			take(t, writer, a.ReadWriteLock("order:both").Write())
			take(t, writer, a.ReadWriteLock("order:both").Read())
			marked, _, err := a.Once("order:marked").WithMarker([]byte("running"), time.Hour).Acquire(bg, core.AcquireOptions{})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = marked.Release(bg) })
			take(t, bg, a.Lock("{order}:tag"))
			take(t, bg, a.Lock("{order:braced}"))
			mustDo(t, rdb, "HSET", "order:jvm", redissonOwner, "1")
			mustDo(t, rdb, "PEXPIRE", "order:jvm", "30000")
			mustDo(t, rdb, "HSET", "order:jvm:forever", redissonOwner, "2") // redisson/redisson#2441

			leave(t, a, "order:record", "the result")
			free, err := a.FencedLock("order:free").Acquire(bg, core.AcquireOptions{})
			if err != nil {
				t.Fatal(err)
			}
			free.Release(bg)

			// Keys of other programs.
			mustDo(t, rdb, "SET", "order:string", "1")
			mustDo(t, rdb, "RPUSH", "order:list", "a:1")
			mustDo(t, rdb, "HSET", "order:one field", "item:1", "5") // no TTL
			mustDo(t, rdb, "HSET", "order:stock", "sku:1001", "5")
			mustDo(t, rdb, "PEXPIRE", "order:stock", "30000")
			mustDo(t, rdb, "HSET", "order:fields", a.ID()+":1", "1", "of", "1")
			mustDo(t, rdb, "HSET", "order:guest", a.ID()+":1", "1", b.ID()+":1", "1")
			mustDo(t, rdb, "PEXPIRE", "order:guest", "30000")
			mustDo(t, rdb, "HSET", "order:text", a.ID()+":1", "text")
			mustDo(t, rdb, "HSET", "order:zero", a.ID()+":1", "0")
			mustDo(t, rdb, "HSET", "order:number", a.ID()+":1", "01")
			mustDo(t, rdb, "HSET", "order:mode", "mode", "read", "size", "1")
			mustDo(t, rdb, "HSET", "order:reading", "mode", "read", "chapter:7", "1")

			eventually(t, rdb, "order:awaited", func(l *Lock) bool { return l.Listeners == 1 })
			eventually(t, rdb, "order:write", func(l *Lock) bool { return l.Listeners == 1 })
			for _, name := range []string{"order:fair", "order:tokens:fair"} {
				eventually(t, rdb, name, func(l *Lock) bool { return l.Listeners == 1 && len(l.Queue) == 1 })
			}

			held := []string{
				"order:awaited lock a=1 listeners 1",
				"order:both write a=1 a:write=1",
				"order:fair fair a=1 1:b listeners 1",
				"order:fenced fenced a=1 token 1",
				"order:guest lock a=1 b=1",
				"order:jvm lock 301aaf8b-4c7e-4a6e-9f0e-1d2c3b4a5968=1",
				"order:jvm:forever lock 301aaf8b-4c7e-4a6e-9f0e-1d2c3b4a5968=2",
				"order:marked once a=1 record 7 true",
				"order:plain lock a=1",
				"order:read read a=1 b=1",
				"order:tokens:fair fair a=1 1:b token 1 listeners 1",
				"order:tokens:first fenced a=1 token 1",
				"order:tokens:read read a=1 token 1",
				"order:tokens:write write a:write=1 token 1",
				"order:twice lock a=2",
				"order:write write a:write=1 listeners 1",
				"{order:braced} lock a=1",
				"{order}:tag lock a=1",
			}
			wantList(t, rdb, ListOptions{}, held)
			wantList(t, rdb, ListOptions{Prefix: "order:tw"}, []string{"order:twice lock a=2"})
			wantList(t, rdb, ListOptions{Prefix: "{order"}, held[len(held)-2:])
			wantList(t, rdb, ListOptions{Prefix: "order:*"}, nil)
			all := append(slices.Clone(held), "order:free fenced token 1", "order:record once record 10 false")
			slices.Sort(all)
			wantList(t, rdb, ListOptions{Free: true}, all)
			wantList(t, rdb, ListOptions{Free: true, Prefix: "order:f"},
				[]string{"order:fair fair a=1 1:b listeners 1", "order:fenced fenced a=1 token 1", "order:free fenced token 1"})

			for _, want := range all {
				name, _, _ := strings.Cut(want, " ")
				l, err := Show(t.Context(), rdb, name)
				if err != nil || describe(l) != want {
					t.Errorf("Show(%q) = %+v, %v; want %s", name, l, err, want)
				}
			}
			for _, name := range []string{"order:none", "order:string", "order:list", "order:one field", "order:stock", "order:fields",
				"order:text", "order:zero", "order:number", "order:mode", "order:reading"} {
				if l, err := Show(t.Context(), rdb, name); !errors.Is(err, ErrNotFound) {
					t.Errorf("Show(%q) = %+v, %v; want ErrNotFound", name, l, err)
				}
			}
		})
	}
}

func wantList(t *testing.T, rdb redis.UniversalClient, opts ListOptions, want []string) {
	t.Helper()
	locks, more, err := List(t.Context(), rdb, opts)
	if err != nil || more {
		t.Fatalf("List(%+v): more %v, %v", opts, more, err)
	}
	var got []string
	for i := range locks {
		got = append(got, describe(&locks[i]))
	}
	if !slices.Equal(got, want) {
		t.Errorf("List(%+v):\n%s\nwant\n%s", opts, strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// The age of a record and of a marker, and what is left of a marker whose holder has died.
func TestShow_Record(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	rdb := srv.Client(t)
	locks := newLocks(t, rdb, "a")
	leave(t, locks, "order:1", "the result")
	// Ten minutes later.
	if err := rdb.PExpire(t.Context(), core.KeysOf("order:1").Record, 50*time.Minute).Err(); err != nil {
		t.Fatal(err)
	}
	l, err := Show(t.Context(), rdb, "order:1")
	if err != nil {
		t.Fatal(err)
	}
	age, left := time.Duration(l.Record.Age)*time.Millisecond, time.Duration(l.Record.TTL)*time.Millisecond
	if age < 10*time.Minute || age > 11*time.Minute || left > 50*time.Minute || left < 49*time.Minute || l.Record.Size != 10 {
		t.Errorf("the record is %s old and has %s left: %+v", age, left, l.Record)
	}
	if _, _, err := locks.Once("order:2").WithMarker([]byte("run"), time.Hour).Acquire(t.Context(), core.AcquireOptions{LeaseTime: 3 * time.Second}); err != nil {
		t.Fatal(err)
	}
	l = eventually(t, rdb, "order:2", func(l *Lock) bool { return !l.Held() })
	if describe(l) != "order:2 once record 3 true" || l.TTL != 0 {
		t.Errorf("a marker that was left: %+v", l)
	}
}

// The holders of one client stand in the order in which they came, also if the tenth follows the ninth.
func TestHolder_Compare(t *testing.T) {
	t.Parallel()
	want := []Holder{
		{Owner: "00ff0d0a"},
		{Owner: "a.abcdefgh:9", Client: "a.abcdefgh"},
		{Owner: "a.abcdefgh:10", Client: "a.abcdefgh"},
		{Owner: "a.abcdefgh:10:write", Client: "a.abcdefgh"},
		{Owner: "b.abcdefgh:1", Client: "b.abcdefgh"},
	}
	got := slices.Clone(want)
	slices.Reverse(got)
	if slices.SortFunc(got, Holder.compare); !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// The page of a guest's process says whose guest it is.
func TestHandler_Guest(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	keys, err := delegation.NewKeys([]byte("32 random bytes that both have.."))
	if err != nil {
		t.Fatal(err)
	}
	service := func(name string) func(*core.Options) {
		return func(o *core.Options) { o.Delegation = delegation.Service{Keys: keys, Name: name} }
	}
	caller, callee := newClient(t, srv.Client(t), "orders-1", service("orders")), newClient(t, srv.Client(t), "billing-1", service("billing"))
	token, err := hold(t, context.Background(), caller.Lock("order:42")).Delegate("billing")
	if err != nil {
		t.Fatal(err)
	}
	hold(t, core.WithDelegation(context.Background(), token), callee.Lock("order:42"))
	if status, text, _ := get(t, serve(t, callee, Options{})); status != http.StatusOK || !strings.Contains(text, "guest of <code>"+caller.Holds()[0].Owner) {
		t.Errorf("status %d:\n%s", status, text)
	}
}
