package core

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/reqlock/reqlock/core/internal/kinds"
	"github.com/reqlock/reqlock/core/internal/lua"
)

// ForceUnlock frees the lock, whichever owner holds it, and reports whether it was held. Leases of
// this client end first, with ErrLockLost, including those that Acquire has not returned yet.
// Holders in other clients of reqlock are told, and their leases end as soon as they have asked
// Redis, usually within milliseconds. A holder that cannot be told loses the lock at its next
// renewal: one of Redisson, one whose Redis user may not subscribe to reqlock:client:*, or one
// whose connection is down. A lease there with a LeaseTime is not renewed: it is lost when it is
// re-entered, extended or released, or when it expires. Until then two owners may both believe that
// they hold the lock. The same applies if another program frees a lock. WithReason tells holders who
// frees it, and why.
//
// ForceUnlock does not free a lock that another owner acquires meanwhile. It returns ErrWrongKind
// if the name is held as a read/write lock and l is none, or vice versa. On the read side of a
// read/write lock it frees all readers, but not a writer. On the write side it frees the writer and
// the read levels that the writer holds. Redisson: forceUnlock.
func (l *Lock) ForceUnlock(ctx context.Context) (bool, error) {
	fields, err := l.holders(ctx)
	if err == nil && len(fields) > 0 {
		// An owner that is gone has released it meanwhile, or lost it to a try without a reply.
		_, _, err = l.takeFrom(ctx, l.kind.Whole(fields))
	}
	if err != nil {
		return false, opErr("force-unlock", l.label(), err)
	}
	return len(fields) > 0, nil
}

// Forced is what ForceUnlockOwners has done.
type Forced struct {
	// Owners have lost the lock, sorted.
	Owners []string
	// Left is how many other owners held the lock then, or how many permits of a semaphore others had.
	// 0: it was free.
	Left int
}

// ForceUnlockOwners is ForceUnlock for a lock that is known by its key in Redis and by its owners,
// such as one that package inspect has found. It takes the lock from these owners only, in one
// step: one that acquires the lock meanwhile keeps it. Owners are as in Redis, where that of a
// writer ends with ":write"; a writer loses its read levels as well. An owner loses all its permits
// of a semaphore. Redisson's permits have IDs of 16 bytes, which may be given as hex digits, too.
// Options.NameMapper is not applied. kindName is one of Kinds.
//
// If the reply to a try was lost and a later one does not find an owner, ForceUnlockOwners cannot
// tell whether the owner has lost the lock or released it. It then returns an error that names the
// owner, beside what it knows. After any other error of Redis, Forced has only owners of this
// client. An unknown kind, and no owners, are ErrInvalidOptions.
func (c *Client) ForceUnlockOwners(ctx context.Context, key, kindName string, owners []string) (Forced, error) {
	l := &Lock{c: c, kind: kinds.Named(kindName), name: key, key: key, err: c.checkSlot(key)}
	switch {
	case key == "":
		l.err = invalid(ErrInvalidName, "it is empty")
	case l.kind == nil:
		l.err = invalid(ErrInvalidOptions, "there is no kind of lock %q; use one of %q", kindName, Kinds())
	case len(owners) == 0:
		l.err = invalid(ErrInvalidOptions, "there are no owners to take the lock from")
	}
	return l.forceOwners(ctx, owners)
}

// forceOwners takes the lock from these owners only.
func (l *Lock) forceOwners(ctx context.Context, owners []string) (Forced, error) {
	if l.err != nil {
		return Forced{}, opErr("force-unlock", l.label(), l.err)
	}
	forced, unsure, err := l.takeFrom(ctx, l.kind.Whole(owners))
	if err == nil && len(unsure) > 0 {
		err = fmt.Errorf("the reply to a try was lost; then %s did not hold it: taken by that try, or released",
			strings.Join(unsure, " and "))
	}
	if err != nil {
		return forced, opErr("force-unlock", l.label(), err)
	}
	return forced, nil
}

// takeFrom takes the lock from the owners with these fields, which may be there twice. unsure are
// those that may have lost it to a try whose reply was lost.
func (l *Lock) takeFrom(ctx context.Context, fields []string) (forced Forced, unsure []string, err error) {
	if ctx.Err() != nil {
		return Forced{}, nil, ended(ctx)
	}
	slices.Sort(fields)
	fields = slices.Compact(fields)
	lost := l.endHolds(fields, forcingOf(ctx).cause())
	l.c.announceForcing(ctx, l.key, fields)
	call := l.kind.Force(l.c.engine.settings(), l.key, fields)
	x := l.c.ops.Op(call, l.c.opts.CommandTimeout)
	reply, err := l.c.runOp(ctx, x)
	var taken []bool
	if err == nil {
		taken, forced.Left, err = call.ReadTaken(reply, len(fields))
	}
	if err != nil {
		return Forced{Owners: lost}, nil, err
	}
	for i, field := range fields {
		switch {
		case taken[i] || contains(lost, field):
			forced.Owners = append(forced.Owners, field)
		case x.TryUnanswered():
			unsure = append(unsure, field)
		}
	}
	l.c.names.wake(l.key)
	return forced, unsure, nil
}

// holders returns the fields of all holders of the lock, or of this side of it, in Redis.
func (l *Lock) holders(ctx context.Context) ([]string, error) {
	answer, err := l.run(ctx, l.kind.Holders(l.key))
	if err != nil {
		return nil, err
	}
	fields, err := lua.ReadHolders(answer)
	if !l.kind.Fits(fields) {
		return nil, cmp.Or(err, ErrWrongKind)
	}
	return l.kind.Held(fields), err
}

// endHolds ends the holds of this client that have these fields, which are sorted, including those that
// Redis has granted but whose reply has not been read yet. It returns the fields of the holds that
// it has ended, sorted: the cleaner may free them before the script does.
func (l *Lock) endHolds(fields []string, cause error) (lost []string) {
	e := l.c.names.open(l.key, l.kind.Counted)
	taken := e.forceLocked(func(field string) bool { return contains(fields, l.kind.Field(field)) })
	e.close()
	for _, h := range taken {
		if h.lose(cause) {
			lost = append(lost, l.kind.Field(h.wire))
		}
	}
	slices.Sort(lost)
	return lost
}

// contains reports whether a sorted list contains a field.
func contains(sorted []string, field string) bool {
	_, found := slices.BinarySearch(sorted, field)
	return found
}
