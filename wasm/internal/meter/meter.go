// Package meter rewrites WebAssembly modules so that their host can stop them.
//
// Compiled code cannot be preempted. A guest that runs for a second delays its deadline, and the
// garbage collector and with it every other goroutine, by a second. A metered guest counts its
// work down instead, and calls the host each time the counter is used up:
//
//   - Each function and each loop begins with a check, which subtracts the cost of the instructions
//     that follow. Long code has more checks in between. So no path is free, and none is long.
//   - Functions that call others also count the call stack, because recursion would fill it.
//   - Bulk memory instructions become functions that work in pieces with checks between them.
//
// The host's function, Check, runs in Go, where a deadline can be looked at and goroutines give
// way.
//
// Instrument also refuses modules beyond Limits, because a small file can take a compiler minutes.
// It decodes and encodes each instruction, so that the compiler cannot read a module differently.
// It knows WebAssembly 2.0. It does not validate types: the compiler does.
package meter

import "fmt"

// A metered module imports the function Check from Module: (fuel i64, stack i64) -> i64. The guest
// calls it with what is left, when either is below 0. stack below 0 means that the call stack is
// full, and the host must trap. Otherwise it returns the fuel until the next call, usually Slice.
const (
	Module = "reqlock_meter"
	Check  = "check"
)

// Stack is the exported counter of what is left of the stack. A function that traps does not give
// back its frame: before another call, a host must set the counter to StackSize or drop the
// instance.
const Stack = "reqlock_meter_stack"

// Slice is the fuel between two calls of Check. A unit is about one simple instruction, so that a
// slice takes some 10 µs, and 2 ms if each instruction misses the cache.
const Slice = 20_000

// StackSize limits the estimated size of the guest's call stack, in bytes.
const StackSize = 2 << 20

// Instrument returns the metered form of a module, or why the module is refused. A panic would be a
// defect; it does not depend on anything but its arguments.
func Instrument(binary []byte, limits Limits) ([]byte, error) {
	if len(binary) > limits.File {
		return nil, tooMany("the file", len(binary), "bytes", limits.File)
	}
	m := &module{limits: limits}
	if err := m.read(binary); err != nil {
		return nil, err
	}
	if err := m.inject(); err != nil {
		return nil, err
	}
	return m.write(), nil
}

func tooMany(owner string, n int, what string, limit int) error {
	return fmt.Errorf("%s has %d %s; at most %d are accepted", owner, n, what, limit)
}
