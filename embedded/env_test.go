package embedded

import (
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/reqlock/reqlock"
	"github.com/reqlock/reqlock/internal/lab/redistest"
)

func fromEnv(t *testing.T, value string) *Server {
	t.Helper()
	t.Setenv("REDIS_URL", value)
	srv, err := FromEnv()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := srv.Close(); err != nil {
			t.Error(err)
		}
	})
	return srv
}

func TestFromEnvWithoutURL(t *testing.T) {
	for _, value := range []string{"", "  \n"} {
		srv := fromEnv(t, value)
		if !srv.Embedded() {
			t.Errorf("with REDIS_URL=%q Embedded() = false", value)
		}
		if err := srv.Client().Ping(t.Context()).Err(); err != nil {
			t.Error(err)
		}
	}
}

func TestFromEnvWithURL(t *testing.T) {
	redisServer := redistest.Start(t, "user me on >pass@word ~* &* +@all")
	own := redisServer.ClientWith(t, func(o *redis.Options) { o.DB = 3 })

	srv := fromEnv(t, fmt.Sprintf(" redis://me:pass%%40word@%s/3?client_name=mine ", redisServer.Addr()))
	if srv.Embedded() {
		t.Error("Embedded() = true")
	}
	if srv.Addr() != redisServer.Addr() {
		t.Errorf("Addr() = %q, want %q", srv.Addr(), redisServer.Addr())
	}
	if want := fmt.Sprintf("redis://***@%s/3", redisServer.Addr()); srv.URL() != want {
		t.Errorf("URL() = %q, want %q", srv.URL(), want)
	}

	one, two := srv.Client(), srv.Client()
	if err := one.Set(t.Context(), "k", "v", 0).Err(); err != nil {
		t.Fatal(err)
	}
	if got, err := own.Get(t.Context(), "k").Result(); got != "v" || err != nil {
		t.Errorf("database 3 of that server holds %q, %v; want v", got, err)
	}
	if name, err := two.ClientGetName(t.Context()).Result(); name != "mine" || err != nil {
		t.Errorf("the client's name is %q, %v; want the one of the URL", name, err)
	}
	if user, err := two.Do(t.Context(), "ACL", "WHOAMI").Text(); user != "me" || err != nil {
		t.Errorf("the client's user is %q, %v; want the one of the URL", user, err)
	}

	if err := srv.Close(); err != nil {
		t.Fatal(err)
	}
	if err := one.Ping(t.Context()).Err(); !errors.Is(err, redis.ErrClosed) {
		t.Errorf("a client after Close: %v, want redis.ErrClosed", err)
	}
	if err := own.Ping(t.Context()).Err(); err != nil {
		t.Errorf("the server after Close: %v, want it to keep running", err)
	}
}

func TestMalformedURL(t *testing.T) {
	t.Parallel()
	tests := map[string]string{ // URL -> text of the error
		"127.0.0.1:6379":                        "redis://[user:password@]host:port",
		"localhost:6379":                        "redis://[user:password@]host:port",
		"http://127.0.0.1:6379":                 "http://127.0.0.1:6379 is malformed: invalid URL scheme: http",
		"redis://127.0.0.1:6379/first":          `redis://127.0.0.1:6379/*** is malformed: invalid database number`,
		"redis://127.0.0.1:6379/0?no_such=1":    "unexpected option: no_such",
		"redis://127.0.0.1:port":                "not shown",
		"unix://":                               "empty unix socket path",
		"redis://:secret@127.0.0.1:6379/x":      "redis://***@127.0.0.1:6379/*** is malformed",
		"redis://u:secret@127.0.0.1:6379/0?x=1": "redis://***@127.0.0.1:6379/0 is malformed",
		"redis://secret@127.0.0.1:6379/x":       "redis://***@127.0.0.1:6379/*** is malformed",
		"redis://default:/secret":               "redis://default:/*** is malformed",
		"redis://default:/secret@127.0.0.1":     "not shown",
		"redis://u:secret@127.0.0.1:port":       "not shown",
		"redis://:secret":                       "not shown",
		"redis://u:%secret@127.0.0.1:6379":      "percent-encoded",
		"redis://:sec/secret@127.0.0.1:6379":    "percent-encoded",
		"redis://u/secret@127.0.0.1:6379":       "percent-encoded",
		"redis://u?secret@127.0.0.1:6379":       "percent-encoded",
		"redis://u#secret@127.0.0.1:6379":       "percent-encoded",
		"redis:secret@127.0.0.1:6379":           "not shown",
		"redis://:sec\nsecret@127.0.0.1:6379":   "not shown",
		"user:secret@127.0.0.1:6379":            "not shown",
		"secret":                                "not shown",
		"//u:secret@127.0.0.1:6379":             "not shown",
		"secret\x00":                            "not shown",
	}
	for raw, want := range tests {
		t.Run(raw, func(t *testing.T) {
			t.Parallel()
			srv, err := connect(raw, time.Minute)
			if err == nil {
				_ = srv.Close()
				t.Fatal("no error")
			}
			checkOneLine(t, err, want)
		})
	}
}

// checkOneLine checks what every error of FromEnv must satisfy.
func checkOneLine(t *testing.T, err error, want string) {
	t.Helper()
	text := err.Error()
	if !strings.HasPrefix(text, "reqlock: embedded: REDIS_URL ") || strings.ContainsAny(text, "\r\n\x00") {
		t.Errorf("error %q, want one line that begins with the package and the variable", text)
	}
	if strings.Contains(text, "secret") {
		t.Errorf("error %q shows the password", text)
	}
	if !strings.Contains(text, want) {
		t.Errorf("error %q, want %q in it", text, want)
	}
}

// Not parallel, because go-redis has one global logger. It must stay silent: a program that cannot
// use REDIS_URL prints one line.
func TestUnusableServer(t *testing.T) {
	logged := len(goRedisLog.all())
	redisServer := redistest.Start(t, "user u on >other ~* &* +@all")
	guarded := start(t)
	guarded.mini.RequireAuth("other")
	silent, silentTLS := newStranger(t, func(net.Conn) {}), newStranger(t, func(net.Conn) {})
	httpServer := newStranger(t, func(conn net.Conn) { fmt.Fprint(conn, "HTTP/1.1 400 Bad Request\r\n\r\n") })
	hangsUp := newStranger(t, func(conn net.Conn) { conn.Close() })
	// go-redis would retry; FromEnv makes one attempt.
	const retries = "?min_idle_conns=3&max_retries=5"
	tests := map[string]struct {
		url, want string
		stranger  *stranger
	}{
		"refused":    {url: "redis://u:secret@127.0.0.1:1", want: "redis://***@127.0.0.1:1 is unusable: dial tcp 127.0.0.1:1: connect: connection refused; start that server, correct REDIS_URL, or unset it"},
		"many idle":  {url: "redis://u:secret@127.0.0.1:1" + retries, want: "connection refused"},
		"no socket":  {url: "unix://u:secret@" + filepath.Join(t.TempDir(), "none.sock"), want: "no such file"},
		"silent":     {url: "redis://u:secret@" + silent.addr + retries, want: "no answer within 200ms", stranger: silent},
		"silent TLS": {url: "rediss://u:secret@" + silentTLS.addr + retries, want: "no answer within 200ms", stranger: silentTLS},
		// The server waits for the end of a line.
		"no TLS":         {url: "rediss://u:secret@" + redisServer.Addr(), want: "no answer within 200ms"},
		"wrong password": {url: "redis://u:secret@" + redisServer.Addr(), want: "WRONGPASS"},
		"no password":    {url: guarded.URL(), want: "NOAUTH"},
		"no such number": {url: "redis://u:other@" + redisServer.Addr() + "/99", want: "DB index is out of range"},
		"not Redis":      {url: "redis://u:secret@" + httpServer.addr + retries, want: "is unusable", stranger: httpServer},
		"hangs up":       {url: "redis://u:secret@" + hangsUp.addr + retries, want: "is unusable", stranger: hangsUp},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			timeout := time.Minute // servers that answer do so in time, however slow the machine
			if strings.Contains(test.want, "200ms") {
				timeout = 200 * time.Millisecond
			}
			srv, err := connect(test.url, timeout)
			if err == nil {
				_ = srv.Close()
				t.Fatal("no error")
			}
			checkOneLine(t, err, test.want)
			if test.stranger != nil && test.stranger.conns.Load() > 1 {
				t.Errorf("%d connections for one attempt", test.stranger.conns.Load())
			}
		})
	}
	if lines := goRedisLog.all()[logged:]; len(lines) > 0 {
		t.Errorf("go-redis logged %q", lines)
	}
}

// A stranger is a server that is not Redis.
type stranger struct {
	addr  string
	conns atomic.Int64
}

// newStranger accepts connections and serves each until the test ends.
func newStranger(t *testing.T, serve func(net.Conn)) *stranger {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &stranger{addr: listener.Addr().String()}
	var accepting sync.WaitGroup
	accepting.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			s.conns.Add(1)
			t.Cleanup(func() { _ = conn.Close() })
			serve(conn)
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		accepting.Wait()
	})
	return s
}

// Redis learns that a connection is of reqlock, and of which version.
func TestIdentity(t *testing.T) {
	proxy := redistest.Start(t).Proxy(t)
	named := proxy.OnMatch(1, func(args []string) bool {
		return len(args) == 4 && strings.EqualFold(args[2], "lib-name") && strings.Contains(args[3], "("+reqlock.Identity+",")
	}, redistest.Delay(time.Millisecond))
	srv := fromEnv(t, "redis://"+proxy.Addr())
	if err := srv.Client().Ping(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	select {
	case <-named.Hit():
	default:
		t.Errorf("no CLIENT SETINFO with %s", reqlock.Identity)
	}
}
