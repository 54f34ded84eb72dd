package config

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"

	"github.com/reqlock/reqlock/internal/watch"
	"github.com/reqlock/reqlock/keyfuncs"
)

// Routes is the table of an open file. Its rows are what an adapter has built of them. Each load of
// the file makes a new generation; requests that are under way keep theirs.
type Routes[S any] struct {
	path  string
	opts  Options
	build func(Row) (S, error)
	watch *watch.Watch

	checked sync.Once // of CheckOnce

	reload sync.Mutex // one load at a time; guards plugins
	// plugins are open, by path: those of the current generation.
	plugins map[string]Plugin
	closing sync.WaitGroup // of plugins that no row names any more

	mu      sync.Mutex
	current *generation[S]
	has     func(Route) bool // of Check; nil: it was not called
	closed  bool
}

// A generation is the rows of one version of the file.
type generation[S any] struct {
	rows    map[string]map[string]S // by canonical pattern and method
	source  []Row
	paths   []*regexp.Regexp // what the patterns of source match
	users   int              // requests that use it; guarded by Routes.mu
	retired bool
	unused  chan struct{} // closed when it is retired and has no users
	known   sync.Map      // canonical patterns of those in requests
}

// ErrClosed is the error of a Reload after Close.
var ErrClosed = errors.New("reqlock: config: the file is closed")

// Open reads a file and builds its rows. It fails on any mistake. Close it after the server's
// Shutdown. Adapters call it; programs call FromFile of an adapter.
func Open[S any](path string, opts Options, build func(Row) (S, error)) (*Routes[S], error) {
	t := &Routes[S]{path: path, opts: opts, build: build}
	src, err := readFile(path)
	if err != nil {
		return nil, err
	}
	if err := t.load(src); err != nil {
		return nil, err
	}
	t.watch = watch.New(watch.File{Path: path, Read: func() ([]byte, error) { return readFile(path) }, Load: t.loadNew, Unreadable: func(err error) {
		opts.logger().Error("reqlock: config: cannot read the file, keeping the old version", "error", err)
	}}, src)
	if opts.Watch {
		t.watch.Start(watch.Interval, opts.ReloadOn...)
	} else if len(opts.ReloadOn) > 0 {
		t.watch.Start(0, opts.ReloadOn...)
	}
	return t, nil
}

func readFile(path string) ([]byte, error) {
	src, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("reqlock: config: %w", err)
	}
	return src, nil
}

// Reload loads the file again. If it has a mistake, the rows stay as they are.
func (t *Routes[S]) Reload() error {
	src, err := readFile(t.path)
	if err != nil {
		return err
	}
	err = t.load(src)
	t.watch.Settle(src, err)
	return err
}

// loadNew loads what the watch has found.
func (t *Routes[S]) loadNew(_ context.Context, src []byte) error {
	switch err := t.load(src); {
	case errors.Is(err, ErrClosed):
		return err
	case err != nil:
		t.opts.logger().Error("reqlock: config: the new version of the file has mistakes, keeping the old one", "error", err)
		return err
	}
	t.opts.logger().Info("reqlock: config: new version of the file loaded", "file", t.path)
	return nil
}

// load makes a generation of a file and puts it in place of the current one.
func (t *Routes[S]) load(src []byte) error {
	t.reload.Lock()
	defer t.reload.Unlock()
	if t.isClosed() {
		return ErrClosed
	}
	rows, err := Parse(t.path, src, t.opts)
	if err != nil {
		return err
	}
	opened := make(map[string]Plugin)
	next, err := t.newGeneration(rows, opened)
	if err != nil {
		return errors.Join(err, closeAll(context.Background(), opened))
	}
	old := t.swap(next)
	if err := t.recheck(); err != nil {
		t.opts.logger().Warn("reqlock: config: the new version of the file has rows that do nothing", "error", err)
	}
	dropped := t.plugins
	t.plugins = make(map[string]Plugin)
	for _, row := range rows {
		if row.Plugin == "" {
			continue
		}
		path := t.pluginPath(row.Plugin)
		plugin, isNew := opened[path]
		if !isNew && dropped[path] != nil {
			plugin = dropped[path]
			delete(dropped, path)
		} else if !isNew {
			plugin = t.plugins[path]
		}
		t.plugins[path] = plugin
	}
	if old != nil && len(dropped) > 0 {
		t.closing.Go(func() {
			<-old.unused
			if err := closeAll(context.Background(), dropped); err != nil {
				t.opts.logger().Error("reqlock: config: a plugin did not close", "error", err)
			}
		})
	}
	return nil
}

func closeAll(ctx context.Context, plugins map[string]Plugin) error {
	var all []error
	for _, plugin := range plugins {
		all = append(all, plugin.Close(ctx))
	}
	return errors.Join(all...)
}

func (t *Routes[S]) pluginPath(path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(filepath.Dir(t.path), path)
}

// newGeneration builds rows. It opens the plugins that are not open, into opened.
func (t *Routes[S]) newGeneration(rows []Row, opened map[string]Plugin) (*generation[S], error) {
	next := &generation[S]{rows: make(map[string]map[string]S), source: rows, unused: make(chan struct{})}
	for _, row := range rows {
		mistake := func(err error) error {
			return &Error{File: t.path, Place: row.Place, Text: err.Error()}
		}
		if row.Plugin != "" {
			plugin, err := t.plugin(t.pluginPath(row.Plugin), opened)
			if err != nil {
				return nil, mistake(err)
			}
			row.Guard.Policy = plugin.Policy
		}
		built, err := t.build(row)
		if err != nil {
			return nil, mistake(err)
		}
		route := canonical(row.Pattern)
		if next.rows[route] == nil {
			next.rows[route] = make(map[string]S)
		}
		next.rows[route][row.Method] = built
		next.paths = append(next.paths, pathsOf(row.Pattern))
	}
	return next, nil
}

func (t *Routes[S]) plugin(path string, opened map[string]Plugin) (Plugin, error) {
	if plugin, ok := t.plugins[path]; ok {
		return plugin, nil
	}
	if plugin, ok := opened[path]; ok {
		return plugin, nil
	}
	if t.opts.OpenPlugin == nil {
		return nil, errors.New("plugins are off; set Options.OpenPlugin, such as to a function that calls wasm.Open")
	}
	plugin, err := t.opts.OpenPlugin(path)
	if err != nil {
		return nil, err
	}
	opened[path] = plugin
	return plugin, nil
}

// swap returns the earlier generation; nil: there was none.
func (t *Routes[S]) swap(next *generation[S]) (old *generation[S]) {
	t.mu.Lock()
	defer t.mu.Unlock()
	old, t.current = t.current, next
	if old != nil {
		old.retired = true
		old.checkUnused()
	}
	return old
}

// checkUnused needs Routes.mu.
func (g *generation[S]) checkUnused() {
	if g.retired && g.users == 0 {
		close(g.unused)
	}
}

func (t *Routes[S]) isClosed() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.closed
}

// Serve calls serve with what was built of the row of a matched request, and reports whether there
// is one. What it was built of stays open until serve returns.
func (t *Routes[S]) Serve(r *http.Request, serve func(S)) bool {
	g := t.enter()
	defer t.leave(g)
	built, ok := g.find(r.Pattern, r.Method)
	if ok {
		serve(built)
	}
	return ok
}

// ServeHandler is Serve for a middleware of http.Handlers, which cannot see what router has set
// r.Pattern, nor whether another one comes after it. It fails with keyfuncs.ErrNoRoute if it cannot
// know the route: if r.Pattern is empty, or if it is that of a subtree without a row, where the
// path is that of another row. The route of that row is one of a router further inside then.
//
// chi cuts the last slash of a pattern. So /orders has the row of /orders/ if it has none of its
// own.
func (t *Routes[S]) ServeHandler(r *http.Request, serve func(S)) (found bool, err error) {
	if r.Pattern == "" {
		return false, keyfuncs.ErrNoRoute
	}
	g := t.enter()
	defer t.leave(g)
	built, ok := g.find(r.Pattern, r.Method)
	if !ok && mayLackSlash(r.Pattern) {
		built, ok = g.find(r.Pattern+"/", r.Method)
	}
	if !ok {
		return false, g.inside(t.path, r)
	}
	serve(built)
	return true, nil
}

// mayLackSlash reports whether a pattern may be one of chi. Those have neither a method nor a host.
func mayLackSlash(route string) bool {
	return route[0] == '/' && !strings.HasSuffix(route, "/") && !strings.HasSuffix(route, "*")
}

func (t *Routes[S]) enter() *generation[S] {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.current.users++
	return t.current
}

func (t *Routes[S]) leave(g *generation[S]) {
	t.mu.Lock()
	defer t.mu.Unlock()
	g.users--
	g.checkUnused()
}

// find returns the row of a route: that of the method, or else that of all methods.
func (g *generation[S]) find(matched, method string) (built S, ok bool) {
	route, known := g.known.Load(matched)
	if !known {
		route = canonical(matched)
		g.known.Store(matched, route)
	}
	rows := g.rows[route.(string)]
	if built, ok = rows[method]; ok {
		return built, true
	}
	if method == http.MethodHead {
		if built, ok = rows[http.MethodGet]; ok {
			return built, true
		}
	}
	built, ok = rows[""]
	return built, ok
}

// Close stops watching the file and closes its plugins. It waits until ctx ends for plugins whose
// calls are under way. Requests that come later pass their plugins' errors on: close the server
// before.
func (t *Routes[S]) Close(ctx context.Context) error {
	t.mu.Lock()
	again := t.closed
	t.closed = true
	t.mu.Unlock()
	if again {
		return nil
	}
	t.watch.Stop()
	t.reload.Lock() // a Reload may be under way
	defer t.reload.Unlock()
	err := closeAll(ctx, t.plugins)
	done := make(chan struct{})
	go func() {
		t.closing.Wait()
		close(done)
	}()
	select {
	case <-done:
		return err
	case <-ctx.Done():
		return errors.Join(err, fmt.Errorf("reqlock: config: requests still use an earlier version of the file: %w", ctx.Err()))
	}
}
