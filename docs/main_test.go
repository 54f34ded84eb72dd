// Package docs_test holds the tests of README.md and of the pages below this directory. They run at
// the top of the repository, so that paths in snippets are those that a reader types.
package docs_test

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"github.com/gin-gonic/gin"
	"go.uber.org/goleak"

	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/embedded"
	"github.com/reqlock/reqlock/internal/lab/redistest"
	httplock "github.com/reqlock/reqlock/middleware/nethttp"
)

func init() { gin.SetMode(gin.TestMode) }

// server is the Redis of the examples: a real one, or under -short the embedded one.
var server interface {
	Addr() string
	Close() error
}

func TestMain(m *testing.M) {
	flag.Parse() // for testing.Short
	if err := os.Chdir(".."); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	goleak.VerifyTestMain(redistest.Settled(withServer{m}))
}

// withServer runs the tests with a Redis, and stops it before the check for leaked goroutines.
type withServer struct{ *testing.M }

func (w withServer) Run() (code int) {
	var err error
	if testing.Short() {
		server, err = embedded.Start()
	} else {
		server, err = redistest.Run()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() {
		if err := server.Close(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = max(code, 1)
		}
	}()
	return w.M.Run()
}

// newLocks returns a client of a new Redis.
func newLocks(t *testing.T) *core.Client {
	t.Helper()
	locks, err := core.New(redistest.Start(t).Client(t), core.Options{Logger: slog.New(slog.DiscardHandler)})
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

// hold holds a lock as another process would, until the test ends.
func hold(t *testing.T, locks *core.Client, name string) {
	t.Helper()
	lease, err := locks.Lock(name).Acquire(context.Background(), core.AcquireOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := lease.Release(context.Background()); err != nil {
			t.Error(err)
		}
	})
}

// held answers with the name of the held lock.
func held(w http.ResponseWriter, r *http.Request) {
	if lease, ok := httplock.LeaseFrom(r.Context()); ok {
		fmt.Fprint(w, lease.Name())
	}
}

// answerOf returns a handler's answer to a request: the status, a space, and the body.
func answerOf(h http.Handler, r *http.Request) string {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return fmt.Sprint(w.Code, " ", w.Body)
}

// get returns a request for path.
func get(path string) *http.Request { return httptest.NewRequest(http.MethodGet, path, nil) }

func post(path string) *http.Request { return httptest.NewRequest(http.MethodPost, path, nil) }

type tenantKey struct{}

// accountOf puts the account into the context, like authentication.
func accountOf(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), tenantKey{}, "acme")))
	})
}

// serves returns the answer to a POST with the idempotency key k.
func serves(h http.Handler, path string) string {
	r := post(path)
	r.Header.Set("Idempotency-Key", "k")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return fmt.Sprint(w.Code, " ", w.Body, " ", w.Header().Get("Idempotent-Replayed"))
}

func await(t *testing.T, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !is(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("timed out waiting for %s", what)
		}
	}
}

// documents returns the texts whose snippets must be in a test.
func documents(t *testing.T) map[string]string {
	t.Helper()
	paths, err := filepath.Glob("docs/*/*.md")
	if err != nil {
		t.Fatal(err)
	}
	texts := make(map[string]string)
	for _, path := range append(paths, "README.md", "docs/README.md", "adapter/README.md", "adapter/CONFORMANCE.md", "wasm/ABI.md", "wasm/HOST.md", "wasm/LANGUAGES.md") {
		texts[path] = read(t, path)
	}
	return texts
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// blocks returns the code blocks of a Markdown text in one language.
func blocks(text, language string) (found []string) {
	for _, match := range regexp.MustCompile("(?ms)^```"+language+"\n(.*?)^```$").FindAllStringSubmatch(text, -1) {
		found = append(found, match[1])
	}
	return found
}
