package wasm

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/reqlock/reqlock/guard"
)

// A plant is a plugin and its file.
type plant struct {
	*Plugin
	t    *testing.T
	path string
	log  *logged
}

// watchFile opens a file with code and checks it often.
func watchFile(t *testing.T, code []byte) *plant {
	t.Helper()
	return openFile(t, code, true)
}

// watchByHand opens a file with code and checks it when the test calls look.
func watchByHand(t *testing.T, code []byte) (f *plant, look func()) {
	t.Helper()
	f = openFile(t, code, false)
	w := f.watchOf(f.path, code)
	return f, func() { w.Look(context.Background()) }
}

func openFile(t *testing.T, code []byte, watched bool) *plant {
	t.Helper()
	f := &plant{t: t, path: filepath.Join(t.TempDir(), "policy.wasm"), log: &logged{}}
	f.replace(code)
	p, err := open(context.Background(), f.path, Config{
		Timeout: patience, InitTimeout: loading, MaxInstances: 3, Watch: watched,
		Logger: slog.New(slog.NewTextHandler(f.log, nil)),
	}, 2*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	f.Plugin = p
	t.Cleanup(func() { closePlugin(t, p) })
	return f
}

// replace renames a new file over the old one.
func (f *plant) replace(code []byte) {
	f.t.Helper()
	next := f.path + ".new"
	if err := os.WriteFile(next, code, 0o600); err != nil {
		f.t.Fatal(err)
	}
	if err := os.Rename(next, f.path); err != nil {
		f.t.Fatal(err)
	}
}

// keys returns the keys of one request.
func (f *plant) keys() string {
	var p guard.Policy
	if err := f.Policy(request("GET", "/", ""), &p); err != nil {
		f.t.Error(err)
	}
	return strings.Join(p.Keys, " ")
}

func (f *plant) awaitKey(key string) {
	f.t.Helper()
	eventually(f.t, key, func() bool { return f.keys() == key })
}

// awaitLog waits until the log has a text so many times. A compilation may come before, at low
// priority.
func (f *plant) awaitLog(text string, times int) {
	f.t.Helper()
	within(f.t, loading, text, func() bool { return strings.Count(f.log.String(), text) == times })
}

// keyed returns the guest key.wat with another letter in its key.
func keyed(t *testing.T, letter string) []byte {
	t.Helper()
	return bytes.Replace(binary(t, "key"), []byte("key-a"), []byte("key-"+letter), 1)
}

func TestReload(t *testing.T) {
	t.Parallel()
	f := watchFile(t, keyed(t, "a"))
	f.awaitKey("key-a")
	f.replace(keyed(t, "b"))
	f.awaitKey("key-b")
	f.awaitLog("new version of the plugin loaded", 1)
	if !strings.Contains(f.log.String(), "plugin=policy.wasm") {
		t.Errorf("log: %s", f.log)
	}

	refusals := 0
	for name, code := range map[string][]byte{
		"cut":     keyed(t, "c")[:60],
		"damaged": damaged(t),
		"imports": binary(t, "imports"),
		"start":   binary(t, "asksearly"),
	} {
		f.replace(code)
		refusals++
		f.awaitLog("new version of the plugin failed to load, keeping the old one", refusals)
		if key := f.keys(); key != "key-b" {
			t.Errorf("%s: the key is %q", name, key)
		}
	}
	f.awaitLog("new version of the plugin loaded", 1)

	if err := os.Remove(f.path); err != nil {
		t.Fatal(err)
	}
	f.awaitLog("cannot read the plugin's file, keeping the old version", 1)
	if key := f.keys(); key != "key-b" {
		t.Errorf("without a file the key is %q", key)
	}
	f.replace(keyed(t, "a"))
	f.awaitKey("key-a")
	if err := os.WriteFile(f.path, keyed(t, "d"), 0o600); err != nil { // in place, in the same size
		t.Fatal(err)
	}
	f.awaitKey("key-d")
}

// A version that was refused for a temporary reason is loaded later.
func TestReload_RefusedVersion(t *testing.T) {
	t.Parallel()
	f, look := watchByHand(t, keyed(t, "a"))
	const refused = "new version of the plugin failed to load, keeping the old one"
	f.cfg.CacheDir = f.path // no directory
	f.replace(keyed(t, "b"))
	for range 5 {
		look()
	}
	f.awaitLog(refused, 1)
	f.replace(keyed(t, "b"))
	for range 5 {
		look()
	}
	f.awaitLog(refused, 2)
	f.cfg.CacheDir = ""
	for range 5 {
		look()
	}
	if key := f.keys(); key != "key-a" {
		t.Errorf("the key is %q although the file did not change", key)
	}
	f.replace(keyed(t, "b"))
	look()
	if key := f.keys(); key != "key-b" {
		t.Errorf("the key is %q", key)
	}
	f.replace(keyed(t, "b"))
	for range 5 {
		look()
	}
	f.awaitLog("new version of the plugin loaded", 1)
}

// Loads are logged even when calls have used up the rate limit.
func TestReload_AlwaysLogged(t *testing.T) {
	t.Parallel()
	f, look := watchByHand(t, keyed(t, "a"))
	f.journal.second, f.journal.lines = time.Now().Add(time.Hour), maxLines // for so long
	f.replace(damaged(t))
	look()
	look()
	f.replace(keyed(t, "b"))
	look()
	look()
	for _, text := range []string{"new version of the plugin failed to load", "new version of the plugin loaded"} {
		if !strings.Contains(f.log.String(), text) {
			t.Errorf("no %q in the log: %s", text, f.log)
		}
	}
}

// No call fails while the file changes again and again.
func TestReload_UnderLoad(t *testing.T) {
	t.Parallel()
	f := watchFile(t, keyed(t, "a"))
	stop := make(chan struct{})
	var callers sync.WaitGroup
	for range 8 {
		callers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if key := f.keys(); !slices.Contains([]string{"key-a", "key-b"}, key) {
					t.Errorf("key %q", key)
				}
			}
		})
	}
	for i := range 20 {
		letter := []string{"b", "a"}[i%2]
		f.replace(keyed(t, letter))
		f.awaitKey("key-" + letter)
	}
	close(stop)
	callers.Wait()
	if idle := len(f.current.idle); idle > 3 || len(f.queue.slots) != 0 {
		t.Errorf("%d idle instances, %d slots taken", idle, len(f.queue.slots))
	}
}

// A new version may read the body though the old one did not.
func TestReload_NewVersionReadsBody(t *testing.T) {
	t.Parallel()
	f := watchFile(t, keyed(t, "a"))
	f.replace(binary(t, "c"))
	var p guard.Policy
	eventually(t, "a key from the body", func() bool {
		p = guard.Policy{}
		err := f.Policy(request("PUT", "/1", "the body", "acme"), &p)
		return err == nil && p.Keys[0] != "key-a"
	})
	if !slices.Equal(p.Keys, []string{"acme:/1", "the body"}) {
		t.Errorf("keys %q", p.Keys)
	}
}

// A version swapped in between the check and the call finds the body buffered if it reads it.
func TestReload_DuringCall(t *testing.T) {
	t.Parallel()
	p := start(t, "key", Config{MaxInstances: 1})
	p.queue.slots <- struct{}{} // the only slot
	answered := make(chan verdict, 1)
	r := &signallingContext{Context: context.Background(), asked: make(chan struct{})}
	go func() { answered <- ask(t, p.Policy, request("PUT", "/1", "the body", "acme").WithContext(r)) }()
	<-r.asked // it has checked, and waits for a slot
	next, err := p.load(context.Background(), binary(t, "c"), toOpen)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.swap(next).close(); err != nil {
		t.Error(err)
	}
	<-p.queue.slots
	if v := <-answered; !slices.Equal(v.Policy.Keys, []string{"acme:/1", "the body"}) {
		t.Errorf("%+v", v)
	}
}

// A signallingContext signals when its Done is first called.
type signallingContext struct {
	context.Context
	once  sync.Once
	asked chan struct{}
}

func (c *signallingContext) Done() <-chan struct{} {
	c.once.Do(func() { close(c.asked) })
	return c.Context.Done()
}

// Close drops a new version that is loaded but not swapped in yet.
func TestClose_BeforeSwap(t *testing.T) {
	t.Parallel()
	f, look := watchByHand(t, keyed(t, "a"))
	f.replace(keyed(t, "b"))
	look()
	closePlugin(t, f.Plugin)
	look()
	if f.log.String() != "" {
		t.Errorf("log: %s", f.log)
	}
}

// Close stops the start of a new version that would never end.
func TestClose_WhileLoading(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "policy.wasm")
	if err := os.WriteFile(path, keyed(t, "a"), 0o600); err != nil {
		t.Fatal(err)
	}
	var once sync.Once
	looping := make(chan struct{})
	p, err := open(context.Background(), path, Config{
		Settings: []byte("l"), InitTimeout: time.Hour, Watch: true,
		Logger: slog.New(&onLog{slog.DiscardHandler, func() { once.Do(func() { close(looping) }) }}),
	}, time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	// With these settings the guest loops in its start.
	if err := os.WriteFile(path, binary(t, "wat"), 0o600); err != nil {
		t.Fatal(err)
	}
	<-looping // its log line
	closePlugin(t, p)
}
