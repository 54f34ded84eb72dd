package wasm

import (
	"context"
	"log/slog"
	"unicode/utf16"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
)

// The modules that guests can import, besides moduleWASI.
const (
	moduleHTTP    = "http_handler"
	moduleReqlock = "reqlock_v1"
	moduleV2      = "reqlock_v2"
	moduleEnv     = "env"
)

// A hostModule holds the functions that guests can import from one module.
type hostModule []hostFunction

type hostFunction struct {
	name            string
	params, results []api.ValueType
	// The stack holds the arguments, then the result.
	fn func(i *instance, mem memory, stack []uint64)
}

func (m hostModule) instantiate(ctx context.Context, r wazero.Runtime, name string) error {
	builder := r.NewHostModuleBuilder(name)
	for _, f := range m {
		builder.NewFunctionBuilder().WithGoModuleFunction(f, f.params, f.results).Export(f.name)
	}
	_, err := builder.Instantiate(ctx)
	return err
}

// Call implements api.GoModuleFunction.
func (f hostFunction) Call(ctx context.Context, guest api.Module, stack []uint64) {
	i := ctx.Value(instanceKey{}).(*instance)
	i.deadline.hostCalled()
	f.fn(i, memory{guest.Memory(), f.name, i.deadline}, stack)
}

// inCall wraps a function that may be called only during handle_request.
func inCall(fn func(c *call, mem memory, stack []uint64)) func(*instance, memory, []uint64) {
	return func(i *instance, mem memory, stack []uint64) {
		if i.call == nil {
			panic(abort{breach("%s: no request before handle_request is called", mem.function)})
		}
		fn(i.call, mem, stack)
	}
}

// memory is the guest's memory as one host function sees it.
type memory struct {
	api.Memory
	function string
	deadline *deadline
}

// checkFrom is the number of bytes from which a host function looks at the deadline.
const checkFrom = 4096

// bytes returns a view that is valid until the guest runs again.
func (m memory) bytes(ptr, length uint64) []byte {
	if m.Memory == nil {
		panic(abort{trapped("%s: the guest has no memory", m.function)})
	}
	if uint32(length) >= checkFrom {
		m.deadline.check()
	}
	b, ok := m.Read(uint32(ptr), uint32(length))
	if uint32(length) == 0 {
		return nil // a guest may pass any pointer with an empty value
	}
	if !ok {
		panic(abort{trapped("%s: %d bytes at %d are outside the guest's memory", m.function, uint32(length), uint32(ptr))})
	}
	return b
}

func (m memory) string(ptr, length uint64) string { return string(m.bytes(ptr, length)) }

// maxName limits the name of a header, in bytes.
const maxName = 64 << 10

// name returns the name of a header.
func (m memory) name(ptr, length uint64) string {
	if uint32(length) > maxName {
		panic(abort{breach("%s: the name has more than %d bytes", m.function, maxName)})
	}
	return m.string(ptr, length)
}

// text returns text for logs, truncated before it is copied.
func (m memory) text(ptr, length uint64) string {
	b := m.bytes(ptr, length)
	return string(b[:min(len(b), maxText)])
}

// fill writes a value if it fits, and returns its length in any case.
func (m memory) fill(buf, limit uint64, value string) uint64 {
	if uint64(len(value)) <= uint64(uint32(limit)) {
		copy(m.bytes(buf, uint64(len(value))), value)
	}
	return uint64(len(value))
}

// fillList writes values, each followed by a NUL, and returns count<<32|length.
func (m memory) fillList(buf, limit uint64, values []string) uint64 {
	length := len(values)
	for _, v := range values {
		length += len(v)
	}
	if length >= checkFrom {
		m.deadline.check()
	}
	if uint64(length) <= uint64(uint32(limit)) {
		out := m.bytes(buf, uint64(length))
		for _, v := range values {
			n := copy(out, v)
			out[n] = 0
			out = out[n+1:]
		}
	}
	return uint64(len(values))<<32 | uint64(length)
}

const (
	i32 = api.ValueTypeI32
	i64 = api.ValueTypeI64
)

func types(t ...api.ValueType) []api.ValueType { return t }

// hostModules are the modules that guests can import. No function of another kind is among them,
// because only a hostFunction looks at the deadline.
var hostModules = map[string]hostModule{
	moduleHTTP:    httpHandler,
	moduleReqlock: reqlockV1,
	moduleV2:      reqlockV2,
	moduleWASI:    wasi,
	moduleEnv: {
		{"abort", types(i32, i32, i32, i32), nil, envAbort},
	},
}

// envAbort is AssemblyScript's abort. Its message and file name are UTF-16, and the word before
// each holds the length in bytes.
func envAbort(_ *instance, mem memory, stack []uint64) {
	text := func(ptr uint64) string {
		length, ok := mem.ReadUint32Le(uint32(ptr) - 4)
		if uint32(ptr) < 4 || !ok {
			return ""
		}
		b, ok := mem.Read(uint32(ptr), min(length, 2*maxText))
		if !ok {
			return ""
		}
		units := make([]uint16, len(b)/2)
		for i := range units {
			units[i] = uint16(b[2*i]) | uint16(b[2*i+1])<<8
		}
		return printable(string(utf16.Decode(units)), maxText)
	}
	panic(abort{trapped("abort: %s (%s:%d:%d)", text(stack[0]), text(stack[1]), uint32(stack[2]), uint32(stack[3]))})
}

// guestLog implements http_handler's log.
func guestLog(i *instance, mem memory, stack []uint64) {
	text := mem.text(stack[1], stack[2])
	if level, ok := logLevel(stack[0]); ok {
		i.program.journal.say(level, "reqlock: wasm: guest log", text)
	}
}

func logEnabled(i *instance, _ memory, stack []uint64) {
	level, ok := logLevel(stack[0])
	stack[0] = bit(ok && i.program.journal.enabled(level))
}

// logLevel converts an http-wasm level. It returns false for "none".
func logLevel(level uint64) (slog.Level, bool) {
	switch int32(level) {
	case -1:
		return slog.LevelDebug, true
	case 0:
		return slog.LevelInfo, true
	case 1:
		return slog.LevelWarn, true
	case 2:
		return slog.LevelError, true
	}
	return 0, false
}

func bit(b bool) uint64 {
	if b {
		return 1
	}
	return 0
}
