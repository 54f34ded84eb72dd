package batch

import (
	"math/bits"
	"sync/atomic"
)

// Sizes is the number of classes of batches by size. The last class has batches of 128 calls, the
// most there are.
const Sizes = 8

// Sent is what a batcher has sent.
type Sent struct {
	Calls uint64
	Sizes [Sizes]uint64 // batches of 2^i to 2^(i+1)-1 calls
}

type sent struct {
	calls atomic.Uint64
	sizes [Sizes]atomic.Uint64
}

// add counts a batch of n calls, at least 1.
func (c *sent) add(n int) {
	c.calls.Add(uint64(n))
	c.sizes[min(bits.Len(uint(n)), Sizes)-1].Add(1)
}

// Sent returns what has been sent so far.
func (b *Batcher) Sent() Sent {
	n := Sent{Calls: b.totals.calls.Load()}
	for i := range n.Sizes {
		n.Sizes[i] = b.totals.sizes[i].Load()
	}
	return n
}
