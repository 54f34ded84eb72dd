package request

import (
	"errors"
	"math"
	"sync"
	"sync/atomic"
)

// DefaultBudget is the budget in bytes until SetBudget changes it.
const DefaultBudget = 64 << 20

// Exempt is how many bytes of each body do not count. net/http has buffers of that size per
// connection anyway, and small requests get through when stalled uploads use up the budget.
const Exempt = 4 << 10

// ErrBusy means that a body does not fit into the rest of the budget.
var ErrBusy = errors.New("reqlock: the bodies of other requests leave no room for this one in memory (see guard.SetBodyBudget)")

var (
	budget atomic.Int64
	used   atomic.Int64
)

func init() { SetBudget(0) }

// SetBudget changes the budget. 0 means DefaultBudget, -1 no limit. Bodies in memory stay there.
func SetBudget(bytes int64) {
	switch bytes {
	case 0:
		bytes = DefaultBudget
	case -1:
		bytes = math.MaxInt64 - Exempt
	}
	budget.Store(bytes)
}

// BudgetUsed returns how many bytes of the budget are in use.
func BudgetUsed() int64 { return used.Load() }

// largest returns the size of the largest body that fits into an unused budget. Its buffer has one
// byte more.
func largest() int64 { return budget.Load() + Exempt - 1 }

// hasRoom reports whether a body of this size fits now.
func hasRoom(bytes int64) bool { return bytes <= largest()-used.Load() }

func take(bytes int64) error {
	for {
		now := used.Load()
		if bytes > budget.Load()-now {
			return ErrBusy
		}
		if used.CompareAndSwap(now, now+bytes) {
			return nil
		}
	}
}

// An Account is one request's share of the budget. The zero value is empty.
type Account struct {
	mu     sync.Mutex
	taken  int64
	closed bool
}

// Hold takes the bytes of an answer that is kept to be sent. One that is larger than the whole budget
// needs all of it.
func (a *Account) Hold(bytes int) error {
	return a.Grow(0, int(min(int64(bytes), largest())))
}

// Grow takes the bytes that a buffer needs to grow.
func (a *Account) Grow(from, to int) error {
	more := int64(max(to, Exempt) - max(from, Exempt))
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed || more == 0 {
		return nil // after Close, these bytes would never be given back
	}
	if err := take(more); err != nil {
		return err
	}
	a.taken += more
	return nil
}

// Close returns the share to the budget. It may be called again.
func (a *Account) Close() {
	a.mu.Lock()
	defer a.mu.Unlock()
	used.Add(-a.taken)
	a.taken, a.closed = 0, true
}
