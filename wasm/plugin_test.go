package wasm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"time"

	"github.com/reqlock/reqlock/guard"
	"github.com/reqlock/reqlock/keyfuncs"
)

func TestNew_Refused(t *testing.T) {
	t.Parallel()
	for guest, want := range map[string][]string{
		"command":      {"it exits in _start", "_initialize"},
		"imports":      {"env.memory, a memory", "http_handler.set_key", "reqlock_v1.skip(i32)->(), which here is ()->()", "reqlock_v2.add_key", "wasi_snapshot_preview1.sock_open"},
		"global":       {"base"},
		"nomemory":     {`no memory "memory"`},
		"nohandler":    {`no function "handle_request"`},
		"wronghandler": {"handle_request is (i32)->(i32); want ()->(i64)"},
		"wrongstart":   {"_initialize is (i32)->(); want ()->()"},
		"asksearly":    {"get_method", "before handle_request"},
		"large":        {"MemoryLimit"},
		"version3":     {"it exports reqlock_v3; this host has versions 1 and 2"},
		"versions":     {"its decision is a record, and imports reqlock_v1.skip of version 1"},
		"declares":     {"it wants 0x100, which this host does not know"},
	} {
		t.Run(guest, func(t *testing.T) {
			t.Parallel()
			refused(t, binary(t, guest), want...)
		})
	}
	good := binary(t, "c")
	for name, code := range map[string][]byte{"empty": nil, "text": []byte("plugin"), "cut": good[:len(good)/2], "damaged": damaged(t)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			refused(t, code)
		})
	}
}

// damaged returns a guest on which wazero panics: one wrong byte gives its second function an
// unknown type.
func damaged(t *testing.T) []byte {
	t.Helper()
	// The section's id and size, the number of functions, and the type of the first.
	const functions = "\x03\x03\x02\x00"
	return bytes.Replace(binary(t, "calls"), []byte(functions+"\x00"), []byte(functions+"\x09"), 1)
}

func refused(t *testing.T, code []byte, want ...string) {
	t.Helper()
	p, err := New(context.Background(), code, Config{InitTimeout: loading})
	if p != nil || !errors.Is(err, ErrBadGuest) {
		t.Fatalf("%v", err)
	}
	for _, text := range want {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("no %q in %v", text, err)
		}
	}
}

// A Go program built without -buildmode=c-shared is refused with a hint.
func TestNew_GoProgram(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("builds a program")
	}
	file := filepath.Join(t.TempDir(), "program.wasm")
	build := exec.Command("go", "build", "-buildvcs=false", "-o", file, "./testdata/go")
	build.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm", "CGO_ENABLED=0", "GOFLAGS=")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	code, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	refused(t, code, "a Go guest must be built with -buildmode=c-shared")
}

func TestConfig(t *testing.T) {
	t.Parallel()
	open := t.TempDir()
	if err := os.Chmod(open, 0o755); err != nil {
		t.Fatal(err)
	}
	for want, cfg := range map[string]Config{
		"Timeout is -1s":        {Timeout: -time.Second},
		"InitTimeout is -1ns":   {InitTimeout: -1},
		"MaxWait is -1ns":       {MaxWait: -1},
		"MaxLease is -1ns":      {MaxLease: -1},
		"MaxInstances is -1":    {MaxInstances: -1},
		"MaxQueue is -2":        {MaxQueue: -2},
		"BreakAfter is -2":      {BreakAfter: -2},
		"BreakFor is -1s":       {BreakFor: -time.Second},
		"SharedEntries is -1":   {SharedEntries: -1},
		"SharedBytes is -1":     {SharedBytes: -1},
		"MemoryLimit is 65535":  {MemoryLimit: 65535},
		"MemoryLimit is 429496": {MemoryLimit: 4<<30 + 1},
		"MaxBody is -1":         {MaxBody: -1},
		"is not a directory":    {CacheDir: "config.go"},
		"has mode 0755":         {CacheDir: open},
		"use Open":              {Watch: true},
	} {
		p, err := New(context.Background(), binary(t, "key"), cfg)
		if p != nil || err == nil || !strings.HasPrefix(err.Error(), "reqlock: wasm: invalid Config: ") || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", want, err)
		}
	}
	p, err := Open(context.Background(), filepath.Join(open, "missing.wasm"), Config{})
	if p != nil || !errors.Is(err, os.ErrNotExist) || !strings.HasPrefix(err.Error(), "reqlock: wasm: ") {
		t.Errorf("no file: %v", err)
	}
}

func TestCacheDir(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "cache")
	for range 2 {
		p := start(t, "c", Config{CacheDir: dir})
		rounds(t)(t, p, 200)
		closePlugin(t, p)
	}
	info, err := os.Stat(dir)
	if err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	files := 0
	err = filepath.WalkDir(dir, func(_ string, entry os.DirEntry, err error) error {
		if err == nil && !entry.IsDir() {
			files++
		}
		return err
	})
	if (files > 0) != compiles || err != nil {
		t.Errorf("%d files, %v", files, err)
	}
}

// The directory is checked again before each use, because it may have been replaced since New.
func TestCacheDir_Changed(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "cache")
	p := start(t, "key", Config{CacheDir: dir})
	load := func() error {
		next, err := p.load(t.Context(), binary(t, "key"), toReload)
		if err == nil {
			err = next.close()
		}
		return err
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := load(); err == nil || !strings.Contains(err.Error(), "has mode 0755") {
		t.Errorf("after others got access: %v", err)
	}
	other := t.TempDir()
	if err := errors.Join(os.RemoveAll(dir), os.Symlink(other, dir), os.Chmod(other, 0o700)); err != nil {
		t.Fatal(err)
	}
	if err := load(); err == nil || !strings.Contains(err.Error(), "is a symbolic link") {
		t.Errorf("after it became a link: %v", err)
	}
	if _, err := New(t.Context(), binary(t, "key"), Config{CacheDir: dir}); err == nil || !strings.Contains(err.Error(), "is a symbolic link") {
		t.Errorf("New with a link: %v", err)
	}
	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}
	if err := load(); err != nil {
		t.Errorf("after it was removed: %v", err)
	}
}

// compiles reports whether wazero compiles guests on this machine. Elsewhere it interprets them.
const compiles = runtime.GOARCH == "amd64" || runtime.GOARCH == "arm64"

// A cache with damaged entries, as left by a full disk, is not fatal.
func TestCacheDir_Damaged(t *testing.T) {
	t.Parallel()
	log := &logged{}
	cfg := Config{CacheDir: filepath.Join(t.TempDir(), "cache"), Logger: slog.New(slog.NewTextHandler(log, nil))}
	closePlugin(t, start(t, "c", cfg))
	err := filepath.WalkDir(cfg.CacheDir, func(path string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		return os.Truncate(path, 100)
	})
	if err != nil || log.String() != "" {
		t.Fatalf("%v, log: %s", err, log)
	}
	rounds(t)(t, start(t, "c", cfg), 200)
	if !compiles { // there is nothing to cache
		return
	}
	if strings.Count(log.String(), "cannot use CacheDir, compiling the plugin without it") != 1 {
		t.Errorf("log: %s", log)
	}
	if p, err := New(context.Background(), damaged(t), cfg); p != nil || !errors.Is(err, ErrBadGuest) {
		t.Errorf("a damaged guest: %v", err)
	}
	if strings.Count(log.String(), "\n") != 1 {
		t.Errorf("log: %s", log)
	}
}

// Each function of reqlock_v1 has its effect.
func TestReqlockV1(t *testing.T) {
	t.Parallel()
	p := start(t, "all", Config{})
	for method, want := range map[string]verdict{
		"0": {Policy: guard.Policy{Keys: []string{"0"}, Mode: guard.ModeExclusive}},
		"1": {Policy: guard.Policy{Keys: []string{"1"}, Mode: guard.ModeFair}},
		"2": {Policy: guard.Policy{Keys: []string{"2"}, Mode: guard.ModeFenced}},
		"3": {Policy: guard.Policy{Keys: []string{"3"}, Mode: guard.ModeRead}},
		"4": {Policy: guard.Policy{Keys: []string{"4"}, Mode: guard.ModeWrite}},
		"5": {Policy: guard.Policy{Keys: []string{"5"}, Mode: guard.ModeReadWrite}},
		"F": {Policy: guard.Policy{Keys: []string{"F"}, Mode: initial.Mode, Fenced: true}},
		"L": {Policy: guard.Policy{Keys: []string{"L"}, Mode: initial.Mode, Limit: 2}},
		"N": {Policy: guard.Policy{Keys: []string{"N"}, Mode: initial.Mode, Limit: -1}},
		"K": {Policy: guard.Policy{Keys: []string{"K"}, Mode: initial.Mode}},
		"S": {Policy: guard.Policy{Keys: []string{"S"}, Mode: initial.Mode, Skip: true}},
		"D": {Policy: initial, Denial: guard.Error{
			Status: 422, Type: "urn:reqlock:problem:plugin-denied", Title: "Request refused",
			Detail: "no?way ?ü " + strings.Repeat("?", 245), Err: errDenied,
		}},
	} {
		if got := ask(t, p.Policy, request(method, "/", "")); !reflect.DeepEqual(got, want) {
			t.Errorf("%s:\n got %+v\nwant %+v", method, got, want)
		}
	}
	if len(modes) != 6 {
		t.Errorf("%d modes", len(modes))
	}
	for mode, name := range []string{"Exclusive", "Fair", "Fenced", "Read", "Write", "ReadWrite"} {
		if modes[uint32(mode)].String() != name {
			t.Errorf("mode %d is %s, want %s", mode, modes[uint32(mode)], name)
		}
	}
}

func TestPrintable(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":                             "",
		"tenant is missing":            "tenant is missing",
		"a\x00b\r\nc\x1b[31m\u202e":    "a?b??c?[31m?",
		"\xff\xfe":                     "?",
		strings.Repeat("ü", 200):       strings.Repeat("ü", 128),
		"x" + strings.Repeat("ü", 200): "x" + strings.Repeat("ü", 127),
	} {
		if got := printable(text, maxDetail); got != want {
			t.Errorf("%q is %q, want %q", text, got, want)
		}
	}
}

// httpRequest returns a request with every part that a guest can read.
func httpRequest(path string) *http.Request {
	r := httptest.NewRequest("PUT", path, strings.NewReader("the body"))
	r.Header = http.Header{"X-Lock-Key": {"the client's"}, "Accept": {"a", "b"}}
	r.Trailer = http.Header{"X-Trailer": {"late"}}
	r.RemoteAddr = "192.0.2.1:1234"
	return r
}

func TestGuests_HTTPWasmOnly(t *testing.T) {
	t.Parallel()
	p := start(t, "httpwasm", Config{Settings: []byte("settings"), MaxBody: 100})
	all := strings.Join([]string{
		"5", "settings", "0", // features, settings, log level none
		"PUT", "/all/%2F?q=1", "HTTP/1.1", "192.0.2.1:1234", "accept\x00host\x00", "example.com\x00",
		"the ", "body", "1", "late\x00",
		"POST", "/rewritten", "POST\x00/rewritten\x00", "accept\x00", "new body", "POST\x00", "1", "",
	}, "|")
	for path, want := range map[string][]string{
		"/all/%2F?q=1": {all},
		"/client":      {"|accept\x00host\x00|"},
		"/many":        {"POST", "host"},
	} {
		r := httpRequest(path)
		v := ask(t, p.Policy, r)
		if !reflect.DeepEqual(v.Policy.Keys, want) || v.Policy.Mode != initial.Mode || v.Policy.WaitTime != initial.WaitTime || v.Policy.LeaseTime != initial.LeaseTime {
			t.Errorf("%s: %+v\nwant %q", path, v, want)
		}
		checkUntouched(t, r, path)
	}
	if err := p.Policy(httpRequest("/many"), &guard.Policy{Mode: guard.ModeFenced}); !errors.Is(err, ErrBadGuest) || !strings.Contains(err.Error(), "2 keys; ModeFenced allows one") {
		t.Errorf("Fenced: %v", err)
	}
	for path, status := range map[string]int{"/denied": 451, "/other": 403} {
		v := ask(t, p.Policy, httpRequest(path))
		if v.Denial.Status != status || v.Denial.Detail != "" {
			t.Errorf("%s: %+v", path, v.Denial)
		}
	}
	for path, want := range map[string]struct {
		err  error
		text string
	}{
		"/none":  {ErrNoKey, ""},
		"/hoard": {ErrBadGuest, "wrote more than 1048576 bytes"},
		"/kind":  {ErrBadGuest, "header_kind is 4"},
		"/body":  {ErrBadGuest, "body_kind is 2"},
	} {
		r := httpRequest(path)
		if err := p.Policy(r, new(guard.Policy)); !errors.Is(err, want.err) || !strings.Contains(err.Error(), want.text) {
			t.Errorf("%s: %v", path, err)
		}
		checkUntouched(t, r, path)
	}
}

// A guest on an SDK that does not know this host works.
func TestGuests_SDK(t *testing.T) {
	t.Parallel()
	p := start(t, "sdk", Config{})
	for range 3 {
		r := request("POST", "/orders/1?x=%20y", "the body", "acme")
		r.Header.Set("X-Lock-Key", "the client's")
		if v := ask(t, p.Policy, r); !reflect.DeepEqual(v.Policy.Keys, []string{"acme /orders/1?x=%20y the body"}) {
			t.Errorf("%+v", v)
		}
		if r.URL.Path != "/orders/1" || r.Header.Get("X-Lock-Key") != "the client's" {
			t.Errorf("the request changed to %s %v", r.URL, r.Header)
		}
		if v := ask(t, p.Policy, request("POST", "/orders/1", "")); v.Denial.Status != http.StatusBadRequest {
			t.Errorf("%+v", v)
		}
	}
}

// checkUntouched fails the test if a guest's changes reached the request.
func checkUntouched(t *testing.T, r *http.Request, path string) {
	t.Helper()
	want := httpRequest(path)
	if r.Method != want.Method || r.URL.String() != want.URL.String() || r.Host != want.Host || !reflect.DeepEqual(r.Header, want.Header) || !reflect.DeepEqual(r.Trailer, want.Trailer) {
		t.Errorf("%s: the request changed to %+v", path, r)
	}
	if body, err := io.ReadAll(r.Body); string(body) != "the body" || err != nil {
		t.Errorf("%s: the handler read %q, %v", path, body, err)
	}
}

// Bodies come through a real server, as from clients.
func TestBodies(t *testing.T) {
	t.Parallel()
	const limit = 100
	type answer struct {
		policyErr error
		keys      []string
		body      []byte
		bodyErr   error
	}
	for _, guest := range languages {
		p := start(t, guest, Config{MaxBody: limit})
		answers := make(chan answer, 1)
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			var policy guard.Policy
			a := answer{policyErr: p.Policy(r, &policy), keys: policy.Keys}
			a.body, a.bodyErr = io.ReadAll(r.Body)
			answers <- a
		}))
		t.Cleanup(server.Close)
		send := func(method, fault string, length int64, body io.Reader) answer {
			r, err := http.NewRequest(method, server.URL+"/orders/1", body)
			if err != nil {
				t.Fatal(err)
			}
			r.ContentLength = length
			r.Header.Set("X-Tenant", "acme")
			if fault != "" {
				r.Header.Set("X-Fault", fault)
			}
			client := &http.Client{Transport: &http.Transport{}}
			defer client.CloseIdleConnections()
			if response, err := client.Do(r); err == nil {
				response.Body.Close()
			}
			return <-answers
		}
		for _, size := range []int{0, 1, limit - 1, limit, limit + 1, 10 * limit} {
			text := strings.Repeat("0123456789", 100)[:size]
			forms := map[string]func() (int64, io.Reader){
				"whole":   func() (int64, io.Reader) { return int64(size), strings.NewReader(text) },
				"chunked": func() (int64, io.Reader) { return -1, strings.NewReader(text) },
				"slow":    func() (int64, io.Reader) { return int64(size), iotest.OneByteReader(strings.NewReader(text)) },
			}
			for form, body := range forms {
				t.Run(fmt.Sprint(guest, "/", form, size), func(t *testing.T) {
					// One is read by the guest, the other is not.
					for _, method := range []string{"PUT", "POST"} {
						length, reader := body()
						a := send(method, "", length, reader)
						if string(a.body) != text || a.bodyErr != nil {
							t.Errorf("%s: the handler read %d bytes of %d, %v", method, len(a.body), size, a.bodyErr)
						}
						want := []string{"acme:/orders/1"}
						if method == "PUT" && size > 0 {
							want = append(want, text[:min(size, 64)])
						}
						switch {
						case method == "PUT" && size > limit:
							var own *guard.Error
							if !errors.Is(a.policyErr, ErrBodyTooLarge) || !errors.As(a.policyErr, &own) || own.Status != http.StatusRequestEntityTooLarge {
								t.Errorf("PUT: %v", a.policyErr)
							}
						case a.policyErr != nil || !reflect.DeepEqual(a.keys, want):
							t.Errorf("%s: keys %q, %v", method, a.keys, a.policyErr)
						}
					}
					length, reader := body()
					if a := send("PUT", "t", length, reader); !errors.Is(a.policyErr, ErrTrap) || string(a.body) != text || a.bodyErr != nil {
						t.Errorf("after a trap the handler read %d bytes of %d, %v; %v", len(a.body), size, a.bodyErr, a.policyErr)
					}
				})
			}
		}
		t.Run(guest+"/failing", func(t *testing.T) {
			for _, method := range []string{"PUT", "POST"} {
				a := send(method, "", 50, io.MultiReader(strings.NewReader("0123456789"), iotest.ErrReader(errors.New("the client fails"))))
				if string(a.body) != "0123456789" || a.bodyErr == nil {
					t.Errorf("%s: the handler read %q, %v", method, a.body, a.bodyErr)
				}
				var own *guard.Error
				switch {
				case method == "POST" && a.policyErr != nil, method == "PUT" && !errors.Is(a.policyErr, a.bodyErr), errors.As(a.policyErr, &own):
					t.Errorf("%s: %v", method, a.policyErr)
				}
			}
		})
	}
}

// A body that the guest does not read may be of any size.
func TestBodies_NotRead(t *testing.T) {
	t.Parallel()
	p := start(t, "writesbody", Config{MaxBody: 10})
	for _, size := range []int{0, 10, 11} {
		r := request("PUT", "/", strings.Repeat("x", size))
		if v := ask(t, p.Policy, r); !slices.Equal(v.Policy.Keys, []string{"own body"}) {
			t.Errorf("a body of %d bytes: %+v", size, v)
		}
		if left, err := io.ReadAll(r.Body); len(left) != size || err != nil {
			t.Errorf("the handler read %d bytes of %d, %v", len(left), size, err)
		}
	}
}

// Many concurrent calls, good and bad, each get their own answer.
func TestMixedCalls(t *testing.T) {
	t.Parallel()
	const calls, callers, instances = 10_000, 16, 3
	plugins := make([]*Plugin, len(languages))
	for i, guest := range languages {
		plugins[i] = start(t, guest, Config{MaxInstances: instances, BreakAfter: -1})
	}
	var all sync.WaitGroup
	for caller := range callers {
		all.Go(func() {
			for i := range calls / callers {
				p := plugins[(caller+i)%len(plugins)]
				if fault := faults[i%len(faults)]; i%20 == caller && fault.letter != "m" {
					if err := checkFault(p, fault.letter, fault.want, textOf(p, fault.text, fault.text2)); err != nil {
						t.Error(err)
					}
					continue
				}
				fresh := func() *http.Request {
					return request([]string{"GET", "PUT"}[i%2], fmt.Sprintf("/%d/%d", caller, i), fmt.Sprint("body of ", caller, i), fmt.Sprint("tenant", caller))
				}
				if got, want := ask(t, p.Policy, fresh()), ask(t, nativePolicy, fresh()); !reflect.DeepEqual(got, want) {
					t.Errorf("caller %d, call %d:\n got %+v\nwant %+v", caller, i, got, want)
				}
			}
		})
	}
	all.Wait()
	for i, p := range plugins {
		if idle := len(p.current.idle); idle > instances || len(p.queue.slots) != 0 {
			t.Errorf("%s: %d idle instances, %d slots taken", languages[i], idle, len(p.queue.slots))
		}
	}
}

// Instances are reused, even after garbage collections.
func TestInstance_Reused(t *testing.T) {
	t.Parallel()
	p := start(t, "c", Config{MaxInstances: 4})
	first := p.current.idle[0]
	for range 10 {
		rounds(t)(t, p, 10)
		runtime.GC()
	}
	if len(p.current.idle) != 1 || p.current.idle[0] != first {
		t.Errorf("%d instances, or another", len(p.current.idle))
	}
}

// An instance is closed after an error, but not after a request that was denied or got no key.
func TestInstance_ClosedAfterError(t *testing.T) {
	t.Parallel()
	for letter, gone := range map[string]bool{"t": true, "p": true, "k": true, "n": false} {
		p := start(t, "c", Config{})
		first := p.current.idle[0]
		if err := p.Policy(faulty(letter), new(guard.Policy)); err == nil {
			t.Errorf("fault %s has no error", letter)
		}
		ask(t, p.Policy, request("GET", "/", "")) // denied
		if first.module.IsClosed() != gone || len(p.current.idle) != 1 || (p.current.idle[0] != first) != gone {
			t.Errorf("fault %s: closed: %v; %d instances", letter, first.module.IsClosed(), len(p.current.idle))
		}
	}
}

// A client that disconnects in the middle of a call breaks no instance. The guest's log line shows
// that the call runs.
func TestPolicy_ClientDisconnects(t *testing.T) {
	t.Parallel()
	for _, guest := range languages {
		ctx, leave := context.WithCancel(context.Background())
		p := start(t, guest, Config{Logger: slog.New(&onLog{slog.DiscardHandler, leave})})
		first := p.current.idle[0]
		r := faulty("f").WithContext(ctx)
		if got, want := ask(t, p.Policy, r), ask(t, nativePolicy, faulty("f")); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %+v, want %+v", guest, got, want)
		}
		if ctx.Err() == nil || len(p.current.idle) != 1 || p.current.idle[0] != first || first.module.IsClosed() {
			t.Errorf("%s: the client disconnected: %v; %d instances, or another", guest, ctx.Err(), len(p.current.idle))
		}
	}
}

// onLog calls a function for each log line.
type onLog struct {
	slog.Handler
	call func()
}

func (h *onLog) Enabled(context.Context, slog.Level) bool { return true }
func (h *onLog) WithAttrs([]slog.Attr) slog.Handler       { return h }
func (h *onLog) Handle(context.Context, slog.Record) error {
	h.call()
	return nil
}

// occupied returns a plugin with one instance, which is in a call. letOut lets the call finish;
// ended gets its result.
func occupied(t *testing.T, guest string) (p *Plugin, letOut func(), ended <-chan verdict) {
	t.Helper()
	inside, out := make(chan struct{}), make(chan struct{})
	logs := sync.OnceFunc(func() { close(inside); <-out }) // the guest's first line in the log
	p = start(t, guest, Config{MaxInstances: 1, Logger: slog.New(&onLog{slog.DiscardHandler, logs})})
	letOut = sync.OnceFunc(func() { close(out) })
	t.Cleanup(letOut)
	verdicts := make(chan verdict, 1)
	go func() { verdicts <- ask(t, p.Policy, faulty("f")) }()
	select {
	case <-inside:
	case <-time.After(patience):
		t.Fatal("the guest logged nothing")
	}
	return p, letOut, verdicts
}

// eventually waits until a condition holds.
func eventually(t testing.TB, what string, is func() bool) {
	t.Helper()
	within(t, patience, what, is)
}

// within waits until a condition holds, for longest at most.
func within(t testing.TB, longest time.Duration, what string, is func() bool) {
	t.Helper()
	deadline := time.After(longest)
	for !is() {
		select {
		case <-deadline:
			t.Fatalf("timed out waiting for %s", what)
		case <-time.After(time.Millisecond):
		}
	}
}

func TestBusy(t *testing.T) {
	t.Parallel()
	p, letOut, ended := occupied(t, "c")

	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	err := p.Policy(request("GET", "/", "", "acme").WithContext(ctx), new(guard.Policy))
	var own *guard.Error
	if !errors.Is(err, ErrBusy) || !errors.Is(err, context.DeadlineExceeded) || !errors.As(err, &own) || own.Status != http.StatusServiceUnavailable || own.Type != guard.ProblemPluginBusy || own.RetryAfter != time.Second {
		t.Errorf("a deadline: %v", err)
	}
	ctx, cancel = context.WithCancel(context.Background())
	cancel()
	err = p.Policy(request("GET", "/", "", "acme").WithContext(ctx), new(guard.Policy))
	if !errors.Is(err, ErrBusy) || errors.As(err, &own) && own.Err == err {
		t.Errorf("a client that disconnected: %v", err)
	}

	waits := &signallingContext{Context: context.Background(), asked: make(chan struct{})}
	waited := make(chan error, 1)
	go func() {
		waited <- p.Policy(request("GET", "/", "", "acme").WithContext(waits), new(guard.Policy))
	}()
	<-waits.asked
	if len(waited) > 0 {
		t.Error("a call did not wait for a slot")
	}
	letOut()
	if err := <-waited; err != nil {
		t.Errorf("the waiting call: %v", err)
	}
	wantFlood(t, ended)
}

// wantFlood fails the test unless the call of occupied succeeded.
func wantFlood(t *testing.T, ended <-chan verdict) {
	t.Helper()
	select {
	case got := <-ended:
		if want := ask(t, nativePolicy, faulty("f")); !reflect.DeepEqual(got, want) {
			t.Errorf("the call ended with %+v, want %+v", got, want)
		}
	case <-time.After(patience):
		t.Error("timed out waiting for the call")
	}
}

func TestClose(t *testing.T) {
	t.Parallel()
	p, letOut, ended := occupied(t, "go")
	waits := &signallingContext{Context: context.Background(), asked: make(chan struct{})}
	waiting := make(chan error, 1)
	go func() {
		waiting <- p.Policy(request("GET", "/", "", "acme").WithContext(waits), new(guard.Policy))
	}()
	<-waits.asked

	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := p.Close(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("Close did not wait: %v", err)
	}
	for _, err := range []error{<-waiting, p.Policy(request("GET", "/", "", "acme"), new(guard.Policy))} {
		var own *guard.Error
		if !errors.Is(err, ErrClosed) || !errors.As(err, &own) || own.Status != http.StatusServiceUnavailable {
			t.Errorf("%v", err)
		}
	}
	select {
	case <-p.closed:
		t.Error("closed before the call was over")
	case <-ended:
		t.Error("the call was ended early")
	case <-time.After(50 * time.Millisecond): // it cannot fail because the machine is slow
	}
	letOut()
	closePlugin(t, p)
	wantFlood(t, ended)
}

// Close lets a looping call end with its timeout, not with the end of the runtime.
func TestClose_WhileLooping(t *testing.T) {
	t.Parallel()
	p := start(t, "go", Config{MaxInstances: 1, Timeout: time.Second})
	ended := make(chan error, 1)
	go func() { ended <- checkFault(p, "l", ErrTimeout, "") }()
	eventually(t, "the call to start", func() bool { return len(p.queue.slots)+len(ended) > 0 })
	closePlugin(t, p)
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// The guard does not fail open on plugin errors, because a request can cause them.
func TestGuardNeverFailsOpen(t *testing.T) {
	t.Parallel()
	p := start(t, "c", Config{MaxBody: 10})
	g, err := guard.New(nil, guard.Config{
		Policy:   p.Policy,
		FailOpen: true,
		Logger:   slog.New(slog.DiscardHandler),
		Locker:   noLocker(t),
	})
	if err != nil {
		t.Fatal(err)
	}
	large := request("PUT", "/orders/1", strings.Repeat("x", 11), "acme")
	failing := request("PUT", "/orders/1", "", "acme")
	failing.Body = io.NopCloser(iotest.ErrReader(errors.New("the client fails")))
	busy := request("PUT", "/orders/1", "", "acme")
	busy.Body = io.NopCloser(iotest.ErrReader(keyfuncs.ErrBusy))
	for name, c := range map[string]struct {
		r      *http.Request
		status int
		body   string
	}{
		"trap":    {faulty("t"), 503, `"type":"urn:reqlock:problem:plugin-failed"`},
		"no key":  {faulty("n"), 503, `"detail":"The server cannot decide`},
		"denied":  {request("GET", "/", ""), 400, `"detail":"X-Tenant is missing"`},
		"large":   {large, 413, `"type":"urn:reqlock:problem:body-too-large"`},
		"failing": {failing, 400, `"type":"urn:reqlock:problem:body-unreadable"`},
		"busy":    {busy, 503, `"type":"urn:reqlock:problem:busy"`},
	} {
		w := httptest.NewRecorder()
		g.Serve(w, c.r, func(http.ResponseWriter, *http.Request) { t.Errorf("%s: the handler ran", name) })
		if w.Code != c.status || !strings.Contains(w.Body.String(), c.body) || strings.Contains(w.Body.String(), "wasm") {
			t.Errorf("%s: %d %s", name, w.Code, w.Body)
		}
	}
	ran := false
	g.Serve(httptest.NewRecorder(), request("GET", "/health", ""), func(http.ResponseWriter, *http.Request) { ran = true })
	if !ran {
		t.Error("a skipped request did not run")
	}
}
