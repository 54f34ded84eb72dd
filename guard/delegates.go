package guard

import (
	"context"
	"fmt"
	"strings"

	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/delegation"
)

// Delegates says whether a request may enter the lock of its caller; see Config.Delegates.
type Delegates int

// How requests with a token enter.
const (
	// DelegatesNone makes them wait like anyone.
	DelegatesNone Delegates = iota
	// DelegatesTogether lets all guests of a hold in at the same time.
	DelegatesTogether
	// DelegatesOneAtATime makes the guests of a hold exclude each other, in all processes.
	DelegatesOneAtATime
)

var delegates = [...]string{DelegatesNone: "None", DelegatesTogether: "Together", DelegatesOneAtATime: "OneAtATime"}

func (d Delegates) known() bool { return d >= 0 && int(d) < len(delegates) }

// String returns the constant's name without "Delegates", such as "Together".
func (d Delegates) String() string {
	if !d.known() {
		return fmt.Sprintf("Delegates(%d)", int(d))
	}
	return delegates[d]
}

// delegated returns the context to acquire with: it has the tokens of the request, if they count here.
func (x *exchange) delegated() context.Context {
	if x.g.cfg.Delegates == DelegatesNone {
		return &x.ctx
	}
	return core.WithDelegation(&x.ctx, strings.Join(x.r.Header.Values(delegation.Header), ","))
}

// siblings returns the locks by which the guests of one hold exclude each other. A guest of a guest has
// another host, so it does not wait for the one that called it.
func (x *exchange) siblings(ctx context.Context, names []string) (locks []core.Locker) {
	if x.g.cfg.Delegates != DelegatesOneAtATime {
		return nil
	}
	for _, name := range names {
		if host, ok := x.g.locks.Invitation(ctx, name); ok {
			locks = append(locks, x.g.locks.Lock(name+"%guests:"+host))
		}
	}
	return locks
}
