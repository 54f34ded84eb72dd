package wasm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"reflect"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/reqlock/reqlock/guard"
)

// faults lists the letters of testdata/README.md with the expected results.
var faults = []struct {
	letter string
	want   error
	// text must be part of the error's text.
	text string
	// text2 is the same for guests of ABI version 2. If it is empty, text holds for them.
	text2 string
}{
	{"t", ErrTrap, "", ""},
	{"o", ErrTrap, "", ""},
	{"z", ErrTrap, "", ""},
	{"m", ErrTrap, "", ""},
	{"x", ErrTrap, "exited with code 3", ""},
	{"p", ErrTrap, "add_key: 100 bytes at 4294967280 are outside the guest's memory", "100 bytes at 4294967280 in an entry of its record are outside"},
	{"g", ErrTrap, "get_uri: ", ""},
	{"b", ErrTrap, "read_body: buf_limit is 0", ""},
	{"k", ErrBadGuest, "more than 4096 bytes", ""},
	{"u", ErrBadGuest, "not valid UTF-8", ""},
	{"e", ErrBadGuest, "empty", ""},
	{"n", ErrNoKey, "", ""},
	{"w", ErrBadGuest, "set_wait_ms(-1): use a number from 0 to 30000, which is Config.MaxWait", "wait_ms of its record is -2; use -1, or a number from 0 to 30000, which is Config.MaxWait"},
	{"W", ErrBadGuest, "set_wait_ms(4611686018427387904)", "wait_ms of its record is 4611686018"},
	{"d", ErrBadGuest, "set_lease_ms(-1): use a number from 0 to 600000, which is Config.MaxLease", "lease_ms of its record is -2; use -1, or a number from 0 to 600000, which is Config.MaxLease"},
	{"D", ErrBadGuest, "set_lease_ms(4611686018427387904)", "lease_ms of its record is 4611686018"},
	{"q", ErrBadGuest, "set_mode(77): use a number from 0 to 5", "the mode of its record is 77; use -1, or a number from 0 to 5"},
	{"s", ErrBadGuest, "deny(200): use a status from 400 to 599", "the status of its record is 200; use one from 400 to 599"},
	{"c", ErrBadGuest, "more than 16 keys", ""},
}

// textOf returns the text that a fault of a plugin must have.
func textOf(p *Plugin, text, text2 string) string {
	if p.current.version2 && text2 != "" {
		return text2
	}
	return text
}

// faulty returns a request that triggers a fault.
func faulty(letter string) *http.Request {
	r := request("PUT", "/orders/42", "the body", "acme")
	r.Header.Set("X-Fault", letter)
	return r
}

// checkFault returns an error unless a fault ended as expected.
func checkFault(p *Plugin, letter string, want error, text string) error {
	policy := initial
	err := p.Policy(faulty(letter), &policy)
	if !errors.Is(err, want) || err != nil && !strings.Contains(err.Error(), text) {
		return fmt.Errorf("fault %s: %v; want %v, %q", letter, err, want, text)
	}
	var answer *guard.Error
	if !errors.As(err, &answer) || answer.Status != http.StatusServiceUnavailable || answer.Type != "urn:reqlock:problem:plugin-failed" {
		return fmt.Errorf("fault %s: answer %+v", letter, answer)
	}
	if len(err.Error()) > 2*maxText {
		return fmt.Errorf("fault %s has a text of %d bytes", letter, len(err.Error()))
	}
	if !reflect.DeepEqual(policy, initial) {
		return fmt.Errorf("fault %s changed the policy to %+v", letter, policy)
	}
	return nil
}

func TestFaults(t *testing.T) {
	t.Parallel()
	for _, guest := range languages {
		p := start(t, guest, Config{})
		good := rounds(t)
		for _, fault := range faults {
			t.Run(guest+"/"+fault.letter, func(t *testing.T) {
				if err := checkFault(p, fault.letter, fault.want, textOf(p, fault.text, fault.text2)); err != nil {
					t.Error(err)
				}
				good(t, p, 1000)
			})
		}
	}
}

// rounds returns a check that sends calls and compares their results. It may reuse requests,
// because their bodies stay.
func rounds(t *testing.T) func(t *testing.T, p *Plugin, calls int) {
	var requests []*http.Request
	var want []verdict
	for _, r := range table() {
		requests = append(requests, r())
		want = append(want, ask(t, nativePolicy, r()))
	}
	return func(t *testing.T, p *Plugin, calls int) {
		t.Helper()
		for i := range calls {
			k := i % len(requests)
			if got := ask(t, p.Policy, requests[k]); !reflect.DeepEqual(got, want[k]) {
				t.Fatalf("call %d:\n got %+v\nwant %+v", i, got, want[k])
			}
		}
	}
}

// wazero's limit of a guest's stack ends endless recursion with an error.
func TestEndlessRecursion(t *testing.T) {
	t.Parallel()
	p := start(t, "wat", Config{MaxInstances: 1})
	if err := checkFault(p, "r", ErrTrap, "stack overflow"); err != nil {
		t.Error(err)
	}
	rounds(t)(t, p, 100)

	p, err := New(context.Background(), binary(t, "overflow"), Config{InitTimeout: loading})
	if p != nil || !errors.Is(err, ErrTrap) || !strings.Contains(err.Error(), "stack overflow") {
		t.Errorf("in the start section: %v", err)
	}
}

// While a guest loops, the garbage collector and other calls make progress.
//
// It runs before the parallel tests, because several loops at once on few processors would distort
// the result. So would a machine that stalls for a second, which is why there are several tries.
func TestEndlessLoop(t *testing.T) {
	if testing.Short() {
		t.Skip("loops for a second in each language, while no other test runs")
	}
	const timeout = time.Second
	for _, guest := range languages {
		t.Run(guest, func(t *testing.T) {
			looping := start(t, guest, Config{Timeout: timeout, MaxInstances: 2})
			other := start(t, "c", Config{})
			for try := 1; ; try++ {
				took, meanwhile := loop(t, looping, other)
				if took < timeout {
					t.Errorf("the loop ended after %s; the timeout is %s", took, timeout)
				}
				// On a busy machine less than that counts.
				if took < maxStretch*timeout && meanwhile > 0 {
					break
				}
				if try == 5 {
					t.Fatalf("the loop ended after %s, the timeout is %s; %d rounds of other calls ran meanwhile", took, timeout, meanwhile)
				}
			}
			looping.cfg.Timeout = patience // nothing runs
			rounds(t)(t, looping, 1000)
		})
	}
}

// loop lets a guest loop until its timeout. It returns how long that took and how many rounds of
// other calls ran meanwhile.
func loop(t *testing.T, looping, other *Plugin) (took time.Duration, meanwhile int) {
	t.Helper()
	ended := make(chan time.Duration)
	go func() {
		began := time.Now()
		if err := checkFault(looping, "l", ErrTimeout, "more than 1s"); err != nil {
			t.Error(err)
		}
		ended <- time.Since(began)
	}()
	for {
		runtime.GC()
		inTime := true
		for _, p := range []*Plugin{looping, other} {
			err := p.Policy(request("GET", "/", "", "acme"), new(guard.Policy))
			// A slow machine may time out.
			if inTime = inTime && err == nil; err != nil && !errors.Is(err, ErrTimeout) {
				t.Error(err)
			}
		}
		select {
		case took = <-ended:
			return took, meanwhile
		default:
			if inTime {
				meanwhile++
			}
		}
	}
}

// A single host call that would take minutes ends at the deadline.
func TestWrite_EndsAtDeadline(t *testing.T) {
	t.Parallel()
	p := start(t, "iovecs", Config{Timeout: 500 * time.Millisecond})
	began := time.Now()
	if err := p.Policy(request("GET", "/", ""), new(guard.Policy)); !errors.Is(err, ErrTimeout) {
		t.Error(err)
	}
	if took := time.Since(began); took > patience {
		t.Errorf("the write took %s", took)
	}
}

func TestLogFlood(t *testing.T) {
	t.Parallel()
	for _, guest := range languages {
		t.Run(guest, func(t *testing.T) {
			t.Parallel()
			log := &logged{}
			p := start(t, guest, Config{Logger: slog.New(slog.NewTextHandler(log, nil))})
			began := time.Now()
			got, want := ask(t, p.Policy, faulty("f")), ask(t, nativePolicy, faulty("f"))
			if !reflect.DeepEqual(got, want) {
				t.Errorf("got %+v, want %+v", got, want)
			}
			seconds := int(time.Since(began)/time.Second) + 1
			if lines := strings.Count(log.String(), "\n"); lines < maxLines || lines > maxLines*seconds {
				t.Errorf("%d lines in %d seconds", lines, seconds)
			}
			if size := len(log.String()); size > (2*maxText+300)*maxLines*seconds {
				t.Errorf("%d bytes", size)
			}
			if !strings.Contains(log.String(), "guest log") || !strings.Contains(log.String(), "plugin=sha256:") {
				t.Errorf("%.300s", log)
			}
		})
	}
}

// Output without a line end is logged when its call ends, and not joined to later output.
func TestOutput_WithoutLineEnd(t *testing.T) {
	t.Parallel()
	log := &logged{}
	p := start(t, "c", Config{MaxInstances: 1, Logger: slog.New(slog.NewTextHandler(log, nil))})
	i := p.current.idle[0]
	for _, text := range []string{"one", "two"} {
		for _, o := range []*output{&i.stdout, &i.stderr} {
			o.write([]byte(text)) // as the guest would in the call
		}
		ask(t, p.Policy, request("GET", "/", "", "acme"))
		for _, name := range []string{"stdout", "stderr"} {
			if line := regexp.MustCompile("guest output on " + name + `" .* text=` + text + "\n"); !line.MatchString(log.String()) {
				t.Errorf("no %q in the log:\n%s", line, log)
			}
		}
	}
}

// logged is a log that tests can read.
type logged struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// The journal limits lines per second and reports how many it dropped.
func TestJournal(t *testing.T) {
	t.Parallel()
	j := newJournal(slog.New(slog.DiscardHandler), "x")
	now := time.Now()
	for range maxLines {
		if _, ok := j.admit(now); !ok {
			t.Fatal("a line was dropped too early")
		}
	}
	for range 7 {
		if _, ok := j.admit(now.Add(999 * time.Millisecond)); ok {
			t.Error("a line too many")
		}
	}
	if dropped, ok := j.admit(now.Add(time.Second)); !ok || dropped != 7 {
		t.Errorf("in the next second: %d dropped, %v", dropped, ok)
	}
	if dropped, ok := j.admit(now.Add(time.Second)); !ok || dropped != 0 {
		t.Errorf("and then: %d dropped, %v", dropped, ok)
	}
}

func TestStart_Fails(t *testing.T) {
	t.Parallel()
	for _, guest := range languages {
		start(t, guest, Config{}) // compiles it, if no other test has
		for settings, want := range map[string]error{"l": ErrTimeout, "t": ErrTrap} {
			t.Run(guest+"/"+settings, func(t *testing.T) {
				t.Parallel()
				if testing.Short() && want == ErrTimeout && guest != "wat" {
					t.Skip("each loop keeps a processor busy for three seconds")
				}
				cfg := Config{Settings: []byte(settings), InitTimeout: loading, CacheDir: compiled, Logger: slog.New(slog.DiscardHandler)}
				if want == ErrTimeout {
					cfg.InitTimeout = 3 * time.Second // to load the compiled code takes a part of it, the loop takes the rest
					if testing.Short() {
						cfg.InitTimeout = time.Second
					}
				}
				p, err := New(context.Background(), binary(t, guest), cfg)
				if p != nil || !errors.Is(err, want) {
					t.Fatalf("%v; want %v", err, want)
				}
				if !strings.HasPrefix(err.Error(), "reqlock: wasm: starting the guest: ") {
					t.Errorf("error %q does not name the package and the step", err)
				}
			})
		}
	}
}

// The end of the context stops a start.
func TestStart_Stopped(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(context.Background(), 500*time.Millisecond)
	defer cancel()
	p, err := New(ctx, binary(t, "c"), Config{Settings: []byte("l"), InitTimeout: time.Hour})
	if p != nil || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v", err)
	}
}

// A guest's texts are in the log, and clients do not see them.
func TestFaults_TextsAreNotForClients(t *testing.T) {
	t.Parallel()
	log := &logged{}
	p := start(t, "assemblyscript", Config{Logger: slog.New(slog.NewTextHandler(log, nil))})
	err := p.Policy(faulty("t"), new(guard.Policy))
	if err == nil || !strings.Contains(err.Error(), "abort: the header says so (assemblyscript/guest.ts:") {
		t.Errorf("AssemblyScript's abort: %v", err)
	}
	if !strings.Contains(log.String(), "the header says so") {
		t.Errorf("log: %s", log)
	}
	p = start(t, "go", Config{Logger: slog.New(slog.NewTextHandler(log, nil))})
	err = p.Policy(faulty("t"), new(guard.Policy))
	if !errors.Is(err, ErrTrap) || !strings.Contains(log.String(), "panic: the header says so") {
		t.Errorf("Go's panic: %v, log: %s", err, log)
	}
	var answer *guard.Error
	if !errors.As(err, &answer) || strings.Contains(answer.Title+answer.Detail, "header") {
		t.Errorf("%+v", answer)
	}
}

// A table grows up to a limit.
func TestTableGrow(t *testing.T) {
	t.Parallel()
	p := start(t, "tablegrow", Config{})
	var policy guard.Policy
	if err := p.Policy(request("GET", "/", ""), &policy); err != nil || !policy.Skip {
		t.Errorf("%v, %+v", err, policy)
	}
}
