package main

import (
	"context"
	"fmt"
	"time"

	"github.com/reqlock/reqlock/core"
)

const (
	names         = "Names"
	manyNames     = 100000
	distinctNames = "100000 names, one after the other"
	bytesAName    = "bytes/name after use"
	statsAfter    = "names known after use"
)

// names measures the memory that names leave behind that were used once.
func (b *bench) names() error {
	clients, closeAll, err := openAll(b.addr, settings{lease: 30 * time.Second}, ours)
	if err != nil {
		return err
	}
	defer closeAll()
	return b.rounds(names, func() error { return b.forget(clients[0].client.(ourClient).Client) })
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
	b.add(names, distinctNames, ours, bytesAName, max(0, float64(heapBytes())-float64(before))/manyNames)
	b.add(names, distinctNames, ours, statsAfter, float64(c.Stats().Names))
	return nil
}
