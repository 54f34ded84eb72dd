package inspect

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/internal/lab/redistest"
)

// rawPermit is the ID of a permit as Redisson writes it, and hexPermit as it shows it.
const (
	rawPermit = "\x00\xff\r\n:{}%\x7f\x80\"<é>2"
	hexPermit = "00ff0d0a3a7b7d257f80223cc3a93e32"
)

// A semaphore is what Redis has of one.
type semaphore struct {
	free, declared string // empty: the key is missing
	// taken has the IDs of permits by how long they last. 0: forever.
	taken map[string]time.Duration
}

// write writes the keys of a semaphore as its users do.
func (s semaphore) write(t *testing.T, rdb redis.UniversalClient, name string) {
	t.Helper()
	k := core.KeysOf(name)
	if s.free != "" {
		mustDo(t, rdb, "SET", k.Lock, s.free)
	}
	if s.declared != "" {
		mustDo(t, rdb, "SET", k.Declared, s.declared)
	}
	for id, left := range s.taken {
		expiry := time.Now().Add(left).UnixMilli()
		if left == 0 {
			expiry = 922337203685477
		}
		mustDo(t, rdb, "ZADD", k.Taken, expiry, id)
	}
}

// List and Show see the semaphores of all programs. Permits that have expired are free.
func TestList_Semaphores(t *testing.T) {
	t.Parallel()
	const a, b, since = "a.abcdefgh:1", "b.abcdefgh:2", " 1764345600000"
	minute := time.Minute
	for where, start := range sites {
		t.Run(where, func(t *testing.T) {
			t.Parallel()
			rdb := start(t)
			for name, s := range map[string]semaphore{
				"s:ours":      {"2", "5" + since, map[string]time.Duration{a: minute, b: minute, b + ":2": minute}},
				"s:jvm":       {"1", "", map[string]time.Duration{rawPermit: minute, "0123456789abcdef0123456789abcdef": 0}},
				"s:expired":   {"1", "3" + since, map[string]time.Duration{a: -minute, b: minute}},
				"s:lowered":   {"-1", "2" + since, map[string]time.Duration{a: minute, a + ":2": minute, b: minute}},
				"s:added":     {"9", "2" + since, map[string]time.Duration{a: minute}}, // by a JVM
				"s:torn":      {"", "4" + since, map[string]time.Duration{a: minute}},
				"s:unknown":   {"", "", map[string]time.Duration{a: minute}},
				"s:rest":      {"1", "2" + since, map[string]time.Duration{a + ":2": minute, a + ":3": -minute}}, // without the first
				"s:free":      {"4", "4" + since, nil},
				"s:left":      {"", "4" + since, nil},
				"s:over":      {"3", "", map[string]time.Duration{rawPermit: -minute}},
				"{s}:tag":     {"1", "2" + since, map[string]time.Duration{a: minute}},
				"{s:braced}":  {"1", "2" + since, map[string]time.Duration{a: minute}},
				"{s:b free}":  {"2", "2" + since, nil},
				"s:{other}:1": {"1", "2" + since, map[string]time.Duration{a: minute}},
			} {
				s.write(t, rdb, name)
			}
			// The lock has the name first, and its holder is seen.
			mustDo(t, rdb, "HSET", "s:lock", redissonOwner, 1)
			semaphore{"", "2" + since, map[string]time.Duration{a: minute}}.write(t, rdb, "s:lock")
			// A fenced lock that is free has left its counter.
			mustDo(t, rdb, "SET", core.KeysOf("s:counter").Tokens, 3)
			semaphore{"1", "2" + since, map[string]time.Duration{a: minute}}.write(t, rdb, "s:counter")
			// A lock may have the name of a semaphore's key.
			mustDo(t, rdb, "HSET", "{s}:timeout", redissonOwner, 1)
			mustDo(t, rdb, "HSET", "{s}:permits", redissonOwner, 1)

			// Keys of other programs.
			mustDo(t, rdb, "SET", "s:plain", 3) // RSemaphore
			mustDo(t, rdb, "SET", "s:text", "text")
			mustDo(t, rdb, "SET", "{s:string}:timeout", 30)
			mustDo(t, rdb, "HSET", "{s:hash}:timeout", "connect", 30)
			mustDo(t, rdb, "RPUSH", "{s:list}:timeout", a)
			mustDo(t, rdb, "SADD", "{s:set}:timeout", a)
			mustDo(t, rdb, "ZADD", "{s:sessions}:timeout", time.Now().Add(time.Hour).UnixMilli(), "0123456789abcdef")
			mustDo(t, rdb, "ZADD", "s:unbraced:timeout", time.Now().Add(time.Hour).UnixMilli(), a)
			mustDo(t, rdb, "SET", "{s:role}:permits", "read write")
			mustDo(t, rdb, "SET", "{s:number}:permits", "5")
			mustDo(t, rdb, "HSET", "{s:roles}:permits", "read", 5)

			held := []string{
				"s:added semaphore 1 of 10, 9 free a=1",
				"s:counter semaphore 1 of 2, 1 free a=1",
				"s:expired semaphore 1 of 3, 2 free b=1",
				"s:jvm semaphore 2 of 3, 1 free " + hexPermit[:8] + "=1 01234567=1",
				"s:lock lock 301aaf8b-4c7e-4a6e-9f0e-1d2c3b4a5968=1",
				"s:lowered semaphore 3 of 2, 0 free a=2 b=1",
				"s:ours semaphore 3 of 5, 2 free a=1 b=2",
				"s:rest semaphore 1 of 3, 2 free a=1",
				"s:torn semaphore 1 of 4, 3 free a=1",
				"s:unknown semaphore 1 of -1, 0 free a=1",
				"s:{other}:1 semaphore 1 of 2, 1 free a=1",
				"{s:braced} semaphore 1 of 2, 1 free a=1",
				"{s}:permits lock 301aaf8b-4c7e-4a6e-9f0e-1d2c3b4a5968=1",
				"{s}:tag semaphore 1 of 2, 1 free a=1",
				"{s}:timeout lock 301aaf8b-4c7e-4a6e-9f0e-1d2c3b4a5968=1",
			}
			wantList(t, rdb, ListOptions{}, held)
			wantList(t, rdb, ListOptions{Prefix: "s:o"}, held[6:7])
			wantList(t, rdb, ListOptions{Prefix: "{s:"}, held[11:12])
			wantList(t, rdb, ListOptions{Prefix: "s:b"}, nil)
			wantList(t, rdb, ListOptions{Prefix: "s:t*"}, nil)
			free := []string{
				"s:free semaphore 0 of 4, 4 free",
				"s:left semaphore 0 of 4, 4 free",
				"s:over semaphore 0 of 4, 4 free",
				"{s:b free} semaphore 0 of 2, 2 free",
			}
			all := slices.Concat(held, free)
			wantList(t, rdb, ListOptions{Free: true}, slices.Sorted(slices.Values(all)))
			wantList(t, rdb, ListOptions{Free: true, Prefix: "{s:b "}, free[3:])
			for _, want := range all {
				name, _, _ := strings.Cut(want, " semaphore")
				name, _, _ = strings.Cut(name, " lock")
				l, err := Show(t.Context(), rdb, name)
				if err != nil || describe(l) != want {
					t.Errorf("Show(%q) = %+v, %v; want %s", name, l, err, want)
				}
			}
			for _, name := range []string{"s:plain", "s:text", "s:string", "s:hash", "s:list", "s:set", "s:sessions", "s:role", "s:number", "s:roles", "s:none"} {
				if l, err := Show(t.Context(), rdb, name); !errors.Is(err, ErrNotFound) {
					t.Errorf("Show(%q) = %+v, %v; want ErrNotFound", name, l, err)
				}
			}
		})
	}
}

// How long permits last, and whether one lasts forever. Redisson has no lease unless it is given one.
func TestShow_PermitTTL(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client(t)
	semaphore{"3", "", map[string]time.Duration{"a.abcdefgh:1": time.Minute, rawPermit: time.Hour}}.write(t, rdb, "export")
	l, err := Show(t.Context(), rdb, "export")
	if err != nil || len(l.Holders) != 2 || l.Holders[0].Owner != hexPermit || l.Holders[0].Client != "" {
		t.Fatalf("%+v, %v", l, err)
	}
	near := func(ms int64, want time.Duration) bool {
		d := time.Duration(ms) * time.Millisecond
		return d <= want && d > want-20*time.Second
	}
	if !near(l.Holders[0].TTL, time.Hour) || !near(l.Holders[1].TTL, time.Minute) || l.TTL != l.Holders[0].TTL {
		t.Errorf("%d: %+v", l.TTL, l.Holders)
	}
	semaphore{taken: map[string]time.Duration{rawPermit: 0}}.write(t, rdb, "export")
	if l, err := Show(t.Context(), rdb, "export"); err != nil || l.TTL != -1 || l.Holders[0].TTL != -1 || !near(l.Holders[1].TTL, time.Minute) {
		t.Errorf("%+v, %v", l, err)
	}
}

// The JSON of a semaphore has fields that locks do not have.
func TestSemaphore_JSON(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client(t)
	semaphore{"0", "1 1764345600000", map[string]time.Duration{rawPermit: 0}}.write(t, rdb, "export")
	mustDo(t, rdb, "HSET", "order", redissonOwner, 1)
	for name, want := range map[string]string{
		"export": `{"name":"export","kind":"semaphore","ttl_ms":-1,"listeners":0,"holders":[{"owner":"` + hexPermit +
			`","client":"","count":1,"ttl_ms":-1}],"permits":1,"taken":1,"free":0}`,
		"order": `{"name":"order","kind":"lock","ttl_ms":-1,"listeners":0,"holders":[{"owner":"` + redissonOwner +
			`","client":"301aaf8b-4c7e-4a6e-9f0e-1d2c3b4a5968","count":1}]}`,
	} {
		l, err := Show(t.Context(), rdb, name)
		if err != nil {
			t.Fatal(err)
		}
		text, err := json.Marshal(l)
		if err != nil || string(text) != want {
			t.Errorf("%s, %v; want\n%s", text, err, want)
		}
		var back Lock
		if err := json.Unmarshal(text, &back); err != nil || describe(&back) != describe(l) {
			t.Errorf("%s reads as %+v, %v", text, back, err)
		}
	}
}

// A semaphore with more holders than are shown counts all permits.
func TestShow_ManyPermits(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client(t)
	pipe := rdb.Pipeline()
	k := core.KeysOf("export")
	pipe.Set(t.Context(), k.Lock, 500, 0)
	expiry := float64(time.Now().Add(time.Hour).UnixMilli())
	for i := range 1200 {
		for _, further := range []string{"", ":2"} {
			pipe.ZAdd(t.Context(), k.Taken, redis.Z{Score: expiry + float64(i), Member: fmt.Sprintf("web.abcdefgh:%d%s", i, further)})
		}
	}
	if _, err := pipe.Exec(t.Context()); err != nil {
		t.Fatal(err)
	}
	want := Semaphore{Permits: 2900, Taken: 2400, Free: 500}
	l, err := Show(t.Context(), rdb, "export")
	if err != nil || *l.Semaphore != want || len(l.Holders) != shown/2 || l.MoreHolders != 1400 || l.Holders[0].Count != 2 {
		t.Errorf("%d holders, %d more, %+v, %v", len(l.Holders), l.MoreHolders, l.Semaphore, err)
	}
	locks, more, err := List(t.Context(), rdb, ListOptions{})
	if err != nil || more || len(locks) != 1 || *locks[0].Semaphore != want || len(locks[0].Holders) != listed/2 || locks[0].MoreHolders != 2300 {
		t.Errorf("%+v, %v", locks, err)
	}
}

// What core does is what List shows, and what List shows is what ForceUnlockOwners takes.
func TestList_SemaphoreInUse(t *testing.T) {
	t.Parallel()
	for where, start := range sites {
		t.Run(where, func(t *testing.T) {
			t.Parallel()
			rdb := start(t)
			bg := context.Background()
			a, b := newClient(t, rdb, "a"), newClient(t, rdb, "b")
			exports, shared := a.Semaphore("export", 4), b.Semaphore("export", 0)
			one := take(t, bg, exports)
			lost, err := exports.AcquireN(bg, 2, core.AcquireOptions{})
			if err != nil {
				t.Fatal(err)
			}
			semaphore{taken: map[string]time.Duration{rawPermit: time.Hour}}.write(t, rdb, "export") // A JVM takes the last one.
			mustDo(t, rdb, "DECR", "export")
			wait(t, b.Semaphore("none left", 0))
			wantList(t, rdb, ListOptions{}, []string{"export semaphore 4 of 4, 0 free " + hexPermit[:8] + "=1 a=1 a=2"})

			waiting := make(chan *core.Lease, 1)
			go func() {
				lease, err := shared.Acquire(bg, core.AcquireOptions{WaitTime: time.Minute})
				if err != nil {
					t.Error(err)
				}
				waiting <- lease
			}()
			l := eventually(t, rdb, "export", func(l *Lock) bool { return l.Listeners == 1 })
			owners := []string{hexPermit}
			for _, h := range l.Holders {
				if h.Count == 2 {
					owners = append(owners, h.Owner)
				}
			}
			forced, err := b.ForceUnlockOwners(bg, "export", l.Kind, owners)
			if err != nil || strings.Join(forced.Owners, " ") != strings.Join(owners, " ") || forced.Left != 1 {
				t.Errorf("%+v, %v; want %q", forced, err, owners)
			}
			select {
			case <-lost.Done():
			case <-time.After(20 * time.Second):
				t.Error("the holder was not told")
			}
			lease := <-waiting
			if lease == nil {
				t.FailNow()
			}
			eventually(t, rdb, "export", func(l *Lock) bool { return describe(l) == "export semaphore 2 of 4, 2 free a=1 b=1" })
			if err := lease.Release(bg); err != nil || one.Err() != nil {
				t.Errorf("%v, %v", err, one.Err())
			}
			_ = lost.Release(bg)
		})
	}
}

// The page shows the permits, and takes those of the owners that its reader chooses.
func TestHandler_Semaphore(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	rdb := srv.Client(t)
	locks, other := newClient(t, rdb, "web-1", annotated), newClient(t, rdb, "web-2")
	mine := hold(t, request("POST /exports", "req-7"), locks.Semaphore("export", 5))
	theirs, err := other.Semaphore("export", 0).AcquireN(t.Context(), 2, core.AcquireOptions{})
	if err != nil {
		t.Fatal(err)
	}
	semaphore{taken: map[string]time.Duration{rawPermit: 0}}.write(t, rdb, "export")
	mustDo(t, rdb, "DECR", "export")
	await(t, request("POST /exports", "req-8"), locks.Semaphore("none left", 0))
	for len(locks.Waits()) == 0 {
		time.Sleep(time.Millisecond)
	}
	var audit log
	base := serve(t, locks, Options{AllowUnlock: true, Refresh: leastRefresh, Logger: slog.New(slog.NewTextHandler(&audit, nil))})

	want := func(text string, parts ...string) {
		t.Helper()
		for _, part := range parts {
			if !strings.Contains(text, part) {
				t.Errorf("the page lacks %s:\n%s", part, text)
			}
		}
	}
	_, text, _ := get(t, base)
	want(text, `<span class="kind semaphore">semaphore</span>`, "<strong>4 of 5</strong> taken", "<code>"+hexPermit+"</code>", locks.ID()+":", other.ID()+":",
		"2 permits", "POST /exports", "req-7", `<span class="bad">forever</span>`, ">none left<", "req-8")
	_, text, _ = get(t, base+"locks.json")
	want(text, `"permits":5,"taken":4,"free":1`, `"request_id":"req-7"`)

	_, question, _ := get(t, base+"unlock?name=export")
	want(question, "4 of 5", `name="owner" value="`+hexPermit+`" checked`, `name="owner" value="`+locks.ID())
	answer := func(reason string, owners ...string) (status int, text string) {
		t.Helper()
		resp, err := http.PostForm(base+"unlock?name=export", url.Values{"owner": owners, "reason": {reason}})
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(body)
	}
	status, text := answer("stuck")
	if want(text, "Choose whose permits", `value="`+hexPermit+`">`); status != http.StatusUnprocessableEntity {
		t.Errorf("no owner: status %d", status)
	}
	status, text = answer("", hexPermit)
	if want(text, "Say why", `value="`+hexPermit+`" checked`); status != http.StatusUnprocessableEntity || strings.Count(text, " checked>") != 1 {
		t.Errorf("no reason: status %d, %s", status, text)
	}
	var owner string
	for _, h := range locks.Holds() {
		owner = h.Owner
	}
	status, text = answer("the JVM has died", hexPermit, owner)
	if want(text, "Freed permits of <code>export</code>", "<code>"+hexPermit+"</code>", "Permits that others have still: 2."); status != http.StatusOK {
		t.Errorf("status %d", status)
	}
	if mine.Err() == nil || theirs.Err() != nil {
		t.Errorf("the owner that was chosen: %v; the other: %v", mine.Err(), theirs.Err())
	}
	want(audit.String(), `reason="the JVM has died"`, "kind=semaphore", "left=2", hexPermit)
	if status, text = answer("again", hexPermit); status != http.StatusConflict || !strings.Contains(text, "have no permits now") {
		t.Errorf("status %d, %s", status, text)
	}
	if err := theirs.Release(t.Context()); err != nil {
		t.Error(err)
	}
	if status, text = answer("again", hexPermit); status != http.StatusConflict || !strings.Contains(text, "0 of 5") {
		t.Errorf("status %d, %s", status, text)
	}
}

// Without Redis, all permits of this process are one row.
func TestAddHolds_PermitsAlone(t *testing.T) {
	t.Parallel()
	locks := addHolds(nil, []core.Hold{
		{Key: "export", Kind: "semaphore", Owner: "a.abcdefgh:1", Count: 1, Remaining: time.Second},
		{Key: "export", Kind: "semaphore", Owner: "a.abcdefgh:2", Count: 1, Remaining: time.Minute, Held: time.Hour},
		{Key: "order", Kind: "lock", Owner: "a.abcdefgh:3", Count: 2, Remaining: time.Minute, Token: 7},
	}, true)
	if len(locks) != 2 || locks[0].TTL != 60_000 || len(locks[0].Holders) != 2 || locks[0].Holders[0].TTL != 1000 || locks[0].Holders[1].Held != 3_600_000 {
		t.Errorf("%+v", locks)
	}
	if l := locks[1]; l.Holders[0].TTL != 0 || l.Holders[0].Count != 2 || l.Holders[0].Client != "a.abcdefgh" || l.Token != 7 || l.Listeners != -1 {
		t.Errorf("%+v", l)
	}
}
