package guard

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/reqlock/reqlock/core"
)

// acquire takes the lock of the request, or all of them as one.
func (x *exchange) acquire(p Policy) error {
	ctx := x.delegated()
	lock, err := x.lockOf(ctx, p)
	if err != nil {
		return err
	}
	x.asked = lock
	lease, err := lock.Acquire(ctx, core.AcquireOptions{
		WaitTime:   p.WaitTime,
		LeaseTime:  p.LeaseTime,
		MaxWaiters: x.g.cfg.MaxWaiters,
	})
	if err != nil {
		return err
	}
	if lease == nil {
		return fmt.Errorf("%w: a lock of Config.Locker or Policy.Lock returned neither a lease nor an error", core.ErrInvalidOptions)
	}
	x.section.lease = lease // the handler does not run yet
	return nil
}

// lockOf returns one lock that stands for all locks of the request.
func (x *exchange) lockOf(ctx context.Context, p Policy) (core.Locker, error) {
	if p.Lock != nil {
		return p.Lock, nil
	}
	names := x.g.names(p.Keys, p.Limit)
	locks := x.siblings(ctx, names)
	if len(names) == 1 && len(locks) == 0 {
		return x.lockInto(&x.lock, names[0], p)
	}
	for _, name := range names {
		lock, err := x.lockInto(new(core.Lock), name, p)
		if err != nil {
			return nil, err
		}
		locks = append(locks, lock)
	}
	return core.MultiLock(locks...), nil
}

// lockInto returns the lock of a name. It makes room that lock, unless Config.Locker has one or there
// is a limit.
func (x *exchange) lockInto(room *core.Lock, name string, p Policy) (core.Locker, error) {
	if p.Limit > 0 {
		return x.g.locks.Semaphore(name, p.Limit), nil
	}
	if x.g.cfg.Locker == nil {
		*room = p.Mode.lockOf(x.g.locks, x.r.Method, name, p.Fenced)
		return room, nil
	}
	if lock := x.g.cfg.Locker(x.r, name); lock != nil {
		return lock, nil
	}
	return nil, fmt.Errorf("%w: Config.Locker returned nil", core.ErrInvalidOptions)
}

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

// names turns keys into the names of the locks or limits, in place, sorted and each once.
//
// The number of a limit is part of its name. A semaphore has one number, and guards and policies of
// this process may want several for one key: after a change of the routes file, too.
func (g *Guard) names(keys []string, limit int) []string {
	part := ""
	if limit > 0 {
		part = "%limit:" + strconv.Itoa(limit) + ":" // no encoded key has %l
	}
	names := keys
	for i, key := range keys {
		names[i] = g.cfg.Name(part + encodeKey(key))
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// Exact is a Config.Name that uses the key as the lock's name, so that other programs, Redisson
// among them, can share the lock. Characters and length are changed as described at Config.Key.
func Exact(key string) string { return key }

// maxKeyLen is the longest encoded key, in bytes; beyond it, the hash of the key is used.
const maxKeyLen = 256

// encodeKey makes the key of a request safe as a part of a Redis key. Different keys stay
// different. Braces would choose the cluster slot, and control characters and invalid UTF-8 would
// garble logs: they become %XX, and so does the percent sign. A key that is too long becomes its
// hash after "%s", which no encoded key contains.
func encodeKey(key string) string {
	clean := true
	for i := 0; i < len(key) && clean; i++ {
		clean = plain(key[i]) && key[i] < utf8.RuneSelf
	}
	encoded := key
	if !clean {
		encoded = percentEncode(key)
	}
	if len(encoded) > maxKeyLen {
		sum := sha256.Sum256([]byte(key))
		return "%sha256:" + hex.EncodeToString(sum[:])
	}
	return encoded
}

func plain(b byte) bool {
	return b >= ' ' && b != 0x7f && b != '{' && b != '}' && b != '%'
}

func percentEncode(key string) string {
	var b strings.Builder
	for i, r := range key {
		size := utf8.RuneLen(r)
		if r == utf8.RuneError && !strings.HasPrefix(key[i:], string(utf8.RuneError)) {
			size = 1 // an invalid byte
		}
		for _, c := range []byte(key[i : i+size]) {
			if plain(c) && (size > 1 || c < utf8.RuneSelf) && !unicode.IsControl(r) {
				b.WriteByte(c)
			} else {
				fmt.Fprintf(&b, "%%%02X", c)
			}
		}
	}
	return b.String()
}
