package wasm

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/sys"
)

// An instance is a guest with its own memory. It belongs to one goroutine at a time. After any
// error its state is unknown, and it must be closed.
type instance struct {
	program *program
	module  api.Module
	// handle is handle_request.
	handle api.Function
	// declared is nil for ABI version 1.
	declared *declaration
	deadline *deadline
	stdout   output
	stderr   output
	// call is the running call. It is nil while the guest starts.
	call   *call
	result [1]uint64
}

// instantiate creates an instance and runs its start function. It stops when ctx ends or
// InitTimeout is over.
func (p *program) instantiate(ctx context.Context) (_ *instance, err error) {
	i := &instance{program: p}
	p.counts.instances.Add(1)
	i.deadline = newDeadline(i)
	i.stdout = output{journal: p.journal, name: "stdout", deadline: i.deadline}
	i.stderr = output{journal: p.journal, name: "stderr", deadline: i.deadline}
	defer func() {
		if err != nil {
			i.close()
		}
	}()
	stop := context.AfterFunc(ctx, i.deadline.stop)
	i.deadline.begin(p.cfg.InitTimeout)
	err = i.ended(i.start())
	switch {
	case !stop(): // ctx ended, perhaps just after the start, which it stopped in both cases
		return nil, fmt.Errorf("reqlock: wasm: starting the guest was stopped: %w", context.Cause(ctx))
	case err == nil:
	case p.exitsInStart(err):
		return nil, breach("it exits in _start instead of waiting for calls; %s", p.reactorHint())
	default:
		return nil, fmt.Errorf("reqlock: wasm: starting the guest: %w", err)
	}
	i.handle = i.module.ExportedFunction(exportHandle)
	return i, nil
}

// start runs the guest's start section and the start function it exports.
func (i *instance) start() (err error) {
	defer recoverPanic(&err)
	p := i.program
	i.module, err = p.runtime.InstantiateModule(i.withMemory(i.deadline), p.compiled, moduleConfig())
	switch {
	case err != nil && !ran(err):
		return abort{breach("%s", loggable(err.Error()))}
	case err == nil && p.start != "":
		_, err = i.module.ExportedFunction(p.start).Call(i.deadline)
	}
	if err != nil || !p.version2 {
		return err
	}
	return i.declare()
}

// declare asks a guest of ABI version 2 what it wants to know about requests.
func (i *instance) declare() error {
	at, err := i.module.ExportedFunction(exportV2).Call(i.deadline)
	if err != nil {
		return err
	}
	d, err := readDeclaration(i.module.Memory(), uint32(at[0]))
	switch first := i.program.declared; {
	case err != nil:
		return abort{err}
	case first != nil && (d.wants != first.wants || !slices.Equal(d.headers, first.headers)):
		return abort{breach("%s: an instance wants other parts of a request than the first one", exportV2)}
	}
	i.declared = d
	return nil
}

// ran reports whether err comes from the start section, not from a step before it such as linking
// an import that is neither a function nor memory.
func ran(err error) bool {
	var exit *sys.ExitError
	return errors.As(err, &exit) || strings.HasPrefix(err.Error(), "start ") // wazero's wording
}

// moduleConfig gives a guest nothing of the system. The host functions of wasi do.
func moduleConfig() wazero.ModuleConfig {
	return wazero.NewModuleConfig().
		WithName(""). // several instances may share a runtime
		WithStartFunctions()
}

// run makes the guest decide on one request. After an error the instance must be closed.
func (i *instance) run(c *call) error {
	i.call = c
	if i.declared != nil {
		i.declared.write(i.module.Memory(), c)
	}
	i.deadline.begin(i.program.cfg.Timeout)
	err := i.ended(i.handleRequest())
	i.call = nil
	c.next = uint32(i.result[0]) != 0 // the high half is for the guest
	return err
}

func (i *instance) handleRequest() (err error) {
	defer recoverPanic(&err)
	return i.handle.CallWithStack(i.deadline, i.result[:])
}

// recoverPanic turns a panic of wazero or package meter into an error of the call or of the load,
// which logs one line.
func recoverPanic(err *error) {
	if cause := recover(); cause != nil {
		*err = abort{trapped("the engine panicked: %s", printable(fmt.Sprint(cause), maxText))}
	}
}

// decision reads what the guest decided.
func (i *instance) decision(c *call) error {
	if i.declared == nil || !c.next {
		return c.finish()
	}
	return c.readRecord(i.module.Memory(), uint32(i.result[0]))
}

// ended flushes the guest's output and explains its error. A call that returned too late is a
// timeout, too.
func (i *instance) ended(err error) error {
	inTime := i.deadline.end()
	i.stdout.flush()
	i.stderr.flush()
	if err == nil && inTime {
		return nil
	}
	return i.explain(err, inTime)
}

func (i *instance) explain(err error, inTime bool) error {
	var stopped abort
	var exit *sys.ExitError
	switch {
	case errors.As(err, &stopped):
		return stopped.error
	case !inTime:
		return i.deadline.timeout()
	case errors.As(err, &exit):
		return &exitError{code: exit.ExitCode()}
	default:
		return trapped("%s", loggable(err.Error()))
	}
}

// An exitError means that the guest called proc_exit.
type exitError struct{ code uint32 }

func (e *exitError) Error() string { return fmt.Sprintf("%v: it exited with code %d", ErrTrap, e.code) }
func (e *exitError) Unwrap() error { return ErrTrap }

// usable reports whether the instance can take another call.
func (i *instance) usable() bool { return !i.deadline.over && !i.module.IsClosed() }

// close releases the instance.
func (i *instance) close() {
	i.program.counts.instances.Add(-1)
	if i.module != nil {
		_ = i.module.Close(context.Background()) // cannot fail: it has no files
	}
}
