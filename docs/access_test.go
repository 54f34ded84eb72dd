package docs_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/idempotency"
	"github.com/reqlock/reqlock/internal/lab/redistest"
	httplock "github.com/reqlock/reqlock/middleware/nethttp"
)

// The ACL user of docs/guides/operations.md may do all that locks need, and Redis's ACL log stays
// empty.
func TestAccess(t *testing.T) {
	t.Parallel()
	redisServer := redistest.Start(t)
	admin := redisServer.Client(t)
	ctx := context.Background()
	acl := strings.Fields(regexp.MustCompile(`(?m)^ACL SETUSER .*$`).FindString(read(t, "docs/guides/operations.md")))
	if len(acl) == 0 {
		t.Fatal("docs/guides/operations.md has no ACL SETUSER")
	}
	args := make([]any, len(acl))
	for i, word := range acl {
		args[i] = word
	}
	if err := admin.Do(ctx, args...).Err(); err != nil {
		t.Fatalf("%q: %v", acl, err)
	}

	clients := make([]*core.Client, 2)
	for i := range clients {
		rdb := redisServer.ClientWith(t, asOrders)
		var err error
		// A short PollInterval makes the client ping its subscriptions each second.
		clients[i], err = core.New(rdb, core.Options{PollInterval: 10 * time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			// A failed test may still hold a lock.
			ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
			defer cancel()
			if err := clients[i].Close(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	useEverything(t, ctx, admin, clients[0].Lock("reqlock:order:42"), clients[1].Lock("reqlock:order:42"))
	await(t, "unsubscribed", func() bool { return clients[1].Stats().Channels == 0 })

	denied, err := admin.ACLLog(ctx, 10).Result()
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range denied {
		t.Errorf("denied: %s %s (%s)", entry.Reason, entry.Object, entry.Context)
	}
}

// asOrders configures a client of the user of docs/guides/operations.md. It does not send CLIENT
// SETINFO, which Redis 7.2 would deny and log.
func asOrders(o *redis.Options) { o.Username, o.Password, o.DisableIdentity = "orders", "secret", true }

// With the pattern of docs/guides/idempotency-rules.md, the user of docs/guides/operations.md may
// store records.
func TestAccessToRecords(t *testing.T) {
	t.Parallel()
	redisServer := redistest.Start(t)
	admin := redisServer.Client(t)
	ctx := context.Background()
	page := read(t, "docs/guides/idempotency-rules.md")
	pattern := regexp.MustCompile("needs the pattern `(\\S+)`").FindStringSubmatch(page)
	quota := regexp.MustCompile("also needs `([^`]+)`").FindStringSubmatch(page)
	if pattern == nil || quota == nil {
		t.Fatal("docs/guides/idempotency-rules.md has no pattern, or no commands of MaxKeys")
	}
	var args []any
	for _, word := range strings.Fields(regexp.MustCompile(`(?m)^ACL SETUSER .*$`).FindString(read(t, "docs/guides/operations.md")) + " " + pattern[1] + " " + quota[1]) {
		args = append(args, word)
	}
	if err := admin.Do(ctx, args...).Err(); err != nil {
		t.Fatal(err)
	}
	rdb := redisServer.ClientWith(t, asOrders)
	locks, err := core.New(rdb, core.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer locks.Close(ctx)
	for _, unknown := range []idempotency.UnknownOutcome{idempotency.OutcomeRerun, idempotency.OutcomeRefuse} {
		status := http.StatusBadGateway
		handler := httplock.Idempotent(locks, idempotency.Config{Scope: idempotency.ScopeGlobal, OnUnknown: unknown, MaxKeys: 10})(
			http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.WriteHeader(status)
				status = http.StatusCreated
			}))
		for i, want := range []int{http.StatusBadGateway, http.StatusCreated, http.StatusCreated} {
			r := httptest.NewRequest("POST", "/"+strconv.Itoa(int(unknown)), nil)
			r.Header.Set("Idempotency-Key", "k")
			w := httptest.NewRecorder()
			if handler.ServeHTTP(w, r); w.Code != want || (i == 2) != (w.Header().Get("Idempotent-Replayed") == "true") {
				t.Errorf("answer %d: %d %v %s", i, w.Code, w.Header(), w.Body)
			}
		}
	}
	denied, err := admin.ACLLog(ctx, 10).Result()
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range denied {
		t.Errorf("denied: %s %s (%s)", entry.Reason, entry.Object, entry.Context)
	}
}

// useEverything uses every operation of a lock, mine and theirs being the same lock of two clients.
// The watchdog is left out: it runs no other commands than a re-entry.
func useEverything(t *testing.T, ctx context.Context, admin *redis.Client, mine, theirs *core.Lock) {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	lease, err := mine.Acquire(ctx, core.AcquireOptions{})
	must(err)
	again, err := mine.Acquire(lease.Context(), core.AcquireOptions{LeaseTime: time.Minute})
	must(err)
	must(again.Extend(ctx, 2*time.Minute))
	must(again.Release(ctx))
	held, err := mine.HoldCount(lease.Context())
	must(err)
	if held != 1 {
		t.Errorf("hold count %d, want 1", held)
	}

	got := make(chan error, 1)
	go func() {
		lease, err := theirs.Acquire(ctx, core.AcquireOptions{WaitTime: 30 * time.Second})
		if err == nil {
			err = lease.Release(ctx)
		}
		got <- err
	}()
	await(t, "subscribed", func() bool { return len(admin.PubSubChannels(ctx, "redisson*").Val()) > 0 })
	pings := func() string {
		return regexp.MustCompile(`cmdstat_ping:.*`).FindString(admin.Info(ctx, "commandstats").Val())
	}
	before := pings()
	await(t, "pinged", func() bool { return pings() != before })
	must(lease.Release(ctx))
	must(<-got)

	lease, err = theirs.Acquire(ctx, core.AcquireOptions{})
	must(err)
	freed, err := mine.ForceUnlock(ctx)
	must(err)
	if !freed {
		t.Error("ForceUnlock found no holder")
	}
	if err := lease.Release(ctx); !errors.Is(err, core.ErrLockLost) {
		t.Errorf("release after a forced unlock: %v, want ErrLockLost", err)
	}
}
