package claim

import (
	"errors"
	"fmt"
)

// ErrNotHeld is core.ErrNotHeld.
var ErrNotHeld = errors.New("reqlock: lock not held")

// A NotHeldError is a reason why a lease has ended. It matches ErrNotHeld.
type NotHeldError string

func (e NotHeldError) Error() string { return string(e) }

// Is reports whether target is [ErrNotHeld].
func (e NotHeldError) Is(target error) bool { return target == ErrNotHeld }

// ErrLockLost is core.ErrLockLost.
var ErrLockLost error = NotHeldError("reqlock: lock lost")

// ErrReleased is core.ErrReleased.
var ErrReleased error = NotHeldError("reqlock: lock released")

var (
	// ErrLate means that the lease expired before the reply was read.
	ErrLate = fmt.Errorf("%w: the lease expired before the reply arrived; "+
		"use a longer LeaseTime, or WatchdogTimeout if there is none", ErrLockLost)
	// ErrForced means that ForceUnlock freed the hold in Redis before the reply was read.
	ErrForced = fmt.Errorf("%w: ForceUnlock freed it before Acquire returned", ErrLockLost)
	// ErrOutrun means that this client was granted another hold of the lock between the command and its
	// reply. It is unknown which of the two Redis has now, so neither counts.
	ErrOutrun = fmt.Errorf("%w: another owner in this process was granted it before the reply arrived", ErrLockLost)
)
