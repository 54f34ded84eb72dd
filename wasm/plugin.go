package wasm

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/tetratelabs/wazero"

	"github.com/reqlock/reqlock/guard"
	"github.com/reqlock/reqlock/internal/watch"
	"github.com/reqlock/reqlock/keyfuncs"
)

// A Plugin is a WebAssembly guest that decides what to lock and how. It is safe for concurrent use.
type Plugin struct {
	cfg      Config
	journal  *journal
	readBody func(*http.Request) ([]byte, error)
	queue    *queue
	counts   counts
	shared   *shared
	engine   newRuntime
	// closing is closed by Close.
	closing chan struct{}
	// closed is closed when the shutdown is complete.
	closed chan struct{}
	// failure is why the shutdown failed. It is read after closed.
	failure error

	mu      sync.Mutex
	current *program
	// over is true if new calls are refused.
	over bool

	// watch is nil if no file is watched.
	watch *watch.Watch
}

// New compiles a binary and starts one instance, which takes some milliseconds for a guest in C and
// half a second for one in Go. Errors with the guest are ErrBadGuest, ErrTrap or ErrTimeout. Logs
// identify the plugin by its checksum.
func New(ctx context.Context, binary []byte, cfg Config) (*Plugin, error) {
	if cfg.Watch {
		return nil, errors.New("reqlock: wasm: invalid Config: Watch is set, and there is no file to watch; use Open")
	}
	sum := sha256.Sum256(binary)
	return newPlugin(ctx, binary, cfg, "sha256:"+hex.EncodeToString(sum[:6]))
}

// Open is New for a file. Logs identify the plugin by the file's name. With Config.Watch it loads a
// new version about a second after the file changes, or ten seconds if its size and time stay the
// same. The new version is compiled and started before it takes over, and no call fails meanwhile.
// If it does not start, that is logged and the old version stays. To replace the file, rename
// another file over it.
func Open(ctx context.Context, path string, cfg Config) (*Plugin, error) {
	return open(ctx, path, cfg, watch.Interval)
}

func newPlugin(ctx context.Context, binary []byte, cfg Config, name string) (*Plugin, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	p := &Plugin{cfg: cfg.withDefaults(), engine: wazero.NewRuntimeWithConfig, closing: make(chan struct{}), closed: make(chan struct{})}
	p.cfg.Settings = bytes.Clone(cfg.Settings)
	p.journal = newJournal(p.cfg.Logger, name)
	p.readBody = keyfuncs.Body(keyfuncs.MaxBody(p.cfg.MaxBody))
	p.shared = newShared(p.cfg.SharedEntries, p.cfg.SharedBytes)
	p.queue = newQueue(p.cfg.MaxInstances, p.cfg.MaxQueue, p.closing)
	program, err := p.load(ctx, binary, toOpen)
	if err != nil {
		return nil, err
	}
	p.current = program
	return p, nil
}

// Policy runs the guest on a request. It is a guard.PolicyFunc. The caller sets policy to the
// values that apply where the guest sets none. On an error Policy leaves it unchanged and returns a
// *guard.Error, with either the guest's refusal or one of this package's errors. With
// Config.FailOpen it instead sets policy.Skip after a fault of the plugin.
//
// If the guest can read the body, the body is read before the guest runs. The handler reads the
// same bytes whatever the guest does.
func (p *Plugin) Policy(r *http.Request, policy *guard.Policy) error {
	c := newCall(&p.cfg, r, *policy)
	defer c.free()
	err := p.decide(c)
	outcome := outcomeOf(&c.policy, err)
	failOpen := p.cfg.FailOpen && outcome.fault()
	p.count(c, outcome, failOpen, err)
	switch {
	case err == nil:
		*policy = c.policy
		return nil
	case failOpen:
		p.journal.say(slog.LevelError, "reqlock: wasm: the plugin failed, running the handler without a lock", err.Error())
		policy.Skip = true
		return nil
	case outcome == OutcomeDenied, outcome == OutcomeGone, outcome == OutcomeBody && !errors.Is(err, ErrBodyTooLarge):
		return err
	case outcome.fault() && outcome != OutcomeSuspended:
		p.journal.say(slog.LevelError, "reqlock: wasm: the plugin failed, refusing the request", err.Error())
	}
	return failed(err)
}

// count counts a call that has ended, and tells the observer.
func (p *Plugin) count(c *call, outcome Outcome, failedOpen bool, err error) {
	p.counts.calls[outcome].Add(1)
	p.counts.guestTime.Add(int64(c.ran))
	if failedOpen {
		p.counts.failedOpen.Add(1)
	}
	if called := p.cfg.Observer.Called; called != nil {
		called(c.request.Context(), CallEvent{
			Plugin:     p.journal.plugin,
			Outcome:    outcome,
			FailedOpen: failedOpen,
			Queued:     c.queued,
			Ran:        c.ran,
			Fields:     c.fields,
			Err:        err,
		})
	}
	if outcome == OutcomeDenied && (len(c.fields) > 0 || c.denial != nil && c.denial.Reason != "") {
		p.journal.say(slog.LevelInfo, "reqlock: wasm: the plugin refused a request", c.denial.Detail, c.logged()...)
	}
}

func (p *Plugin) decide(c *call) error {
	program, pass, err := p.enterFor(c)
	if err != nil {
		return err
	}
	defer p.leave(program)
	began := time.Now()
	err = program.run(c)
	c.ran = time.Since(began)
	program.breaker.report(pass, resultOf(err), err)
	return err
}

// resultOf says what the error of a call means for the breaker.
func resultOf(err error) result {
	switch {
	case err == nil, errors.Is(err, errDenied), errors.Is(err, ErrNoKey):
		return resultSuccess
	case errors.Is(err, ErrTimeout), errors.Is(err, ErrTrap), errors.Is(err, ErrBadGuest):
		return resultFailure
	}
	return resultNone
}

// enterFor enters with the body buffered if the program reads it. It repeats if the program changed
// meanwhile.
func (p *Plugin) enterFor(c *call) (*program, pass, error) {
	program := p.program()
	if retry := program.breaker.refuses(); retry > 0 {
		return nil, passRefused, &suspension{retry}
	}
	if program.readsBody {
		c.bufferBody(p.readBody)
	}
	for {
		program, pass, err := p.enter(c)
		if err != nil || c.buffered || !program.readsBody {
			return program, pass, err
		}
		program.breaker.report(pass, resultNone, nil)
		p.leave(program)
		c.bufferBody(p.readBody)
	}
}

// program returns the current program, which may be closed at any time; see enter.
func (p *Plugin) program() *program {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.current
}

// enter waits for an instance of the current program. The caller must call leave.
func (p *Plugin) enter(c *call) (*program, pass, error) {
	waited, err := p.queue.enter(c.request.Context())
	c.queued += waited
	if err != nil {
		return nil, passRefused, err
	}
	program := p.join()
	if program == nil {
		p.queue.leave()
		return nil, passRefused, ErrClosed
	}
	pass, retry := program.breaker.admit()
	if pass == passRefused {
		p.leave(program)
		return nil, passRefused, &suspension{retry}
	}
	return program, pass, nil
}

// join adds a call to the current program; nil: the plugin is closing.
func (p *Plugin) join() *program {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.over {
		return nil
	}
	p.current.running.Add(1)
	return p.current
}

func (p *Plugin) leave(program *program) {
	program.running.Done()
	p.queue.leave()
}

// swap makes next the current program and returns the program to close: the old one, or next itself
// if the plugin is closing.
func (p *Plugin) swap(next *program) *program {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.over {
		return next
	}
	last := p.current
	p.current = next
	return last
}

// Close refuses new calls, waits for running ones and releases all resources. A call takes at most
// Config.Timeout, plus Config.InitTimeout if it has to create an instance. If ctx ends first, Close
// returns while the shutdown continues; call it again to wait.
func (p *Plugin) Close(ctx context.Context) error {
	p.mu.Lock()
	first := !p.over
	p.over = true
	p.mu.Unlock()
	if first {
		close(p.closing)
		go p.shutdown()
	}
	select {
	case <-p.closed:
		return p.failure
	case <-ctx.Done():
		return fmt.Errorf("reqlock: wasm: closing continues in the background: %w", ctx.Err())
	}
}

// shutdown closes everything after the last call.
func (p *Plugin) shutdown() {
	if p.watch != nil {
		p.watch.Stop()
	}
	p.failure = p.current.close() // swap no longer changes it
	close(p.closed)
}
