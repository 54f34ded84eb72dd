package routes_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/reqlock/reqlock/guard"
	"github.com/reqlock/reqlock/guard/routes"
	"github.com/reqlock/reqlock/keyfuncs"
)

const patience = 20 * time.Second

// A file is a routes file in a temporary directory. From each row it builds the first key, or the
// plugin.
type file struct {
	*testing.T
	path string
	log  journal

	mu     sync.Mutex
	events []string // of plugins
}

// A journal is a log that can be read while it is written to.
type journal struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (j *journal) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.buf.Write(p)
}

func (j *journal) text() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.buf.String()
}

func newFile(t *testing.T, src string) *file {
	t.Helper()
	f := &file{T: t, path: filepath.Join(t.TempDir(), "locks.json")}
	f.put(src)
	return f
}

// put replaces the file as operators should: by renaming another one over it.
func (f *file) put(src string) {
	f.Helper()
	next := f.path + ".next"
	if err := os.WriteFile(next, []byte(src), 0o600); err != nil {
		f.Fatal(err)
	}
	if err := os.Rename(next, f.path); err != nil {
		f.Fatal(err)
	}
}

func (f *file) open(change func(*routes.Options)) *routes.Routes[string] {
	f.Helper()
	opts := routes.Options{Logger: slog.New(slog.NewTextHandler(&f.log, nil)), OpenPlugin: f.openPlugin}
	change(&opts)
	table, err := routes.Open(f.path, opts, func(row routes.Row) (string, error) {
		if slices.Contains(row.Keys, "cannot be built") {
			return "", errors.New("this one cannot be built")
		}
		return strings.Join(row.Keys, ",") + row.Plugin, nil
	})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() {
		if err := table.Close(context.Background()); err != nil {
			f.Error(err)
		}
	})
	return table
}

func (f *file) event(text string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.events = append(f.events, text)
}

func (f *file) eventText() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return strings.Join(f.events, ", ")
}

type plugin struct {
	f    *file
	name string
}

func (f *file) openPlugin(path string) (routes.Plugin, error) {
	name := filepath.Base(path)
	if filepath.Dir(path) != filepath.Dir(f.path) || name == "missing.wasm" {
		return nil, errors.New("no plugin at " + path)
	}
	f.event("open " + name)
	return plugin{f, name}, nil
}

func (p plugin) Policy(*http.Request, *guard.Policy) error { return nil }

func (p plugin) Close(context.Context) error {
	p.f.event("close " + p.name)
	return nil
}

// found returns what was built for a request; "-": it has no row.
func found(table *routes.Routes[string], method, pattern string) string {
	r := httptest.NewRequest(method, "/", nil)
	r.Pattern = pattern
	built := "-"
	table.Serve(r, func(s string) { built = s })
	return built
}

func eventually(t *testing.T, what string, cond func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !cond(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("timed out waiting until %s", what)
		}
	}
}

// handled is found for a middleware of http.Handlers; "!": the route cannot be known.
func handled(table *routes.Routes[string], r *http.Request) string {
	built := "-"
	ok, err := table.ServeHandler(r, func(s string) { built = s })
	if err != nil {
		built = "!"
	}
	if ok != (len(built) > 1) || err != nil && !errors.Is(err, keyfuncs.ErrNoRoute) {
		return fmt.Sprint(built, ok, err)
	}
	return built
}

func TestServeHandler(t *testing.T) {
	t.Parallel()
	table := newFile(t, `{"routes": [
		{"method": "POST", "pattern": "/orders", "key": "exact"},
		{"method": "POST", "pattern": "/orders/", "key": "slash"},
		{"method": "PUT", "pattern": "/users/{id}/", "key": "cut"},
		{"method": "GET", "pattern": "/api/v{v}/files/{rest...}", "key": "files"},
		{"method": "POST", "pattern": "/api/end/{$}", "key": "end"},
		{"pattern": "shop.test/api/pay", "key": "shop"}
	]}`).open(func(*routes.Options) {})
	for _, test := range []struct{ method, pattern, target, want string }{
		{"POST", "", "/orders", "!"},
		{"POST", "/orders", "/orders", "exact"},
		{"POST", "/orders/", "/orders/", "slash"},
		{"PUT", "/users/{id}", "/users/1", "cut"},
		{"PUT", "/users/{id}/", "/users/1/", "cut"},
		{"PUT", "PUT /users/{id}", "/users/1", "-"},
		{"PUT", "shop.test/users/{id}", "/users/1", "-"},
		{"POST", "/users/{id}", "/users/1", "-"},
		{"PUT", "/users/*", "/users/1/", "!"},
		{"PUT", "/users/*", "/users//", "-"},
		{"GET", "/api/", "/api/v2/files/a/b", "!"},
		{"HEAD", "/api/*", "/api/v2/files/", "!"},
		{"GET", "/api/{rest...}", "/api/v2%2Fx/files/a", "!"},
		{"PUT", "/api/", "/api/v2/files/a", "-"},
		{"GET", "/api/{version}", "/api/v2/files/a", "-"},
		{"POST", "/api/", "/api/end/", "!"},
		{"POST", "/api/", "/api/end/more", "-"},
		{"GET", "/api/", "http://shop.test:81/api/pay", "!"},
		{"GET", "/api/", "/api/pay", "-"},
	} {
		r := httptest.NewRequest(test.method, test.target, nil)
		r.Pattern = test.pattern
		if got := handled(table, r); got != test.want {
			t.Errorf("%+v: %s", test, got)
		}
	}
}

func keyed(key string) string { return `{"routes": [{"pattern": "/x", "key": "` + key + `"}]}` }

func TestServe_FindsTheRow(t *testing.T) {
	t.Parallel()
	table := newFile(t, `{"routes": [
		{"method": "GET", "pattern": "/orders/{id}", "key": "get"},
		{"method": "POST", "pattern": "/orders/{id}", "key": "post"},
		{"pattern": "/files/{rest...}", "key": "files"},
		{"pattern": "/files/{name}", "key": "file"},
		{"method": "PUT", "pattern": "/both", "key": "put"},
		{"pattern": "/both", "key": "all"},
		{"pattern": "shop.test/pay", "key": "shop"}
	]}`).open(func(*routes.Options) {})
	for request, want := range map[string]string{
		"GET /orders/{id}":       "get",
		"GET GET /orders/{id}":   "get", // as http.ServeMux has it
		"HEAD /orders/:order":    "get",
		"POST POST /orders/{id}": "post",
		"PUT /orders/{id}":       "-",
		"GET /orders/:id?":       "get", // as Fiber has it
		"GET /orders/:id<int>":   "get",
		"GET /orders/:order-id":  "get", // as Gin has it
		"GET /orders/:a-:b":      "-",
		"PUT /files/*":           "files",
		"PUT /files/*path":       "files",
		"PUT /files/{path:.*}":   "files",
		"PUT /files/{n:[a-z]+}":  "file",
		"PUT /both":              "put",

		"GET /orders/:id<regex(^[a-z]{3}$)>": "get",
		"GET /both":                          "all",
		"GET shop.test/pay":                  "shop",
		"GET /pay":                           "-",
		"GET ":                               "-",
	} {
		method, pattern, _ := strings.Cut(request, " ")
		for range 2 {
			if got := found(table, method, pattern); got != want {
				t.Errorf("%s: %s, want %s", request, got, want)
			}
		}
	}
}

func TestReload(t *testing.T) {
	t.Parallel()
	f := newFile(t, keyed("one"))
	table := f.open(func(*routes.Options) {})
	for _, test := range []struct{ src, want, err string }{
		{keyed("two"), "two", ""},
		{keyed("{"), "two", "locks.json:1:13: "},
		{keyed("cannot be built"), "two", "locks.json:1:13: this one cannot be built"},
		{keyed("three"), "three", ""},
		{`{"routes": []}`, "-", ""},
	} {
		f.put(test.src)
		err := table.Reload()
		if (err == nil) != (test.err == "") || err != nil && !strings.Contains(err.Error(), test.err) {
			t.Errorf("%s: %v, want %s", test.src, err, test.err)
		}
		if got := found(table, "GET", "/x"); got != test.want {
			t.Errorf("%s: the row is %s, want %s", test.src, got, test.want)
		}
	}
	if err := os.Remove(f.path); err != nil {
		t.Fatal(err)
	}
	if err := table.Reload(); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("without a file: %v", err)
	}
}

func TestOpen_Fails(t *testing.T) {
	t.Parallel()
	f := newFile(t, `{"routes": [{"pattern": "/a", "plugin": "a.wasm"}, {"pattern": "/b", "plugin": "missing.wasm"}]}`)
	build := func(routes.Row) (string, error) { return "", nil }
	_, err := routes.Open(f.path, routes.Options{OpenPlugin: f.openPlugin}, build)
	if err == nil || !strings.Contains(err.Error(), "locks.json:1:52: no plugin at ") || f.eventText() != "open a.wasm, close a.wasm" {
		t.Errorf("%v; %s", err, f.eventText())
	}
	if _, err = routes.Open(f.path, routes.Options{}, build); err == nil || !strings.Contains(err.Error(), "1:13: plugins are off; set Options.OpenPlugin") {
		t.Errorf("without OpenPlugin: %v", err)
	}
	if _, err = routes.Open(f.path+"x", routes.Options{}, build); !errors.Is(err, os.ErrNotExist) || !strings.HasPrefix(err.Error(), "reqlock: routes: ") {
		t.Errorf("without a file: %v", err)
	}
}

// A watched file is loaded when it changes. A version with a mistake changes nothing, and the log
// has its place.
func TestWatch(t *testing.T) {
	t.Parallel()
	f := newFile(t, keyed("one"))
	table := f.open(func(opts *routes.Options) { opts.Watch = true; opts.CheckEvery(20 * time.Millisecond) })
	f.put(`{"routes": [{"pattern": "/x",` + "\n" + ` "key": "two", "mode": "fare"}]}`)
	eventually(t, "the log names the mistake", func() bool {
		return strings.Contains(f.log.text(), "keeping the old one") && strings.Contains(f.log.text(), `locks.json:2:24: mode is \"fare\"`)
	})
	if got := found(table, "GET", "/x"); got != "one" {
		t.Errorf("the row is %s, want one", got)
	}
	f.put(keyed("two"))
	eventually(t, "the new version is loaded", func() bool { return found(table, "GET", "/x") == "two" })
	if err := os.Remove(f.path); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the log has the missing file", func() bool { return strings.Contains(f.log.text(), "cannot read the file, keeping the old version") })
	f.put(keyed("three"))
	eventually(t, "the file that is back is loaded", func() bool { return found(table, "GET", "/x") == "three" })
	if n := strings.Count(f.log.text(), "new version of the file loaded"); n != 2 {
		t.Errorf("the log has %d new versions, want 2:\n%s", n, f.log.text())
	}
}

func TestReloadOn(t *testing.T) {
	f := newFile(t, keyed("one"))
	table := f.open(func(opts *routes.Options) { opts.ReloadOn = []os.Signal{syscall.SIGUSR1} })
	f.put(keyed("two"))
	if err := syscall.Kill(os.Getpid(), syscall.SIGUSR1); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the new version is loaded", func() bool { return found(table, "GET", "/x") == "two" })
}

// A plugin stays open while a version of the file that is in use names it.
func TestPlugins(t *testing.T) {
	t.Parallel()
	f := newFile(t, `{"routes": [{"pattern": "/a", "plugin": "a.wasm"}, {"pattern": "/a2", "plugin": "./a.wasm"}, {"pattern": "/b", "plugin": "b.wasm"}]}`)
	table := f.open(func(*routes.Options) {})
	inside, leave, left := make(chan struct{}), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(left)
		r := httptest.NewRequest("GET", "/", nil)
		r.Pattern = "/a"
		table.Serve(r, func(string) {
			close(inside)
			<-leave
		})
	}()
	<-inside
	f.put(`{"routes": [{"pattern": "/b", "plugin": "b.wasm"}, {"pattern": "/c", "plugin": "c.wasm"}]}`)
	if err := table.Reload(); err != nil {
		t.Fatal(err)
	}
	if got := f.eventText(); got != "open a.wasm, open b.wasm, open c.wasm" {
		t.Errorf("while a request uses the old version: %s", got)
	}
	soon, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if err := table.Close(soon); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Close while a request uses the old version: %v", err)
	}
	close(leave)
	<-left
	eventually(t, "all plugins are closed", func() bool { return strings.Count(f.eventText(), "close ") == 3 })
	if err := table.Reload(); !errors.Is(err, routes.ErrClosed) {
		t.Errorf("Reload after Close: %v", err)
	}
}

// A plugin of coalesce is opened and closed as that of a lock, and one that both name is one.
func TestOpen_PluginOfCoalesce(t *testing.T) {
	t.Parallel()
	f := newFile(t, `{"routes": [{"pattern": "/a", "coalesce": {"plugin": "a.wasm"}}, {"pattern": "/b", "plugin": "a.wasm", "coalesce": {"plugin": "b.wasm"}}]}`)
	decides := 0
	table, err := routes.Open(f.path, routes.Options{Logger: slog.New(slog.DiscardHandler), OpenPlugin: f.openPlugin}, func(row routes.Row) (string, error) {
		if row.Shared.Policy != nil {
			decides++
		}
		return row.Shared.Plugin, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if a, b := found(table, "GET", "/a"), found(table, "GET", "/b"); a != "a.wasm" || b != "b.wasm" || decides != 2 || f.eventText() != "open a.wasm, open b.wasm" {
		t.Errorf("rows of %s and %s, %d of them decide: %s", a, b, decides, f.eventText())
	}
	f.put("{\"routes\": [\n{\"pattern\": \"/a\", \"coalesce\": {\"plugin\": \"missing.wasm\"}}]}")
	if err := table.Reload(); err == nil || !strings.Contains(err.Error(), "locks.json:2:1: no plugin at ") {
		t.Errorf("a missing plugin: %v", err)
	}
	f.put(`{"routes": [{"pattern": "/b", "coalesce": {"plugin": "b.wasm"}}]}`)
	if err := table.Reload(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the plugin that no row names is closed", func() bool { return f.eventText() == "open a.wasm, open b.wasm, close a.wasm" })
	if err := table.Close(t.Context()); err != nil || !strings.HasSuffix(f.eventText(), ", close b.wasm") {
		t.Errorf("after Close: %s, %v", f.eventText(), err)
	}
}

// A plugin that two versions have named, and a third one has not, stays open for a request of the
// first.
func TestPlugins_OfTwoVersionsBefore(t *testing.T) {
	t.Parallel()
	f := newFile(t, `{"routes": [{"pattern": "/a", "plugin": "a.wasm"}]}`)
	table := f.open(func(*routes.Options) {})
	inside, leave, left := make(chan struct{}), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(left)
		r := httptest.NewRequest("GET", "/", nil)
		r.Pattern = "/a"
		table.Serve(r, func(string) {
			close(inside)
			<-leave
		})
	}()
	<-inside
	for _, text := range []string{
		`{"routes": [{"pattern": "/a", "plugin": "a.wasm"}, {"pattern": "/b", "plugin": "b.wasm"}]}`, // the request keeps the version before
		`{"routes": [{"pattern": "/c", "plugin": "c.wasm"}]}`,
		`{"routes": [{"pattern": "/c", "plugin": "c.wasm"}, {"pattern": "/d", "plugin": "missing.wasm"}]}`,
	} {
		f.put(text)
		if err := table.Reload(); (err != nil) != strings.Contains(text, "missing") {
			t.Fatal(err)
		}
	}
	eventually(t, "the plugin that no request uses is closed", func() bool { return strings.Contains(f.eventText(), "close b.wasm") })
	if text := f.eventText(); strings.Contains(text, "close a.wasm") {
		t.Errorf("while a request of two versions before runs: %s", text)
	}
	close(leave)
	<-left
	eventually(t, "the plugin is closed after the request", func() bool { return strings.Contains(f.eventText(), "close a.wasm") })
	if err := table.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if text := f.eventText(); strings.Count(text, "close ") != 3 {
		t.Errorf("at the end: %s", text)
	}
}

// Requests and loads at the same time.
func TestReload_UnderLoad(t *testing.T) {
	t.Parallel()
	f := newFile(t, `{"routes": [{"pattern": "/x", "plugin": "0.wasm"}]}`)
	table := f.open(func(*routes.Options) {})
	quit := make(chan struct{})
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for {
				select {
				case <-quit:
					return
				default:
					if got := found(table, "GET", "/x"); !strings.HasSuffix(got, ".wasm") {
						t.Errorf("the row is %s", got)
						return
					}
					runtime.Gosched() // a load must not wait until the scheduler stops a request
				}
			}
		})
	}
	for i := range 200 {
		f.put(strings.ReplaceAll(`{"routes": [{"pattern": "/x", "plugin": "0.wasm"}]}`, "0", string(rune('0'+i%10))))
		if err := table.Reload(); err != nil {
			t.Error(err)
		}
	}
	close(quit)
	all.Wait()
	eventually(t, "all plugins but one are closed", func() bool {
		text := f.eventText()
		return strings.Count(text, "open ") == strings.Count(text, "close ")+1
	})
}
