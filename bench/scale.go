package main

import (
	"context"
	"fmt"
	"time"

	"github.com/reqlock/reqlock/core"
)

const (
	scale         = "Scale"
	manyNames     = 100000
	distinctNames = "100000 names, one after the other"
	bytesAName    = "bytes/name after use"
	statsAfter    = "names known after use"
	mostScale     = 4096
)

// scales measures throughput by number of goroutines, and the memory left by names that were used
// once.
func (b *bench) scales() error {
	clients, closeAll, err := openAll(b.addr, settings{lease: 30 * time.Second}, ours)
	if err != nil {
		return err
	}
	defer closeAll()
	if err := b.repeat(2*b.nRounds, scale, func() error {
		for n := 1; n <= mostScale; n *= 2 {
			u, err := b.probe.together(n, b.pick(300*time.Millisecond, 50*time.Millisecond), ours, uncontendedCycles(clients[0]))
			if err != nil {
				return err
			}
			b.addUsage(scale, goroutinesOf(n), ours, u)
		}
		return nil
	}); err != nil {
		return err
	}
	return b.rounds(scale+", names", func() error { return b.forget(clients[0].client.(ourClient).Client) })
}

// forget uses many names once.
func (b *bench) forget(c *core.Client) error {
	ctx := context.Background()
	before := heapBytes()
	if err := inParallel(func(worker int) error {
		for i := worker; i < manyNames; i += atOnce {
			lease, err := c.Lock(fmt.Sprint("bench:once:", i)).Acquire(ctx, core.AcquireOptions{})
			if err != nil {
				return err
			}
			if err := lease.Release(ctx); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		return err
	}
	for range 100 { // soon after the last release all names are forgotten
		if c.Stats() == (core.Stats{}) {
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	b.add(scale, distinctNames, ours, bytesAName, max(0, float64(heapBytes())-float64(before))/manyNames)
	b.add(scale, distinctNames, ours, statsAfter, float64(c.Stats().Names))
	return nil
}
