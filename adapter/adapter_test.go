package adapter_test

import (
	"context"
	"errors"
	"go/parser"
	"go/token"
	"net/http"
	"net/http/httptest"
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

// This module's adapters import nothing internal, so an adapter outside can do what they do.
func TestAdapters_NeedNothingInternal(t *testing.T) {
	t.Parallel()
	files := 0
	for _, framework := range []string{"nethttp", "gin", "echo", "echov5", "fiber"} {
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

func TestHandlerFunctions_InGuard(t *testing.T) {
	t.Parallel()
	locks := newLocks(t)
	failure := errors.New("the release failed")
	var outcome guard.Outcome
	g, err := guard.New(locks, guard.Config{
		Key:        keyfuncs.BodyHash(),
		BufferBody: 100,
		Observe:    func(_ *http.Request, o guard.Outcome) { outcome = o },
	})
	if err != nil {
		t.Fatal(err)
	}
	r := httptest.NewRequest("POST", "/", strings.NewReader("body"))
	if adapter.Buffered(r) {
		t.Error("Buffered is true before the guard reads the body")
	}
	g.Serve(httptest.NewRecorder(), r, func(_ http.ResponseWriter, r *http.Request) {
		if !adapter.Buffered(r) {
			t.Error("Buffered is false after the guard read the body")
		}
		adapter.SetStatus(r.Context(), 201)
		err := adapter.ReleaseBy(r.Context(), func(lease *core.Lease) error {
			return errors.Join(failure, lease.Release(r.Context()))
		})
		if !errors.Is(err, failure) {
			t.Errorf("ReleaseBy: %v, want %v", err, failure)
		}
		if err := adapter.ReleaseBy(r.Context(), nil); !errors.Is(err, core.ErrNotHeld) {
			t.Errorf("a second ReleaseBy: %v, want %v", err, core.ErrNotHeld)
		}
	})
	if !outcome.Ran || outcome.Status != 201 || !errors.Is(outcome.Err, failure) {
		t.Errorf("the outcome is %+v, want status 201 and %v", outcome, failure)
	}
}

func TestHandlerFunctions_OutsideGuard(t *testing.T) {
	t.Parallel()
	adapter.SetStatus(t.Context(), 200)
	if err := adapter.ReleaseBy(t.Context(), nil); !errors.Is(err, core.ErrNotHeld) {
		t.Errorf("ReleaseBy: %v, want %v", err, core.ErrNotHeld)
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
