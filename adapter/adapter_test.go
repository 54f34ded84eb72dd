package adapter_test

import (
	"context"
	"go/parser"
	"go/token"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/reqlock/reqlock/adapter"
	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/embedded"
	"github.com/reqlock/reqlock/guard"
	"github.com/reqlock/reqlock/internal/lab/redistest"
	"github.com/reqlock/reqlock/keyfuncs"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(redistest.Settled(m)) }

// frameworks returns the folders of middleware, one for each adapter.
func frameworks(t *testing.T) (names []string) {
	t.Helper()
	folders, err := os.ReadDir("../middleware")
	if err != nil {
		t.Fatal(err)
	}
	for _, folder := range folders {
		names = append(names, folder.Name())
	}
	return names
}

// This module's adapters import nothing internal, so an adapter outside can do what they do.
func TestAdapters_NeedNothingInternal(t *testing.T) {
	t.Parallel()
	files := 0
	for _, framework := range frameworks(t) {
		paths, err := filepath.Glob("../middleware/" + framework + "/*.go")
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range paths {
			if strings.HasSuffix(path, "_test.go") {
				continue
			}
			files++
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
			if err != nil {
				t.Fatal(err)
			}
			for _, spec := range file.Imports {
				if strings.Contains(spec.Path.Value, "/internal/") {
					t.Errorf("%s imports %s", path, spec.Path.Value)
				}
			}
		}
	}
	if files < 6 {
		t.Errorf("found %d files of adapters, want at least 6", files)
	}
}

// What handlers call is there under every adapter's name, and the same.
func TestAdapters_SpeakForHandlers(t *testing.T) {
	t.Parallel()
	shared := func(framework string) string {
		text, err := os.ReadFile("../middleware/" + framework + "/handler.go")
		if err != nil {
			t.Fatalf("%v: copy it from middleware/nethttp", err)
		}
		_, own, _ := strings.Cut(string(text), "\nimport (") // before it, a generated file says so
		return own
	}
	first := shared("nethttp")
	for _, framework := range frameworks(t) {
		if shared(framework) != first {
			t.Errorf("middleware/%s/handler.go differs from middleware/nethttp/handler.go", framework)
		}
	}
	if !strings.Contains(first, "func LeaseFrom(") {
		t.Error("there is no LeaseFrom")
	}
}

func newLocks(t *testing.T) *core.Client {
	t.Helper()
	redis, err := embedded.Start()
	if err != nil {
		t.Fatal(err)
	}
	locks, err := core.New(redis.Client(), core.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := locks.Close(context.Background()); err != nil {
			t.Error(err)
		}
		redis.Close()
	})
	return locks
}

func TestBuffered(t *testing.T) {
	t.Parallel()
	g, err := guard.New(newLocks(t), guard.Config{Key: keyfuncs.BodyHash(), BufferBody: 100})
	if err != nil {
		t.Fatal(err)
	}
	r := httptest.NewRequest("POST", "/", strings.NewReader("body"))
	if adapter.Buffered(r) {
		t.Error("Buffered is true before the guard reads the body")
	}
	ran := false
	g.Serve(httptest.NewRecorder(), r, func(_ http.ResponseWriter, r *http.Request) {
		ran = true
		if !adapter.Buffered(r) {
			t.Error("Buffered is false after the guard read the body")
		}
	})
	if !ran {
		t.Error("the handler did not run")
	}
}

// A frameworkContext hides the request's context, as *gin.Context does.
type frameworkContext struct {
	context.Context
	r *http.Request
}

func init() {
	adapter.RegisterContext(func(ctx context.Context) context.Context {
		if c, ok := ctx.(*frameworkContext); ok {
			return c.r.Context()
		}
		return nil
	})
}

func TestRegisterContext(t *testing.T) {
	t.Parallel()
	locks := newLocks(t)
	g, err := guard.New(locks, guard.Config{Key: keyfuncs.Const("k")})
	if err != nil {
		t.Fatal(err)
	}
	g.Serve(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil), func(_ http.ResponseWriter, r *http.Request) {
		ctx := &frameworkContext{context.Background(), r}
		if _, ok := guard.LeaseFrom(ctx); !ok {
			t.Error("guard does not find the lease by the framework's context")
		}
		lease, err := locks.Lock("reqlock:k").Acquire(ctx, core.AcquireOptions{})
		if err != nil {
			t.Errorf("core does not find the owner by the framework's context: %v", err)
			return
		}
		if err := lease.Release(ctx); err != nil {
			t.Error(err)
		}
	})
}
