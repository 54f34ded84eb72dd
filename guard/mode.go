package guard

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/reqlock/reqlock/core"
)

// Mode is a kind of lock. Requests that are to exclude each other need the same one, or sides of one read/write lock: a name
// stands for one kind of lock.
type Mode int

// The modes.
const (
	Exclusive Mode = iota // one request at a time
	Fair                  // the same, first come first served across all processes
	Fenced                // Exclusive, with a fencing token in the lease: see core.Lease.Token. For one key
	Read                  // shared with other readers
	Write                 // excludes readers and writers
	ReadWrite             // Read for GET and HEAD, Write for the rest
)

var modes = []struct {
	name string
	lock func(locks *core.Client, method, name string) core.Locker
}{
	Exclusive: {"Exclusive", func(locks *core.Client, _, name string) core.Locker { return locks.Lock(name) }},
	Fair:      {"Fair", func(locks *core.Client, _, name string) core.Locker { return locks.FairLock(name) }},
	Fenced:    {"Fenced", func(locks *core.Client, _, name string) core.Locker { return locks.FencedLock(name) }},
	Read:      {"Read", func(locks *core.Client, _, name string) core.Locker { return locks.ReadWriteLock(name).Read() }},
	Write:     {"Write", func(locks *core.Client, _, name string) core.Locker { return locks.ReadWriteLock(name).Write() }},
	ReadWrite: {"ReadWrite", func(locks *core.Client, method, name string) core.Locker {
		if method == http.MethodGet || method == http.MethodHead {
			return locks.ReadWriteLock(name).Read()
		}
		return locks.ReadWriteLock(name).Write()
	}},
}

func (m Mode) known() bool { return m >= 0 && int(m) < len(modes) }

func (m Mode) String() string {
	if !m.known() {
		return fmt.Sprintf("Mode(%d)", int(m))
	}
	return modes[m].name
}

// check is for both Config and Policy.
func (m Mode) check(keys int, locker bool) error {
	switch {
	case !m.known():
		return fmt.Errorf("Mode is %d; use one of the constants, such as Exclusive", int(m))
	case m != Exclusive && locker:
		return fmt.Errorf("Mode is %s, but Config.Locker makes the locks; have it make locks of that kind, and leave Mode at Exclusive", m)
	case m == Fenced && keys > 1:
		return errors.New("Mode is Fenced, but several locks have no common token; use one key, or Exclusive")
	}
	return nil
}
