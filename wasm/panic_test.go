package wasm

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"

	"github.com/reqlock/reqlock/guard"
)

const bug = "a bug\nin wazero"

// A panickyFunction panics when it is called.
type panickyFunction struct{ api.Function }

func (panickyFunction) CallWithStack(context.Context, []uint64) error { panic(bug) }

// A panickyRuntime panics when it compiles or starts a guest.
type panickyRuntime struct {
	wazero.Runtime
	// compiles is true if it panics only in a start.
	compiles bool
}

func (r panickyRuntime) CompileModule(ctx context.Context, binary []byte) (wazero.CompiledModule, error) {
	if r.compiles {
		return r.Runtime.CompileModule(ctx, binary)
	}
	panic(bug)
}

func (r panickyRuntime) InstantiateModule(context.Context, wazero.CompiledModule, wazero.ModuleConfig) (api.Module, error) {
	panic(bug)
}

// checkOneLine fails the test unless the log has one line, with the panic of the engine.
func checkOneLine(t *testing.T, log *logged) {
	t.Helper()
	if strings.Count(log.String(), "\n") != 1 || !strings.Contains(log.String(), "the engine panicked: a bug?in wazero") {
		t.Errorf("log:\n%s", log)
	}
}

// A panic inside wazero in a call fails that call and logs one line.
func TestPanic_InCall(t *testing.T) {
	t.Parallel()
	log := &logged{}
	p := start(t, "c", Config{Logger: slog.New(slog.NewTextHandler(log, nil))})
	first := p.current.idle[0]
	first.handle = panickyFunction{first.handle}
	checkPanicked(t, p)
	checkOneLine(t, log)
	if v := ask(t, p.Policy, request("GET", "/", "", "acme")); v.Policy.Keys == nil || p.current.idle[0] == first {
		t.Errorf("%+v, or the same instance", v)
	}
}

// So does one in the start of an instance for a call.
func TestPanic_InStartForCall(t *testing.T) {
	t.Parallel()
	log := &logged{}
	p := start(t, "c", Config{Isolate: true, Logger: slog.New(slog.NewTextHandler(log, nil))})
	ask(t, p.Policy, request("GET", "/", "", "acme")) // uses the idle instance
	working := p.current.runtime
	p.current.runtime = panickyRuntime{working, true}
	checkPanicked(t, p)
	p.current.runtime = working
	checkOneLine(t, log)
	if v := ask(t, p.Policy, request("GET", "/", "", "acme")); v.Policy.Keys == nil {
		t.Errorf("%+v", v)
	}
	if n := p.Stats().Instances; n != 0 {
		t.Errorf("%d instances are left", n)
	}
}

// checkPanicked makes a call in which the engine panics.
func checkPanicked(t *testing.T, p *Plugin) {
	t.Helper()
	err := p.Policy(request("GET", "/", "", "acme"), new(guard.Policy))
	var answer *guard.Error
	if !errors.Is(err, ErrTrap) || !errors.As(err, &answer) || answer.Type != guard.ProblemPluginFailed || strings.Contains(answer.Detail, "bug") {
		t.Errorf("%v, %+v", err, answer)
	}
}

// A panic inside wazero while it loads a new version logs one line, and the old version stays.
func TestPanic_InReload(t *testing.T) {
	t.Parallel()
	panicky := func(compiles bool) newRuntime {
		return func(ctx context.Context, cfg wazero.RuntimeConfig) wazero.Runtime {
			return panickyRuntime{wazero.NewRuntimeWithConfig(ctx, cfg), compiles}
		}
	}
	for step, engine := range map[string]newRuntime{
		"before the compilation": func(context.Context, wazero.RuntimeConfig) wazero.Runtime { panic(bug) },
		"in the compilation":     panicky(false),
		"in the start":           panicky(true),
	} {
		t.Run(step, func(t *testing.T) {
			t.Parallel()
			f, look := watchByHand(t, keyed(t, "a"))
			f.engine = engine
			f.replace(keyed(t, "b"))
			look()
			look() // the content has settled
			checkOneLine(t, f.log)
			if !strings.Contains(f.log.String(), "new version of the plugin failed to load, keeping the old one") || f.keys() != "key-a" {
				t.Errorf("the key is %s, log:\n%s", f.keys(), f.log)
			}
		})
	}
}

// A panickyLog panics on what guests log.
type panickyLog struct{ slog.Handler }

func (l panickyLog) WithAttrs(a []slog.Attr) slog.Handler { return panickyLog{l.Handler.WithAttrs(a)} }

func (l panickyLog) Handle(ctx context.Context, r slog.Record) error {
	if strings.Contains(r.Message, "guest log") {
		panic(bug)
	}
	return l.Handler.Handle(ctx, r)
}

// A panic of a host function, such as one of the service's logger, in the start of a guest fails
// the load with a short text.
func TestPanic_OfHostFunctionInStart(t *testing.T) {
	t.Parallel()
	log := &logged{}
	p, err := New(context.Background(), binary(t, "wat"), Config{
		Settings: []byte("l"), InitTimeout: loading, Logger: slog.New(panickyLog{slog.NewTextHandler(log, nil)}),
	})
	if p != nil || !errors.Is(err, ErrTrap) || !strings.Contains(err.Error(), "a bug") || len(err.Error()) > 2*maxText {
		t.Errorf("%v", err)
	}
	if log.String() != "" {
		t.Errorf("log:\n%s", log)
	}
}
