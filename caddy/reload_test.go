package caddylock_test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/reqlock/reqlock/internal/lab/redistest"
)

// connectionsMade returns how many connections Redis has accepted.
func connectionsMade(t testing.TB, rdb *redis.Client) int {
	t.Helper()
	info, err := rdb.Info(t.Context(), "stats").Result()
	match := regexp.MustCompile(`total_connections_received:(\d+)`).FindStringSubmatch(info)
	if err != nil || match == nil {
		t.Fatal(err, info)
	}
	n, _ := strconv.Atoi(match[1])
	return n
}

// A hundred reloads under load: no request fails, no two overlap, a request that holds its lock and
// one that waits for it stay, and Redis sees no new connection.
func TestReload(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	rdb := server.Client(t)
	s := startPython(t)
	config := func(n int) string {
		return caddyfile("reqlock {\n redis redis://"+server.Addr()+"?pool_size=5\n }", fmt.Sprintf(`
			header Config %d
			reqlock /orders/* {
				key order:{path.1}
				wait 1m
			}
			reqlock_idempotent /payments/* {
				scope global
				wait 1m
			}
			reverse_proxy %s`, n, s.addr()))
	}
	p := startCaddy(t, config(0))
	held := p.doAsync(t, http.MethodPost, "/orders/held?gate=a")
	s.eventuallyCalls(t, 1)
	waiting := p.doAsync(t, http.MethodPost, "/orders/held")
	eventuallyWaiting(t, rdb, "reqlock:order:held")
	owner := rdb.HKeys(t.Context(), "reqlock:order:held").Val()

	// At a reload, Caddy itself loses connections that are idle or just accepted, also without locks.
	// A client sends such a request again.
	client := p.newClient(t, &http.Transport{DisableKeepAlives: true})
	// Enough load to open all connections to Redis that the pool may have.
	stop := make(chan struct{})
	var load sync.WaitGroup
	var served, cut atomic.Int64
	for i := range 8 {
		load.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				path, key := fmt.Sprintf("/orders/%d?ms=1", i%3), ""
				if i%4 == 3 {
					path, key = fmt.Sprintf("/payments/%d", i), fmt.Sprintf("%d-%d", i, n/2)
				}
				a := send(t.Context(), client, http.MethodPost, p.url(path), "", "Idempotency-Key", key)
				switch {
				case a.err != nil:
					cut.Add(1)
				case a.status != http.StatusOK:
					t.Errorf("%s: %v", path, a)
					return
				default:
					served.Add(1)
				}
			}
		})
	}
	more := func(n int64) {
		seen := served.Load()
		eventually(t, "requests", func() bool { return served.Load() >= seen+n || t.Failed() })
	}
	more(100)
	before := connectionsMade(t, rdb)
	for n := 1; n <= 100; n++ {
		p.reload(t, config(n))
		more(1)
	}
	made := connectionsMade(t, rdb) - before
	close(stop)
	load.Wait()

	// The pool still opens a few, and dials again on a slow machine. Reloads that connect make 100.
	if made > 20 {
		t.Errorf("Redis has accepted %d connections meanwhile", made)
	}
	if a := p.do(t, http.MethodGet, "/orders/last"); a.header.Get("Config") != "100" {
		t.Errorf("configuration %s answers", a.header.Get("Config"))
	}
	if now := rdb.HKeys(t.Context(), "reqlock:order:held").Val(); fmt.Sprint(now) != fmt.Sprint(owner) {
		t.Errorf("the lock has the holder %v, and had %v", now, owner)
	}
	s.open(t, "a")
	for _, answers := range []<-chan answer{held, waiting} {
		if a := mustReceive(t, answers); a.status != http.StatusOK || a.header.Get("Config") != "0" {
			t.Errorf("of the requests that were there before: %v, configuration %s", a, a.header.Get("Config"))
		}
	}
	for _, c := range s.journal(t) {
		if c.Overlaps && strings.HasPrefix(c.Path, "/orders/") {
			t.Errorf("a call of %s overlaps with another", c.Path)
		}
	}
	if _, bad := p.log.find("lock was lost"); bad == nil {
		t.Errorf("a lock was lost:\n%s", p.log)
	}
	t.Logf("%d requests served, %d connections cut", served.Load(), cut.Load())
}

// Other settings of Redis are used by new requests. Those that run keep the old connection until
// they end, and then it is closed.
func TestReload_OtherRedis(t *testing.T) {
	t.Parallel()
	old, next := redistest.Start(t), redistest.Start(t)
	oldClient, nextClient := old.Client(t), next.Client(t)
	s := startPython(t)
	config := func(redis *redistest.Server) string {
		return caddyfile("reqlock {\n redis redis://"+redis.Addr()+"\n client_id caddy\n }", `
			reqlock {
				key {path.1}
				wait 1m
			}
			reverse_proxy `+s.addr())
	}
	p := startCaddy(t, config(old))
	held := p.doAsync(t, http.MethodPost, "/orders/7?gate=a")
	s.eventuallyCalls(t, 1)
	waiting := p.doAsync(t, http.MethodPost, "/orders/7")
	eventuallyWaiting(t, oldClient, "reqlock:7")
	p.reload(t, config(next))
	if a := p.do(t, http.MethodPost, "/orders/8"); a.status != http.StatusOK {
		t.Errorf("a new request: %v", a)
	}
	if n := nextClient.Exists(t.Context(), "reqlock:7").Val(); n != 0 || oldClient.Exists(t.Context(), "reqlock:7").Val() != 1 {
		t.Error("the lock has moved")
	}
	s.open(t, "a")
	for _, answers := range []<-chan answer{held, waiting} {
		if a := mustReceive(t, answers); a.status != http.StatusOK {
			t.Errorf("of the requests that were there before: %v", a)
		}
	}
	eventually(t, "the old connection to close", func() bool {
		list, err := oldClient.ClientList(t.Context()).Result()
		return err == nil && strings.Count(list, "\n") == 1 // that of the test
	})
	eventuallyEmpty(t, oldClient)
}

// A configuration that cannot be loaded changes nothing.
func TestReload_Refused(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	s := startPython(t)
	good := caddyfile("reqlock {\n redis redis://"+redis.Addr()+"\n }", `
		reqlock {
			key {path.1}
		}
		reverse_proxy `+s.addr())
	p := startCaddy(t, good)
	if err := p.tryReload(strings.Replace(good, "key {path.1}", "mode fair", 1)); err == nil || !strings.Contains(err.Error(), "neither a key nor a policy") {
		t.Errorf("error %v", err)
	}
	// This one fails after the handlers are provisioned.
	late := strings.Replace(good, "reverse_proxy", "log {\n output file /dev/null/x\n }\n reverse_proxy", 1)
	if err := p.tryReload(late); err == nil {
		t.Error("the configuration was loaded")
	}
	if a := p.do(t, http.MethodPost, "/orders/7"); a.status != http.StatusOK {
		t.Errorf("%v", a)
	}
	eventuallyEmpty(t, redis.Client(t))
}

// A signal answers those who wait at once, and lets those who hold a lock finish.
func TestStop(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	rdb := redis.Client(t)
	s := startPython(t)
	p := startCaddy(t, caddyfile("reqlock {\n redis redis://"+redis.Addr()+"\n }", `
		reqlock {
			key {path.1}
			wait 10m
		}
		reverse_proxy `+s.addr()))
	held := p.doAsync(t, http.MethodPost, "/orders/7?gate=a")
	s.eventuallyCalls(t, 1)
	waiting := p.doAsync(t, http.MethodPost, "/orders/7")
	eventuallyWaiting(t, rdb, "reqlock:7")
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if a := mustReceive(t, waiting); a.status != http.StatusServiceUnavailable || a.problem() != "shutting-down" || a.header.Get("Retry-After") == "" {
		t.Errorf("the request that waited: %v", a)
	}
	s.open(t, "a")
	if a := mustReceive(t, held); a.status != http.StatusOK {
		t.Errorf("the request that held its lock: %v", a)
	}
	<-p.ended
	if keys := rdb.Keys(t.Context(), "*").Val(); len(keys) > 0 {
		t.Errorf("%q are left:\n%s", keys, p.log)
	}
}

// A request that still runs when the grace period ends loses its lock in an orderly way.
func TestStop_GracePeriod(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	rdb := redis.Client(t)
	s := startPython(t)
	p := startCaddy(t, caddyfile("grace_period 100ms\nreqlock {\n redis redis://"+redis.Addr()+"\n }", `
		reqlock {
			key {path.1}
		}
		reverse_proxy `+s.addr()))
	_ = p.doAsync(t, http.MethodPost, "/orders/7?gate=never")
	s.eventuallyCalls(t, 1)
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	select {
	case <-p.ended:
	case <-time.After(patience):
		t.Fatal("Caddy still runs")
	}
	if keys := rdb.Keys(t.Context(), "*").Val(); len(keys) > 0 {
		t.Errorf("%q are left:\n%s", keys, p.log)
	}
}

// A plugin decides, follows its file, and stays over reloads.
func TestPolicy(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s := names(t, server.Client(t))
	plugin := filepath.Join(t.TempDir(), "policy.wasm")
	// A plugin in Go has megabytes, and a slow machine compiles it for longer than Caddy waits.
	binary, err := os.ReadFile("../wasm/testdata/lang-c.wasm")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(plugin, binary, 0o600); err != nil {
		t.Fatal(err)
	}
	config := caddyfile("reqlock {\n redis redis://"+server.Addr()+"\n }", `
		reqlock {
			policy `+plugin+`
		}
		reverse_proxy `+strings.TrimPrefix(s.URL, "http://"))
	p := startCaddy(t, config)
	for range 3 {
		if a := p.do(t, http.MethodPost, "/", "X-Tenant", "acme"); a.status != http.StatusOK || a.body != "reqlock:acme" {
			t.Errorf("%v, want the lock reqlock:acme", a)
		}
		p.reload(t, config)
	}
}
