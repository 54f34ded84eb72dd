package main

import (
	"context"
	"fmt"
	"time"
)

const (
	s1          = "S1"
	scriptCosts = "Scripts"
)

// The metrics.
const (
	throughput     = "cycles/s"
	clientMicros   = "client CPU us/cycle"
	allocations    = "allocations/cycle"
	redisMicros    = "Redis CPU us/cycle"
	commandsACycle = "commands/cycle"
	bytesACycle    = "bytes/cycle"
)

// uncontended measures cycles of acquire and release, with a separate lock for each goroutine.
func (b *bench) uncontended() error {
	clients, closeAll, err := openAll(b.addr, settings{lease: 30 * time.Second}, pipelines, rawPair, redsyncName, redislockLn, rueidisLock, ours)
	if err != nil {
		return err
	}
	defer closeAll()
	return b.uncontendedRounds(s1, clients, 1, 4, 64, 256)
}

// compareScripts measures the same with other scripts in the floor's pipelines.
func (b *bench) compareScripts() error {
	clients, closeAll, err := openAll(b.addr, settings{lease: 30 * time.Second}, withLatch, pipelines, plainSet, leanPair, manyKeys, ours)
	if err != nil {
		return err
	}
	defer closeAll()
	return b.uncontendedRounds(scriptCosts, clients, 256)
}

func (b *bench) uncontendedRounds(scenario string, clients []named, goroutines ...int) error {
	return b.rounds(scenario, func() error {
		for _, goroutines := range goroutines {
			for _, c := range inTurn(b, clients) {
				u, err := b.probe.together(goroutines, b.pick(time.Second, 100*time.Millisecond), c.name, uncontendedCycles(c))
				if err != nil {
					if err := b.pardon(scenario, c.name, err); err != nil {
						return err
					}
					continue
				}
				b.addUsage(scenario, goroutinesOf(goroutines), c.name, u)
			}
		}
		return nil
	})
}

func uncontendedCycles(c client) func(i int) func(context.Context) error {
	return func(i int) func(context.Context) error {
		s := c.session(fmt.Sprint("bench:own:", i))
		return func(ctx context.Context) error { return cycle(ctx, s) }
	}
}

func goroutinesOf(n int) string { return fmt.Sprint(n, " goroutines") }

func (b *bench) addUsage(scenario, variant, contender string, u usage) {
	b.add(scenario, variant, contender, throughput, u.rate())
	b.add(scenario, variant, contender, clientMicros, u.per(micros(u.clientCPU)))
	b.add(scenario, variant, contender, allocations, u.per(float64(u.allocs)))
	b.add(scenario, variant, contender, redisMicros, u.per(micros(u.redisCPU)))
	b.add(scenario, variant, contender, commandsACycle, u.per(float64(u.commands)))
	b.add(scenario, variant, contender, bytesACycle, u.per(float64(u.bytes)))
}
