package main

import (
	"fmt"
	"time"
)

const (
	pools        = "Pools"
	poolsCallers = 64
)

var (
	poolSizes = []int{1, 10, 100}
	poolsLine = awayBy(time.Millisecond)
)

func poolOf(n int) string {
	return fmt.Sprintf("%s, pool of %s", callersOn(poolsLine, poolsCallers), plural(n, "connection"))
}

// limited measures cycles with pools of a few connections, and with more than are needed.
// rueidislock has no pool: it is there as itself.
func (b *bench) limited() error {
	return b.through(poolsLine, func(r reach) error {
		for _, n := range poolSizes {
			if err := b.cell(r, cell{pools, poolOf(n), poolsCallers, n, n}); err != nil {
				return err
			}
		}
		return nil
	})
}
