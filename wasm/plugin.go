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

	"github.com/reqlock/reqlock/guard"
	"github.com/reqlock/reqlock/keyfuncs"
)

// A Plugin is a WebAssembly guest that decides what is locked, and how. It is safe for concurrent use.
type Plugin struct {
	cfg      Config
	journal  *journal
	readBody func(*http.Request) ([]byte, error)
	slots    chan struct{} // one for each call that runs
	closing  chan struct{} // closed by Close
	closed   chan struct{} // closed when all is over
	failure  error         // of closing; to be read when closed is

	mu      sync.Mutex
	current *program
	over    bool // no call enters any more

	stopWatch context.CancelFunc // nil: nothing is watched
	watched   chan struct{}      // closed when the watch is over
}

// New makes a plugin of a binary. It compiles it and starts one instance, which takes some milliseconds for a guest in C and half a
// second for one in Go. ErrBadGuest, ErrTrap and ErrTimeout say what is wrong with the guest. The logs call it by its checksum.
func New(ctx context.Context, binary []byte, cfg Config) (*Plugin, error) {
	if cfg.Watch {
		return nil, errors.New("reqlock: wasm: invalid Config: Watch is set, and there is no file to watch; use Open")
	}
	sum := sha256.Sum256(binary)
	return newPlugin(ctx, binary, cfg, "sha256:"+hex.EncodeToString(sum[:6]))
}

// Open makes a plugin of a file, by whose name the logs call it. With Config.Watch it takes a new version up by itself, about a
// second after the file has changed, or ten if its size and time are the same: the new one is compiled and started before it takes
// over, and while it does, no call fails. One that does not start is logged, and the old one stays. Replace the file by renaming
// another into its place.
func Open(ctx context.Context, path string, cfg Config) (*Plugin, error) {
	return open(ctx, path, cfg, pollInterval)
}

func newPlugin(ctx context.Context, binary []byte, cfg Config, name string) (*Plugin, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	p := &Plugin{cfg: cfg.withDefaults(), closing: make(chan struct{}), closed: make(chan struct{})}
	p.cfg.Settings = bytes.Clone(cfg.Settings)
	p.journal = newJournal(p.cfg.Logger, name)
	p.readBody = keyfuncs.Body(keyfuncs.MaxBody(p.cfg.MaxBody))
	p.slots = make(chan struct{}, p.cfg.MaxInstances)
	program, err := load(ctx, binary, &p.cfg, p.journal)
	if err != nil {
		return nil, err
	}
	p.current = program
	return p, nil
}

// Policy asks the guest about a request. It is a guard.PolicyFunc. policy comes with the values that hold where the guest sets
// none, and is left as it is if there is an error: a *guard.Error with the guest's refusal, or with one of this package's errors.
//
// If the guest can read the body, it is read before the guest runs. The handler reads the same bytes, whatever becomes of the guest.
func (p *Plugin) Policy(r *http.Request, policy *guard.Policy) error {
	c := newCall(&p.cfg, r, *policy)
	err := p.decide(c)
	var refusal *guard.Error
	var noBody *unreadable
	switch {
	case err == nil:
		*policy = c.policy
		return nil
	case errors.As(err, &refusal), errors.As(err, &noBody), errors.Is(err, context.Canceled):
		return err
	case !errors.Is(err, ErrBusy) && !errors.Is(err, ErrClosed) && !errors.Is(err, ErrBodyTooLarge):
		p.journal.say(slog.LevelError, "reqlock: wasm: the plugin has failed, the request is refused", err.Error())
	}
	return failed(err)
}

func (p *Plugin) decide(c *call) error {
	program, err := p.enterFor(c)
	if err != nil {
		return err
	}
	defer p.leave(program)
	if err := program.run(c); err != nil {
		return err
	}
	return c.finish()
}

// enterFor enters when the body is there for a program that reads it. Programs change, so it looks again.
func (p *Plugin) enterFor(c *call) (*program, error) {
	p.mu.Lock()
	readsBody := p.current.readsBody
	p.mu.Unlock()
	if readsBody {
		c.bufferBody(p.readBody)
	}
	for {
		program, err := p.enter(c.request.Context())
		if err != nil || c.buffered || !program.readsBody {
			return program, err
		}
		p.leave(program)
		c.bufferBody(p.readBody)
	}
}

// enter waits for a slot. Whoever enters has to leave.
func (p *Plugin) enter(ctx context.Context) (*program, error) {
	select {
	case p.slots <- struct{}{}:
	default:
		select {
		case p.slots <- struct{}{}:
		case <-p.closing:
			return nil, ErrClosed
		case <-ctx.Done():
			return nil, fmt.Errorf("%w: %w", ErrBusy, ctx.Err())
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.over {
		<-p.slots
		return nil, ErrClosed
	}
	p.current.running.Add(1)
	return p.current, nil
}

func (p *Plugin) leave(program *program) {
	program.running.Done()
	<-p.slots
}

// swap lets another program take over, and returns the one that is to be closed: the last one, or, if the plugin is closing, the
// other one itself.
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

// Close refuses new calls, waits for those that run, and gives everything back. A call is bounded by Config.Timeout, and by
// Config.InitTimeout before that if it has to make an instance. An end of ctx ends only the waiting; call Close again to wait on.
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
		return fmt.Errorf("reqlock: wasm: closing goes on: %w", ctx.Err())
	}
}

// shutdown ends with the last call.
func (p *Plugin) shutdown() {
	if p.stopWatch != nil {
		p.stopWatch()
		<-p.watched
	}
	p.failure = p.current.close() // no longer changed by swap
	close(p.closed)
}
