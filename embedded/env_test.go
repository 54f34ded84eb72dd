package embedded

import (
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/reqlock/reqlock/internal/redistest"
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
		t.Errorf("the server after Close: %v, want it to run on", err)
	}
}

func TestMalformedURL(t *testing.T) {
	t.Parallel()
	tests := map[string]string{ // URL -> what the error says besides
		"127.0.0.1:6379":                        "redis://[user:password@]host:port",
		"localhost:6379":                        "redis://[user:password@]host:port",
		"http://127.0.0.1:6379":                 "http://127.0.0.1:6379 is malformed: redis: invalid URL scheme: http",
		"redis://127.0.0.1:6379/first":          `redis://127.0.0.1:6379/first is malformed: redis: invalid database number: "first"`,
		"redis://127.0.0.1:6379/0?no_such=1":    "unexpected option: no_such",
		"redis://127.0.0.1:port":                "not shown",
		"unix://":                               "empty unix socket path",
		"redis://:secret@127.0.0.1:6379/x":      "redis://***@127.0.0.1:6379/x is malformed",
		"redis://u:secret@127.0.0.1:6379/0?x=1": "redis://***@127.0.0.1:6379/0 is malformed",
		"redis://secret@127.0.0.1:6379/x":       "redis://***@127.0.0.1:6379/x is malformed",
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

// checkOneLine checks what every error of FromEnv has to be.
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

// Not parallel: go-redis has one logger. It must stay silent, for a program that
// cannot use REDIS_URL prints one line.
func TestUnusableServer(t *testing.T) {
	logged := len(goRedisLog.all())
	redisServer := redistest.Start(t, "user u on >other ~* &* +@all")
	guarded := start(t)
	guarded.mini.RequireAuth("other")
	tests := map[string]struct{ url, want string }{
		"refused":        {"redis://u:secret@127.0.0.1:1", "redis://***@127.0.0.1:1 is unusable: dial tcp 127.0.0.1:1: connect: connection refused; start that server, correct REDIS_URL, or unset it"},
		"many idle":      {"redis://u:secret@127.0.0.1:1?min_idle_conns=3&max_retries=5", "connection refused"},
		"no socket":      {"unix://u:secret@" + filepath.Join(t.TempDir(), "none.sock"), "no such file"},
		"silent":         {"redis://u:secret@" + listen(t, func(net.Conn) {}), "no answer within 200ms"},
		"silent TLS":     {"rediss://u:secret@" + listen(t, func(net.Conn) {}), "no answer within 200ms"},
		"no TLS":         {"rediss://u:secret@" + redisServer.Addr(), "is unusable"},
		"wrong password": {"redis://u:secret@" + redisServer.Addr(), "WRONGPASS"},
		"no password":    {guarded.URL(), "NOAUTH"},
		"no such number": {"redis://u:other@" + redisServer.Addr() + "/99", "DB index is out of range"},
		"not Redis": {"redis://u:secret@" + listen(t, func(conn net.Conn) {
			fmt.Fprint(conn, "HTTP/1.1 400 Bad Request\r\n\r\n")
		}), "is unusable"},
		"hangs up": {"redis://u:secret@" + listen(t, func(conn net.Conn) { conn.Close() }), "is unusable"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			began := time.Now()
			srv, err := connect(test.url, 200*time.Millisecond)
			if err == nil {
				_ = srv.Close()
				t.Fatal("no error")
			}
			checkOneLine(t, err, test.want)
			// Far more than the timeout, far less than the retries that go-redis would make.
			if took := time.Since(began); took > 5*time.Second {
				t.Errorf("it took %v", took)
			}
		})
	}
	if lines := goRedisLog.all()[logged:]; len(lines) > 0 {
		t.Errorf("go-redis has logged %q", lines)
	}
}

// listen accepts connections and serves each, until the test ends.
func listen(t *testing.T, serve func(net.Conn)) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var accepting sync.WaitGroup
	accepting.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			t.Cleanup(func() { _ = conn.Close() })
			serve(conn)
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		accepting.Wait()
	})
	return listener.Addr().String()
}
