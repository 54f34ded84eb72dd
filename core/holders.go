package core

import (
	"context"
	"slices"
	"time"

	"github.com/reqlock/reqlock/core/internal/clock"
	"github.com/reqlock/reqlock/core/internal/lua"
	"github.com/reqlock/reqlock/core/internal/wire"
)

// A Holder is an owner that holds a lock, as HoldersOf found it.
type Holder struct {
	Owner string        // wire owner; it begins with the ID of its client
	Held  time.Duration // since it acquired the lock; 0: another client has it, which alone knows
}

// HoldersOf asks Redis who holds a lock, each lock of a MultiLock, or the permits of a semaphore. It
// is for logs: the answer may be old when it arrives. A Locker that this package did not make has no
// holders, unless its method Unwrap() Locker returns a lock of this package.
func HoldersOf(ctx context.Context, l Locker) ([]Holder, error) {
	var all []Holder
	for _, p := range parts(unwrapped(l)) {
		answer, err := p.lock.run(ctx, p.lock.kind.Holders(p.lock.key))
		var fields []string
		if err == nil {
			fields, err = lua.ReadHolders(answer)
		}
		if err != nil {
			return nil, opErr("find the holders of", p.lock.label(), err)
		}
		for _, field := range fields {
			owner := wire.OwnerOf(field)
			if field != wire.ModeField && !slices.ContainsFunc(all, func(h Holder) bool { return h.Owner == owner }) {
				all = append(all, Holder{owner, p.lock.heldHere(owner)})
			}
		}
	}
	return all, nil
}

// heldHere returns for how long an owner of this client has held the lock; 0: it does not.
func (l *Lock) heldHere(owner string) time.Duration {
	e := l.c.names.open(l.key, l.kind.Counted)
	defer e.close()
	for h := e.holds.first; h != nil; h = h.next {
		if h.wire == owner {
			return clock.Now().Since(h.first.acquired)
		}
	}
	return 0
}

// LogNameOf returns what logs and errors call a lock: its name with Options.LogNames, otherwise a
// short hash of it.
func LogNameOf(l Locker) string {
	l = unwrapped(l)
	if all := parts(l); len(all) == 1 {
		return all[0].lock.label().String()
	}
	return labelOf(l).String()
}

// unwrapped returns the lock of this package in a Locker around one.
func unwrapped(l Locker) Locker {
	if w, ok := l.(interface{ Unwrap() Locker }); ok {
		return w.Unwrap()
	}
	return l
}
