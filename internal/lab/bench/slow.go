package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/internal/lab/redistest"
)

const (
	slow        = "Slow"
	slowTrip    = 20 * time.Millisecond
	nearCallers = 32 // of the two other masters
	farCallers  = 16 // of the slow one
	withoutSlow = "two near masters, without the slow one"
	besideSlow  = "two near masters, beside the slow one"
)

// A trio is a client of three masters, the last of which is far away.
type trio struct {
	rdb    *redis.ClusterClient
	locks  *core.Client
	slow   string // the port of the last one, with a colon
	closes []func() error
}

func (t *trio) close() error {
	var errs []error
	for i := len(t.closes) - 1; i >= 0; i-- {
		errs = append(errs, t.closes[i]())
	}
	return errors.Join(errs...)
}

// startTrio starts two servers beside the bench's, and a proxy before the last. They are no
// cluster, but the client takes them for one.
func (b *bench) startTrio() (t *trio, err error) {
	t = &trio{}
	defer func() {
		if err != nil {
			err = errors.Join(err, t.close())
		}
	}()
	masters := []string{b.addr}
	for range 2 {
		s, err := redistest.Run()
		if err != nil {
			return t, err
		}
		t.closes = append(t.closes, s.Close)
		masters = append(masters, s.Addr())
	}
	p, err := startExact(masters[2], distance{trip: slowTrip})
	if err != nil {
		return t, err
	}
	t.closes = append(t.closes, p.Close)
	masters[2], t.slow = p.addr, p.addr[strings.LastIndex(p.addr, ":"):]
	t.rdb = redis.NewClusterClient(&redis.ClusterOptions{ClusterSlots: func(context.Context) (slots []redis.ClusterSlot, _ error) {
		for i, addr := range masters {
			slots = append(slots, redis.ClusterSlot{Start: 16384 * i / 3, End: 16384*(i+1)/3 - 1, Nodes: []redis.ClusterNode{{Addr: addr}}})
		}
		return slots, nil
	}})
	t.closes = append(t.closes, t.rdb.Close)
	t.locks, err = core.New(t.rdb, core.Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return t, err
	}
	t.closes = append(t.closes, func() error {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		return t.locks.Close(ctx)
	})
	return t, nil
}

// names returns lock names whose keys are on the slow master, or on the others.
func (t *trio) names(n int, slow bool) (names []string, err error) {
	for i := 0; len(names) < n; i++ {
		name := fmt.Sprint("bench:trio:", i)
		master, err := t.rdb.MasterForKey(context.Background(), name)
		if err != nil {
			return nil, err
		}
		// go-redis may leave out the host.
		if strings.HasSuffix(master.Options().Addr, t.slow) == slow {
			names = append(names, name)
		}
	}
	return names, nil
}

// slowMaster measures locks on near masters, while there are callers of a slow one or not.
func (b *bench) slowMaster() (err error) {
	t, err := b.startTrio()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, t.close()) }()
	nearNames, errNear := t.names(nearCallers, false)
	farNames, errFar := t.names(farCallers, true)
	if err := errors.Join(errNear, errFar); err != nil {
		return err
	}
	cycles := func(names []string) func(i int) func(context.Context) error {
		return func(i int) func(context.Context) error {
			s := ourSession{t.locks, names[i]}
			return func(ctx context.Context) error { return cycle(ctx, s) }
		}
	}
	length := b.pick(2*b.grid.window, 100*time.Millisecond)
	return b.fewRounds(slow, func() error {
		for _, variant := range inTurn(b, []string{withoutSlow, besideSlow}) {
			leave := func() error { return nil }
			if variant == besideSlow {
				leave = keepBusy(farCallers, cycles(farNames))
			}
			u, err := b.probe.together(nearCallers, length, ours, cycles(nearNames))
			if err := errors.Join(err, leave()); err != nil {
				return err
			}
			b.add(slow, variant, ours, throughput, u.rate())
			b.add(slow, variant, ours, cycleP50, millis(percentile(u.took, 0.5)))
			b.add(slow, variant, ours, cycleP99, millis(percentile(u.took, 0.99)))
		}
		return nil
	})
}

// keepBusy runs cycles until it is told to leave, which returns their errors.
func keepBusy(callers int, each func(i int) func(context.Context) error) (leave func() error) {
	var stop atomic.Bool
	failed := make(chan error, callers)
	for i := range callers {
		do := each(i)
		go func() {
			var err error
			for err == nil && !stop.Load() {
				err = do(context.Background())
			}
			failed <- err
		}()
	}
	return func() error {
		stop.Store(true)
		return inTime(patience, func() (err error) {
			for range callers {
				err = errors.Join(err, <-failed)
			}
			return err
		})
	}
}
