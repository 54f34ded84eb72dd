package guard

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/reqlock/reqlock/core"
)

// Mode is a kind of lock. Requests that exclude each other need the same Mode, or sides of one
// read/write lock: a name stands for one kind of lock.
type Mode int

// The modes.
const (
	// ModeExclusive runs one request at a time.
	ModeExclusive Mode = iota
	// ModeFair is ModeExclusive, first come, first served across all processes.
	ModeFair
	// ModeFenced is ModeExclusive with Config.Fenced.
	ModeFenced
	// ModeRead runs beside other readers.
	ModeRead
	// ModeWrite excludes readers and writers.
	ModeWrite
	// ModeReadWrite is ModeRead for GET and HEAD, and ModeWrite for the rest.
	ModeReadWrite
)

var modes = []struct {
	name string
	lock func(locks *core.Client, method, name string) core.Lock
}{
	ModeExclusive: {"Exclusive", func(locks *core.Client, _, name string) core.Lock { return *locks.Lock(name) }},
	ModeFair:      {"Fair", func(locks *core.Client, _, name string) core.Lock { return *locks.FairLock(name) }},
	ModeFenced:    {"Fenced", func(locks *core.Client, _, name string) core.Lock { return *locks.FencedLock(name) }},
	ModeRead:      {"Read", func(locks *core.Client, _, name string) core.Lock { return *locks.ReadWriteLock(name).Read() }},
	ModeWrite:     {"Write", func(locks *core.Client, _, name string) core.Lock { return *locks.ReadWriteLock(name).Write() }},
	ModeReadWrite: {"ReadWrite", func(locks *core.Client, method, name string) core.Lock {
		if readsOnly(method) {
			return *locks.ReadWriteLock(name).Read()
		}
		return *locks.ReadWriteLock(name).Write()
	}},
}

func (m Mode) known() bool { return m >= 0 && int(m) < len(modes) }

// String returns the constant's name without "Mode", such as "Exclusive".
func (m Mode) String() string {
	if !m.known() {
		return fmt.Sprintf("Mode(%d)", int(m))
	}
	return modes[m].name
}

// lockOf returns the lock of a name for a request with that method. Readers have no tokens.
func (m Mode) lockOf(locks *core.Client, method, name string, fenced bool) core.Lock {
	lock := modes[m].lock(locks, method, name)
	if !fenced || m == ModeRead || m == ModeReadWrite && readsOnly(method) {
		return lock
	}
	return *lock.Fenced()
}

// readsOnly reports whether ModeReadWrite takes the read side for a method.
func readsOnly(method string) bool { return method == http.MethodGet || method == http.MethodHead }

// check reports why m cannot be used with so many keys. It serves both Config and Policy.
func (m Mode) check(keys int, locker, fenced bool) error {
	switch {
	case !m.known():
		return fmt.Errorf("Mode is %d; use one of the constants, such as ModeExclusive", int(m))
	case m != ModeExclusive && locker:
		return fmt.Errorf("Mode is %s, but Config.Locker or Policy.Lock makes the lock; have it make locks of that kind, and leave Mode at ModeExclusive", m)
	case fenced && locker:
		return errors.New("the option Fenced is set, but Config.Locker or Policy.Lock makes the lock; have it make fenced locks (core.Lock.Fenced)")
	case fenced && keys > 1:
		return errors.New("the option Fenced is set, but several locks have no common token; use one key, or leave Fenced out")
	case m == ModeFenced && keys > 1:
		return errors.New("Mode is Fenced, but several locks have no common token; use one key, or ModeExclusive")
	}
	return nil
}
