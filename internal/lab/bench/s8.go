package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/singleflight"

	"github.com/reqlock/reqlock/coalesce"
)

const (
	s8        = "S8"
	s8Callers = 256

	singleflightName = "singleflight"
	lockAndCache     = "rueidislock and a cache"
	runsEach         = "runs/stampede"
)

// stampedeRuns are how long the runs take.
var stampedeRuns = []time.Duration{time.Millisecond, 10 * time.Millisecond}

// stampedeOf names the part of a kind of result.
func stampedeOf(result string, work time.Duration) string {
	return fmt.Sprintf("%s, a run of %s", result, work)
}

// The results of a run: what callers may share as it is, and what each must have for itself.
const (
	textResult   = "1 KiB of text"
	reportResult = "a struct with a slice"
)

type soldReport struct {
	Tenant string
	Sold   []int
}

var (
	aText   = strings.Repeat("0123456789abcdef", 64)
	aReport = soldReport{Tenant: "bench", Sold: []int{1, 2, 3, 5, 8, 13, 21, 34}}
)

// stampedes measures callers of one process that want the same result at once. A cycle is the answer
// to one of them. Each stampede has a name of its own, so that no earlier answer is left.
func (b *bench) stampedes() error {
	clients, closeAll, err := openAll(b.addr, settings{lease: 30 * time.Second}, ours, rueidisLock)
	if err != nil {
		return err
	}
	defer closeAll()
	ourLocks, theirs := clients[0].client.(ourClient), clients[1].client
	return b.rounds(s8, func() error {
		for _, work := range stampedeRuns {
			if err := stampede(b, textResult, work, ourLocks, theirs, aText); err != nil {
				return err
			}
			if err := stampede(b, reportResult, work, ourLocks, theirs, aReport); err != nil {
				return err
			}
		}
		return b.probe.rdb.FlushDB(context.Background()).Err()
	})
}

// A share returns the result of one run of a name to each caller.
type share[T any] func(ctx context.Context, name string, run func() T) (T, error)

func stampede[T any](b *bench, result string, work time.Duration, ourLocks ourClient, theirs client, want T) error {
	type contender struct {
		name  string
		share share[T]
	}
	for _, c := range inTurn(b, []contender{
		{singleflightName, inProcess[T]()},
		{ours, func(ctx context.Context, name string, run func() T) (T, error) {
			result, _, err := coalesce.Do(ctx, ourLocks.Client, name, coalesce.Options{}, func(context.Context) (T, error) { return run(), nil })
			return result, err
		}},
		{lockAndCache, recheck[T](theirs, ourLocks.rdb)},
	}) {
		u, runs, err := stampedeFor(b, c.name, c.share, work, want)
		if errors.Is(err, context.DeadlineExceeded) { // rueidislock may miss a release
			err = errStuck
		}
		if err != nil {
			if err := b.pardon(s8, c.name, err); err != nil {
				return fmt.Errorf("%s: %w", c.name, err)
			}
			continue
		}
		variant := stampedeOf(result, work)
		b.addUsage(s8, variant, c.name, u)
		b.add(s8, variant, c.name, runsEach, runs)
	}
	return nil
}

// stampedeFor sends stampedes, one after another, for a while. Its callers are the same goroutines in
// all of them, as in a server with kept connections.
func stampedeFor[T any](b *bench, contender string, share share[T], work time.Duration, want T) (u usage, runs float64, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var (
		callers, answers sync.WaitGroup
		names            = make([]chan string, s8Callers)
		failed           = make(chan error, s8Callers)
		ran              counter
	)
	for i := range names {
		names[i] = make(chan string, 1)
		callers.Go(func() {
			for name := range names[i] {
				_, err := share(ctx, name, func() T {
					ran.next()
					time.Sleep(work)
					return want
				})
				if err != nil {
					select {
					case failed <- err:
					default:
					}
				}
				answers.Done()
			}
		})
	}
	defer callers.Wait()
	defer func() {
		for _, c := range names {
			close(c)
		}
	}()
	n, first := 0, owners.next()
	send := func() error {
		n++
		name := fmt.Sprint("bench:stampede:", first, ":", n)
		answers.Add(s8Callers)
		for _, c := range names {
			c <- name
		}
		answers.Wait()
		select {
		case err := <-failed:
			return err
		default:
			return nil
		}
	}
	if err := send(); err != nil { // it dials
		return u, 0, err
	}
	runtime.GC()
	before, err := b.probe.state(0)
	if err != nil {
		return u, 0, err
	}
	sent, ranBefore := n, ran.next()
	for until := before.at.Add(b.pick(time.Second, 100*time.Millisecond)); n < sent+2 || time.Now().Before(until); {
		if err := send(); err != nil {
			return u, 0, err
		}
	}
	ranSince := ran.next() - ranBefore - 1
	sent = n - sent
	after, err := b.probe.state(float64(sent * s8Callers))
	return since(before, after, contender), float64(ranSince) / float64(sent), err
}

// --- singleflight, which asks no Redis: callers of one process share a value

func inProcess[T any]() share[T] {
	group := new(singleflight.Group)
	return func(_ context.Context, name string, run func() T) (T, error) {
		value, err, _ := group.Do(name, func() (any, error) { return run(), nil })
		return value.(T), err
	}
}

// --- a lock of a peer and a cache by hand: who finds nothing in the cache takes a lock, and looks again

func recheck[T any](locks client, rdb *redis.Client) share[T] {
	return func(ctx context.Context, name string, run func() T) (result T, err error) {
		look := func() error {
			// Scripts of locks do not run HGET and HSET, which Redis would count, too.
			data, err := rdb.HGet(ctx, "cache:"+name, "result").Bytes()
			if err != nil {
				return err
			}
			return json.Unmarshal(data, &result)
		}
		if err := look(); err != redis.Nil {
			return result, err
		}
		lock, err := locks.session("lock:" + name).acquire(ctx)
		if err != nil {
			return result, err
		}
		defer func() { err = errors.Join(err, lock.release(context.WithoutCancel(ctx))) }()
		if err := look(); err != redis.Nil {
			return result, err
		}
		result = run()
		data, err := json.Marshal(result)
		if err != nil {
			return result, err
		}
		return result, rdb.HSet(ctx, "cache:"+name, "result", data).Err()
	}
}
