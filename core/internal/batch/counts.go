package batch

import (
	"math/bits"
	"sync/atomic"
)

// Sizes is the number of classes of batches by size. The last class has batches of 128 calls, the
// most there are.
const Sizes = 8

// Counts counts what a batcher has sent.
type Counts struct {
	Calls uint64
	Sizes [Sizes]uint64 // batches of 2^i to 2^(i+1)-1 calls
}

type counts struct {
	calls atomic.Uint64
	sizes [Sizes]atomic.Uint64
}

// add counts a batch of n calls, at least 1.
func (c *counts) add(n int) {
	c.calls.Add(uint64(n))
	c.sizes[min(bits.Len(uint(n)), Sizes)-1].Add(1)
}

// Counts returns the current counts.
func (b *Batcher) Counts() Counts {
	n := Counts{Calls: b.counts.calls.Load()}
	for i := range n.Sizes {
		n.Sizes[i] = b.counts.sizes[i].Load()
	}
	return n
}
