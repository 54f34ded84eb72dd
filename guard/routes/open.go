package routes

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
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

	checked sync.Once // CheckOnce has been called.

	// reload lets one load run at a time, and guards plugins: those of the current generation, by
	// their paths.
	reload  sync.Mutex
	plugins map[string]*openPlugin
	// closing counts earlier generations whose plugins are not closed yet. A load adds to it.
	closing sync.WaitGroup

	mu      sync.Mutex
	current *generation[S]
	// has tells whether the program has a route. nil: Check was not called.
	has    func(Route) bool
	closed bool
}

// A generation is the rows of one version of the file.
type generation[S any] struct {
	// rows finds what was built of a row by its canonical pattern and its method.
	rows   map[string]map[string]S
	source []Row
	// paths match the paths of the patterns of source.
	paths   []*regexp.Regexp
	plugins map[string]*openPlugin
	// users counts the requests, and Routes while the generation is current. Routes.mu guards it.
	users int
	// known has the canonical pattern of each one that a request had.
	known sync.Map
}

// An openPlugin is a plugin and how many generations name it. The last one closes it.
type openPlugin struct {
	Plugin
	generations int // Routes.mu guards it.
}

// ErrClosed is the error of a Reload after Close.
var ErrClosed = errors.New("reqlock: routes: the file is closed")

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
		opts.logger().Error("reqlock: routes: cannot read the file, keeping the old version", "error", err)
	}}, src)
	if opts.Watch {
		t.watch.Start(cmp.Or(opts.interval, watch.Interval), opts.ReloadOn...)
	} else if len(opts.ReloadOn) > 0 {
		t.watch.Start(0, opts.ReloadOn...)
	}
	return t, nil
}

func readFile(path string) ([]byte, error) {
	src, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("reqlock: routes: %w", err)
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
		t.opts.logger().Error("reqlock: routes: the new version of the file has mistakes, keeping the old one", "error", err)
		return err
	}
	t.opts.logger().Info("reqlock: routes: new version of the file loaded", "file", t.path)
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
	next, err := t.newGeneration(rows)
	if err != nil {
		return err
	}
	t.plugins = next.plugins
	t.swap(next)
	if err := t.recheck(); err != nil {
		t.opts.logger().Warn("reqlock: routes: the new version of the file has rows that do nothing", "error", err)
	}
	return nil
}

func (t *Routes[S]) pluginPath(path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(filepath.Dir(t.path), path)
}

// newGeneration builds rows, and opens the plugins that are not open.
func (t *Routes[S]) newGeneration(rows []Row) (*generation[S], error) {
	next := &generation[S]{rows: make(map[string]map[string]S), source: rows, plugins: make(map[string]*openPlugin), users: 1}
	for _, row := range rows {
		if err := t.add(next, row); err != nil {
			return nil, errors.Join(&Error{File: t.path, Place: row.Place, Text: err.Error()}, t.discard(next))
		}
	}
	return next, nil
}

// add builds a row of a generation.
func (t *Routes[S]) add(next *generation[S], row Row) error {
	if row.Plugin != "" {
		plugin, err := t.plugin(next, t.pluginPath(row.Plugin))
		if err != nil {
			return err
		}
		row.Guard.Policy = plugin.Policy
	}
	if shared := row.Shared; shared != nil && shared.Plugin != "" {
		plugin, err := t.plugin(next, t.pluginPath(shared.Plugin))
		if err != nil {
			return err
		}
		shared.Policy = plugin.Policy
	}
	built, err := t.build(row)
	if err != nil {
		return err
	}
	route := canonical(row.Pattern)
	if next.rows[route] == nil {
		next.rows[route] = make(map[string]S)
	}
	next.rows[route][row.Method] = built
	next.paths = append(next.paths, pathsOf(row.Pattern))
	return nil
}

// plugin returns the plugin of a path for a generation: that of the current one, or a new one.
func (t *Routes[S]) plugin(next *generation[S], path string) (*openPlugin, error) {
	if plugin := next.plugins[path]; plugin != nil {
		return plugin, nil
	}
	plugin := t.plugins[path]
	if plugin == nil {
		if t.opts.OpenPlugin == nil {
			return nil, errors.New("plugins are off; set Options.OpenPlugin, such as to a function that calls wasm.Open")
		}
		opened, err := t.opts.OpenPlugin(path)
		if err != nil {
			return nil, err
		}
		plugin = &openPlugin{Plugin: opened}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	plugin.generations++
	next.plugins[path] = plugin
	return plugin, nil
}

// discard closes what only a generation that failed to load names.
func (t *Routes[S]) discard(g *generation[S]) error {
	t.mu.Lock()
	last := g.drop()
	t.mu.Unlock()
	return closeAll(context.Background(), last)
}

// drop takes the references of a generation from its plugins, and returns those that nothing names
// any more. It needs Routes.mu.
func (g *generation[S]) drop() (last []*openPlugin) {
	for _, plugin := range g.plugins {
		if plugin.generations--; plugin.generations == 0 {
			last = append(last, plugin)
		}
	}
	return last
}

func closeAll(ctx context.Context, plugins []*openPlugin) error {
	var all []error
	for _, plugin := range plugins {
		all = append(all, plugin.Close(ctx))
	}
	return errors.Join(all...)
}

// swap makes next the current generation. The earlier one lives until its last request ends.
func (t *Routes[S]) swap(next *generation[S]) {
	t.mu.Lock()
	old := t.current
	t.current = next
	t.mu.Unlock()
	if old == nil {
		return
	}
	if len(old.plugins) > 0 {
		t.closing.Add(1)
	}
	t.leave(old)
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

// leave ends a use of a generation. The last one closes the plugins that no other generation names.
func (t *Routes[S]) leave(g *generation[S]) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if g.users--; g.users > 0 || len(g.plugins) == 0 {
		return
	}
	last := g.drop()
	go func() {
		defer t.closing.Done()
		if err := closeAll(context.Background(), last); err != nil {
			t.opts.logger().Error("reqlock: routes: a plugin did not close", "error", err)
		}
	}()
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
	err := closeAll(ctx, slices.Collect(maps.Values(t.plugins)))
	done := make(chan struct{})
	go func() {
		t.closing.Wait()
		close(done)
	}()
	select {
	case <-done:
		return err
	case <-ctx.Done():
		return errors.Join(err, fmt.Errorf("reqlock: routes: requests still use an earlier version of the file: %w", ctx.Err()))
	}
}
