package wasm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/reqlock/reqlock/guard"
	"github.com/reqlock/reqlock/wasm/internal/meter"
)

// hostile lists the guests of testdata/hostile that do not simply run until their deadline.
var hostile = map[string]error{
	"deep":            ErrTrap,
	"deep-frames":     ErrTrap,
	"header-long":     ErrBadGuest,
	"host-table":      ErrTimeout,
	"trap":            ErrTrap,
	"random-straight": ErrTimeout,
}

// startsBadly lists the guests that fail in their start.
var startsBadly = []string{"initialize", "start", "start-loop"}

// A damage is what a hostile guest did to the process.
type damage struct {
	// answered is how long the request waited for its answer.
	answered time.Duration
	// ran is the processor time that the answering thread used meanwhile. 0: it is unknown.
	ran time.Duration
	// pause is the longest garbage collection of another goroutine meanwhile.
	pause time.Duration
	// memory is how many bytes the process got from the system.
	memory int64
}

func (d damage) String() string {
	return fmt.Sprintf("answered after %6.1f ms, ran for %6.1f ms, longest GC %6.1f ms, %4d MiB", d.answered.Seconds()*1e3, d.ran.Seconds()*1e3, d.pause.Seconds()*1e3, d.memory>>20)
}

// maxLate is how much longer than its deadline a guest may run, in processor time.
var maxLate = 10 * time.Millisecond

// maxBusy is how long a busy machine may do something else.
const maxBusy = 2 * time.Second

// Each hostile guest is stopped soon after its deadline, in processor time, which a busy machine
// does not change. Meanwhile the garbage collector does not wait for it. Run it alone on an idle
// machine with -v for figures: this test allows what a busy machine needs for the rest.
//
// It runs before the parallel tests, because it measures the process.
func TestHostile(t *testing.T) {
	if testing.Short() {
		t.Skip("measures the process for seconds")
	}
	const timeout = 50 * time.Millisecond
	guests, err := filepath.Glob("testdata/hostile/*.wasm")
	if err != nil || len(guests) < 42 {
		t.Fatalf("%d guests, %v", len(guests), err)
	}
	for _, path := range guests {
		name := strings.TrimSuffix(filepath.Base(path), ".wasm")
		t.Run(name, func(t *testing.T) {
			code, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			want, ok := hostile[name]
			if !ok {
				want = ErrTimeout
			}
			cfg := Config{Timeout: timeout, InitTimeout: loading, Logger: slog.New(slog.DiscardHandler)}
			limit := timeout
			// run returns what is wrong.
			var run func() error
			if slices.Contains(startsBadly, name) {
				limit = 500 * time.Millisecond // of the compilation, too
				cfg.InitTimeout = limit
				run = func() error {
					p, err := New(context.Background(), code, cfg)
					if p != nil || !errors.Is(err, ErrTimeout) {
						return fmt.Errorf("%v, %w", p, err)
					}
					return nil
				}
			} else {
				p, err := New(context.Background(), code, cfg)
				if err != nil {
					t.Fatal(err)
				}
				defer closePlugin(t, p)
				r := manyHeaders()
				run = func() error {
					if err := p.Policy(r, new(guard.Policy)); !errors.Is(err, want) {
						return fmt.Errorf("%v; want %w", err, want)
					}
					return nil
				}
			}
			var d damage
			var wrong error
			for range 3 { // the guest also pays for garbage of others, but not each time
				d = measure(func() { wrong = run() })
				t.Logf("%-15s %s", name, d)
				if d.answered > maxStretch*limit+maxBusy || d.pause > maxBusy || d.memory > 256<<20 {
					t.Error("out of bounds")
				}
				if wrong == nil && d.ran <= limit+maxLate {
					return
				}
			}
			t.Errorf("it ran for %s, want %s at most: %v", d.ran, limit+maxLate, wrong)
		})
	}
}

// manyHeaders returns a request with as many headers as a client can send.
func manyHeaders() *http.Request {
	r := request("GET", "/", "")
	for i := range 2000 {
		r.Header.Set(fmt.Sprintf("X-Header-%d", i*7919%2000), strings.Repeat("v", 400))
	}
	return r
}

// measure runs code while another goroutine collects garbage again and again.
func measure(code func()) (d damage) {
	runtime.GC()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	done, ready, collected := make(chan struct{}), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(collected)
		close(ready)
		for {
			began := time.Now()
			runtime.GC()
			d.pause = max(d.pause, time.Since(began))
			select {
			case <-done:
				return
			default:
			}
		}
	}()
	<-ready
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	began := time.Now()
	ranBefore, _ := processorTime()
	code()
	ran, _ := processorTime()
	d.answered, d.ran = time.Since(began), ran-ranBefore
	close(done)
	<-collected
	runtime.ReadMemStats(&after)
	d.memory = int64(after.Sys) - int64(before.Sys)
	return d
}

// A file that is too large is refused before it is read.
func TestOpen_LargeFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "sparse.wasm")
	f, err := os.Create(path)
	if err == nil {
		err = errors.Join(f.Truncate(3<<30), f.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
	d := measure(func() {
		p, err := Open(context.Background(), path, Config{})
		if p != nil || !errors.Is(err, ErrBadGuest) || !strings.Contains(err.Error(), "more than 16777216 bytes, which is Config.MaxFile") {
			t.Errorf("%v", err)
		}
	})
	if d.answered > 10*time.Second {
		t.Errorf("after %s", d.answered)
	}

	small := binary(t, "c")
	if err := os.WriteFile(path, small, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(context.Background(), path, Config{MaxFile: int64(len(small)) - 1}); !errors.Is(err, ErrBadGuest) {
		t.Errorf("one byte too large: %v", err)
	}
	p, err := Open(context.Background(), path, Config{MaxFile: int64(len(small)), InitTimeout: loading})
	if err != nil {
		t.Fatal(err)
	}
	closePlugin(t, p)
}

// slow returns a module that keeps a compiler busy for long, that package meter still accepts, and
// that traps when it is started.
func slow() []byte {
	const functions, blocks, locals = 50, 600, 30
	body := []byte{1, locals, 0x7f}
	for i := range blocks {
		body = append(body, 0x20, byte(i%locals), 0x04, 0x40, 0x20, byte(i*7%locals), 0x21, byte(i*3%locals), 0x0b)
	}
	return module(functions, append(body, 0x0b))
}

// module returns a module with a memory, a handle_request, n functions of type ()->() with the same
// body, and a start function that traps.
func module(n int, body []byte) []byte {
	leb := func(v int) []byte {
		return []byte{byte(v) | 0x80, byte(v>>7) | 0x80, byte(v>>14) | 0x80, byte(v >> 21)}
	}
	section := func(id byte, parts ...[]byte) []byte {
		content := slices.Concat(parts...)
		return slices.Concat([]byte{id}, leb(len(content)), content)
	}
	code := slices.Concat(leb(len(body)), body)
	handle := []byte{4, 0, 0x42, 1, 0x0b}
	return slices.Concat([]byte("\x00asm\x01\x00\x00\x00"),
		section(1, []byte{2, 0x60, 0, 0, 0x60, 0, 1, 0x7e}),
		section(3, leb(n+2), []byte{1}, make([]byte, n+1)),
		section(5, []byte{1, 0, 1}),
		section(7, []byte{2, 6}, []byte("memory"), []byte{2, 0, 14}, []byte("handle_request"), []byte{0, 0}),
		section(8, leb(n+1)),
		section(10, leb(n+2), handle, bytes.Repeat(code, n), []byte{3, 0, 0, 0x0b}),
	)
}

// A load that is given up returns at once. The compilation goes on, and the next one does not wait
// for it.
func TestCompile_IsLeftBehind(t *testing.T) {
	t.Parallel()
	code := slow()
	if _, err := meter.Instrument(code, meter.DefaultLimits(16<<20)); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	began := time.Now()
	other, err := compilations.await(ctx) // as if another version were compiled
	if err != nil {
		t.Fatal(err)
	}
	result := make(chan error, 2)
	go func() {
		_, err := New(ctx, code, Config{})
		result <- err
	}()
	select {
	case err := <-result:
		t.Fatalf("it did not wait: %v", err)
	case <-time.After(10 * time.Millisecond):
	}
	cancel()
	if err := <-result; !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "waiting for another compilation") {
		t.Errorf("%v", err)
	}
	other.end()

	if _, err := New(context.Background(), code, Config{InitTimeout: time.Millisecond}); !errors.Is(err, ErrTimeout) || !strings.Contains(err.Error(), "compiling the guest") {
		t.Errorf("%v", err)
	}
	if len(compilations.givenUps) == 0 {
		t.Error("the compilation that was given up keeps its turn")
	}
	p, err := New(context.Background(), binary(t, "c"), Config{InitTimeout: loading})
	if err != nil {
		t.Fatal(err)
	}
	closePlugin(t, p)
	if took := time.Since(began); took > 2*patience {
		t.Errorf("all took %s", took)
	}
	eventually(t, "the compilation that was given up ends", func() bool { return len(compilations.givenUps) == 0 })
}

// A call that returned after its deadline is a timeout, too.
func TestTimeout_AfterReturn(t *testing.T) {
	t.Parallel()
	p := start(t, "c", Config{MaxInstances: 1})
	i := p.current.idle[0]
	i.deadline.begin(patience)
	if i.deadline.stop(); !errors.Is(i.ended(nil), ErrTimeout) || i.usable() {
		t.Error("it is no timeout")
	}
}
