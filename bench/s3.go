package main

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	s3           = "S3"
	pubSubFloor  = "pub/sub floor"
	twoClients   = "two clients"
	handOffP50   = "hand-off p50, ms"
	handOffP99   = "hand-off p99, ms"
	settleHandOf = 3 * time.Millisecond // until the other one waits, and nothing else goes on
)

// A relay hands one lock from one client to another and back; a turn is from before the release to after the acquire.
type relay struct {
	name  string
	turns int // in a round
	turn  func() (time.Duration, error)
}

// handOffs measures how long a lock takes from a client that releases it to one that waits for it.
func (b *bench) handOffs() error {
	turns, slowTurns := 300, 10
	if b.short {
		turns, slowTurns = 60, 3
	}
	var relays []relay
	floor, closeFloor, err := floorRelay(b.addr)
	if err != nil {
		return err
	}
	defer closeFloor()
	relays = append(relays, relay{pubSubFloor, turns, floor})
	for _, name := range []string{redsyncName, redislockLn, rueidisLock, ours} {
		clients, closeAll, err := openAll(b.addr, settings{lease: 30 * time.Second}, name, name)
		if err != nil {
			return err
		}
		defer closeAll()
		turns := turns
		if name == redsyncName || name == redislockLn { // they sleep
			turns = slowTurns
		}
		turn, end, err := lockRelay(clients)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		defer end()
		relays = append(relays, relay{name, turns, turn})
	}
	return b.rounds(s3, func() error {
		taken := make([][]time.Duration, len(relays))
		for i := range relays[0].turns { // turn by turn: whatever else goes on meets all of them
			for j, r := range relays {
				if i%(relays[0].turns/r.turns) != 0 {
					continue
				}
				d, err := r.turn()
				if err != nil {
					return fmt.Errorf("%s: %w", r.name, err)
				}
				taken[j] = append(taken[j], d)
			}
		}
		for j, r := range relays {
			b.add(s3, twoClients, r.name, handOffP50, millis(percentile(taken[j], 0.5)))
			b.add(s3, twoClients, r.name, handOffP99, millis(percentile(taken[j], 0.99)))
		}
		return nil
	})
}

// lockRelay hands on a lock of two clients of a contender.
func lockRelay(clients []named) (turn func() (time.Duration, error), end func(), err error) {
	ctx, cancel := context.WithCancel(context.Background())
	name := "bench:relay:" + clients[0].name
	sessions := []session{clients[0].session(name), clients[1].session(name)}
	holder, err := sessions[0].acquire(ctx)
	if err != nil {
		cancel()
		return nil, nil, err
	}
	type got struct {
		held
		at  time.Time
		err error
	}
	i := 0
	turn = func() (time.Duration, error) {
		i++
		next := make(chan got, 1)
		go func() {
			h, err := sessions[i%2].acquire(ctx)
			next <- got{h, time.Now(), err}
		}()
		time.Sleep(settleHandOf)
		began := time.Now()
		if err := holder.release(ctx); err != nil {
			return 0, err
		}
		g := <-next
		holder = g.held
		return g.at.Sub(began), g.err
	}
	end = func() {
		if holder != nil {
			_ = holder.release(ctx) // the server ends soon
		}
		cancel()
	}
	return turn, end, nil
}

// floorRelay does by hand what it takes at least: one script that releases and publishes, and another when the message is
// there.
func floorRelay(addr string) (turn func() (time.Duration, error), end func(), err error) {
	const name = "bench:relay:floor"
	ctx := context.Background()
	raw, err := openRaw(addr, settings{lease: 30 * time.Second})
	if err != nil {
		return nil, nil, err
	}
	c := raw.(*rawClient)
	sub := c.rdb.Subscribe(ctx, "redisson_lock__channel:{"+name+"}")
	sessions := []session{raw.session(name), raw.session(name)}
	end = func() { sub.Close(); raw.Close() }
	if _, err := sub.Receive(ctx); err != nil {
		end()
		return nil, nil, err
	}
	holder, err := sessions[0].acquire(ctx)
	if err != nil {
		end()
		return nil, nil, err
	}
	i := 0
	turn = func() (time.Duration, error) {
		i++
		type got struct {
			held
			at  time.Time
			err error
		}
		next := make(chan got, 1)
		go func() {
			for {
				message, err := sub.Receive(ctx)
				if err != nil {
					next <- got{err: err}
					return
				}
				if _, ok := message.(*redis.Message); ok {
					h, err := sessions[i%2].acquire(ctx)
					next <- got{h, time.Now(), err}
					return
				}
			}
		}()
		time.Sleep(settleHandOf)
		began := time.Now()
		if err := holder.release(ctx); err != nil {
			return 0, err
		}
		g := <-next
		holder = g.held
		return g.at.Sub(began), g.err
	}
	return turn, end, nil
}
