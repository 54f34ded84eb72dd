package wasm

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"

	"github.com/reqlock/reqlock/wasm/internal/meter"
)

// The functions a guest exports.
const (
	exportMemory = "memory"
	exportHandle = "handle_request"
)

// A program is a compiled binary and its idle instances. It has its own runtime, so that closing it
// frees everything.
type program struct {
	cfg     *Config
	journal *journal
	counts  *counts
	breaker *breaker
	shared  *shared
	engine  newRuntime
	// settings is Config.Settings.
	settings string
	// declared is what the first instance declared. nil: it has ABI version 1.
	declared *declaration
	compilation
	// start is the export to call first. It is empty if there is none.
	start string
	// version2 is true if the ABI has version 2.
	version2  bool
	readsBody bool

	// running counts calls. The plugin adds to it under its mutex, and only while the program is
	// current, so never after a Wait has begun.
	running sync.WaitGroup

	mu sync.Mutex
	// idle has at most MaxInstances, because only calls put instances back.
	idle []*instance
}

// newRuntime is wazero.NewRuntimeWithConfig, except in tests.
type newRuntime func(context.Context, wazero.RuntimeConfig) wazero.Runtime

// A purpose says why a binary is compiled.
type purpose int

const (
	toOpen   purpose = iota // the service waits for it
	toReload                // requests run beside it
)

// run runs a compilation.
func (why purpose) run(compilation func()) {
	if why == toReload {
		atLowPriority(compilation)
	} else {
		compilation()
	}
}

// load compiles a binary and creates an instance to check that it starts.
func (plugin *Plugin) load(ctx context.Context, binary []byte, why purpose) (_ *program, err error) {
	p := &program{cfg: &plugin.cfg, journal: plugin.journal, counts: &plugin.counts, shared: plugin.shared, engine: plugin.engine, settings: string(plugin.cfg.Settings)}
	p.breaker = &breaker{after: p.cfg.BreakAfter, least: minFailing, first: p.cfg.BreakFor, changed: p.breakerChanged, clock: time.Now}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.close())
		}
	}()
	if err := p.compile(ctx, binary, why); err != nil {
		return nil, err
	}
	first, err := p.instantiate(ctx)
	if err != nil {
		return nil, err
	}
	p.idle = append(p.idle, first)
	if p.declared = first.declared; p.declared != nil {
		p.readsBody = p.readsBody || p.declared.has(fieldBody)
	}
	return p, nil
}

// breakerChanged logs when the program is suspended and when it works again, and tells the
// observer.
func (p *program) breakerChanged(c breakerChange) {
	switch {
	case c.from == BreakerClosed:
		p.journal.announce(slog.LevelError, "reqlock: wasm: the plugin keeps failing, suspending it", c.cause.Error())
	case c.to == BreakerClosed:
		p.journal.announce(slog.LevelInfo, "reqlock: wasm: the plugin works again", "a call succeeded")
	}
	if observe := p.cfg.Observer.Breaker; observe != nil {
		observe(BreakerEvent{Plugin: p.journal.plugin, State: c.to, Pause: c.pause, Err: c.cause})
	}
}

// A compilation is a compiled binary with its runtime. A program owns them.
type compilation struct {
	runtime  wazero.Runtime
	cache    wazero.CompilationCache // nil: none
	compiled wazero.CompiledModule
}

// compile waits for its turn and compiles the binary. It returns when ctx ends or InitTimeout is
// over, though a compilation cannot be stopped: it then ends in the background, soon because of the
// limits of package meter, and no longer has the turn.
func (p *program) compile(ctx context.Context, binary []byte, why purpose) error {
	turn, err := compilations.await(ctx)
	if err != nil {
		return fmt.Errorf("reqlock: wasm: waiting for another compilation was stopped: %w", err)
	}
	limited, cancel := context.WithTimeoutCause(ctx, p.cfg.InitTimeout, fmt.Errorf("%w: more than %s", ErrTimeout, p.cfg.InitTimeout))
	defer cancel()
	type outcome struct {
		compilation
		err error
	}
	done := make(chan outcome)
	go func() {
		defer turn.end()
		var o outcome
		why.run(func() { o.compilation, o.err = p.build(binary) })
		select {
		case done <- o:
		case <-limited.Done():
			_ = o.close() // the result of a load that was given up
		}
	}()
	select {
	case result := <-done:
		p.compilation = result.compilation
		if result.err != nil {
			return result.err
		}
		return p.link(ctx)
	case <-limited.Done():
		turn.giveUp()
		return fmt.Errorf("reqlock: wasm: compiling the guest: %w", context.Cause(limited))
	}
}

// build meters and compiles the binary.
func (p *program) build(binary []byte) (c compilation, err error) {
	defer recoverPanic(&err)
	metered, err := meter.Instrument(binary, meter.DefaultLimits(int(p.cfg.MaxFile)))
	if err != nil {
		return c, breach("%s", printable(err.Error(), maxText))
	}
	c, fault := p.compileWith(metered, p.cfg.CacheDir)
	if fault != nil && c.cache != nil { // the cache may be at fault: a full disk, a damaged entry
		_ = c.close()
		if c, err = p.compileWith(metered, ""); err == nil {
			p.journal.announce(slog.LevelError, "reqlock: wasm: cannot use CacheDir, compiling the plugin without it", fault.Error())
		}
		return c, err
	}
	return c, fault
}

// compileWith compiles a metered binary. It uses no cache if dir is empty.
func (p *program) compileWith(metered []byte, dir string) (c compilation, err error) {
	ctx := context.Background()
	config := wazero.NewRuntimeConfig().
		WithCoreFeatures(api.CoreFeaturesV2).
		WithMemoryLimitPages(uint32(p.cfg.MemoryLimit / page)).
		WithCustomSections(true).
		WithDebugInfoEnabled(false)
	if dir != "" {
		if err := makeCacheDir(dir); err != nil { // others may have changed it since New
			return compilation{}, fmt.Errorf("reqlock: wasm: %w", err)
		}
		if c.cache, err = wazero.NewCompilationCacheWithDir(dir); err != nil {
			return compilation{}, fmt.Errorf("reqlock: wasm: CacheDir: %w", err)
		}
		config = config.WithCompilationCache(c.cache)
	}
	c.runtime = p.engine(ctx, config)
	c.compiled, err = compileModule(ctx, c.runtime, metered)
	switch {
	case errors.Is(err, ErrTrap): // it panicked
		return c, err
	case err != nil:
		return c, breach("%s (memory beyond MemoryLimit, %d bytes, is refused)", printable(err.Error(), maxText), p.cfg.MemoryLimit)
	}
	return c, nil
}

// compileModule converts a panic of the compiler to an error, as a damaged entry of the cache might
// cause one.
func compileModule(ctx context.Context, r wazero.Runtime, binary []byte) (_ wazero.CompiledModule, err error) {
	defer recoverPanic(&err)
	return r.CompileModule(ctx, binary)
}

// close frees what was compiled. No instance may run.
func (c compilation) close() error {
	var errs []error
	ctx := context.Background()
	if c.runtime != nil {
		errs = append(errs, c.runtime.Close(ctx))
	}
	if c.cache != nil {
		errs = append(errs, c.cache.Close(ctx))
	}
	return errors.Join(errs...)
}

// link instantiates the host modules that the guest imports. It refuses imports that no host
// function provides.
func (p *program) link(ctx context.Context) error {
	if err := instantiateMeter(ctx, p.runtime); err != nil {
		return fmt.Errorf("reqlock: wasm: %w", err)
	}
	for name, functions := range hostModules {
		if err := functions.instantiate(ctx, p.runtime, name); err != nil {
			return fmt.Errorf("reqlock: wasm: %w", err)
		}
	}
	if err := p.checkImports(); err != nil {
		return err
	}
	return p.checkExports()
}

func (p *program) checkImports() error {
	var unknown []string
	for _, f := range p.compiled.ImportedFunctions() {
		module, name, _ := f.Import()
		if module == meter.Module {
			continue
		}
		var host api.FunctionDefinition
		if m := p.runtime.Module(module); m != nil {
			host = m.ExportedFunctionDefinitions()[name]
		}
		switch {
		case host == nil:
			unknown = append(unknown, module+"."+name)
		case !slices.Equal(host.ParamTypes(), f.ParamTypes()) || !slices.Equal(host.ResultTypes(), f.ResultTypes()):
			unknown = append(unknown, fmt.Sprintf("%s.%s%s, which here is %s", module, name, signature(f), signature(host)))
		}
		p.readsBody = p.readsBody || module == moduleHTTP && name == "read_body"
	}
	for _, m := range p.compiled.ImportedMemories() {
		module, name, _ := m.Import()
		unknown = append(unknown, module+"."+name+", a memory; a guest brings its own")
	}
	if len(unknown) == 0 {
		return nil
	}
	slices.Sort(unknown)
	return breach("it imports what the host does not have: %s", cut(strings.Join(slices.Compact(unknown), "; "), maxText))
}

func signature(f api.FunctionDefinition) string {
	names := func(types []api.ValueType) string {
		list := make([]string, len(types))
		for i, t := range types {
			list[i] = api.ValueTypeName(t)
		}
		return "(" + strings.Join(list, " ") + ")"
	}
	return names(f.ParamTypes()) + "->" + names(f.ResultTypes())
}

func (p *program) checkExports() error {
	functions := p.compiled.ExportedFunctions()
	if _, ok := p.compiled.ExportedMemories()[exportMemory]; !ok {
		return breach("it exports no memory %q", exportMemory)
	}
	handle, ok := functions[exportHandle]
	switch {
	case !ok && p.isGo() && functions["_initialize"] == nil:
		return breach("%s", p.reactorHint())
	case !ok:
		return breach("it exports no function %q", exportHandle)
	case len(handle.ParamTypes()) > 0 || !slices.Equal(handle.ResultTypes(), []api.ValueType{api.ValueTypeI64}):
		return breach("its %s is %s; want ()->(i64)", exportHandle, signature(handle))
	}
	if err := p.checkVersion(); err != nil {
		return err
	}
	for _, name := range []string{"_initialize", "_start"} {
		if f, ok := functions[name]; ok {
			if len(f.ParamTypes()) > 0 || len(f.ResultTypes()) > 0 {
				return breach("its %s is %s; want ()->()", name, signature(f))
			}
			p.start = name
			return nil
		}
	}
	return nil
}

// checkVersion refuses versions of the ABI that the host does not have. A guest of version 2
// exports a function of that name; version 1 has only imports.
func (p *program) checkVersion() error {
	for name, f := range p.compiled.ExportedFunctions() {
		switch number, ok := strings.CutPrefix(name, "reqlock_v"); {
		case !ok || strings.Trim(number, "0123456789") != "":
		case name != exportV2:
			return breach("it exports %s; this host has versions 1 and 2 of the ABI", name)
		case len(f.ParamTypes()) > 0 || !slices.Equal(f.ResultTypes(), []api.ValueType{api.ValueTypeI32}):
			return breach("its %s is %s; want ()->(i32)", exportV2, signature(f))
		default:
			p.version2 = true
		}
	}
	for _, f := range p.compiled.ImportedFunctions() {
		if module, name, _ := f.Import(); p.version2 && module == moduleReqlock {
			return breach("it exports %s, so its decision is a record, and imports %s.%s of version 1", exportV2, module, name)
		}
	}
	return nil
}

// exitsInStart reports whether the guest is a command, which runs and exits, not a reactor, which
// is called.
func (p *program) exitsInStart(err error) bool {
	var exit *exitError
	return errors.As(err, &exit) && exit.code == 0 && p.start == "_start"
}

func (p *program) reactorHint() string {
	if p.isGo() {
		return "a Go guest must be built with -buildmode=c-shared: GOOS=wasip1 GOARCH=wasm go build -buildmode=c-shared"
	}
	return "build it as a reactor, which exports _initialize"
}

// isGo reports whether the binary was built by the Go toolchain.
func (p *program) isGo() bool {
	return slices.ContainsFunc(p.compiled.CustomSections(), func(s api.CustomSection) bool { return s.Name() == "go:buildid" })
}

// run decides on one request in an idle or new instance. It closes the instance if the call did not
// end well.
func (p *program) run(c *call) error {
	i, err := p.take()
	if err != nil {
		return err
	}
	if err := i.run(c); err != nil || !i.usable() {
		i.close()
		return err
	}
	err = i.decision(c) // before another call changes the guest's memory
	if p.cfg.Isolate {
		i.close()
		return err
	}
	p.mu.Lock()
	p.idle = append(p.idle, i)
	p.mu.Unlock()
	return err
}

// take returns the most recently used idle instance, whose memory is most likely cached, or a new
// one.
func (p *program) take() (*instance, error) {
	p.mu.Lock()
	if last := len(p.idle) - 1; last >= 0 {
		i := p.idle[last]
		p.idle[last] = nil
		p.idle = p.idle[:last]
		p.mu.Unlock()
		return i, nil
	}
	p.mu.Unlock()
	return p.instantiate(context.Background()) // a client that disconnects must not stop the start
}

// close frees the program after its last call.
func (p *program) close() error {
	p.running.Wait()
	for _, i := range p.idle {
		i.close()
	}
	p.idle = nil
	if err := p.compilation.close(); err != nil {
		return fmt.Errorf("reqlock: wasm: closing: %w", err)
	}
	return nil
}
