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

// A relay hands one lock from one client to another and back.
type relay struct {
	name  string
	turns int // in a round
	open  func() (*handOff, error)
	*handOff
}

// A handOff is an open relay; nil: it is to be opened, since it has not been yet, or got stuck.
type handOff struct {
	turn  func() (time.Duration, error) // from before the release to after the acquire
	leave func() error                  // releases the lock; not after a turn that got stuck
	close func()
}

// handOffs measures how long a lock takes from a client that releases it to one that waits for it.
func (b *bench) handOffs() error {
	turns, slowTurns := 300, 10
	if b.short {
		turns, slowTurns = 60, 3
	}
	relays := []*relay{{name: pubSubFloor, turns: turns, open: func() (*handOff, error) { return floorRelay(b.addr) }}}
	for _, name := range []string{redsyncName, redislockLn, rueidisLock, ours} {
		r := &relay{name: name, turns: turns, open: func() (*handOff, error) { return lockRelay(b.addr, name) }}
		if name == redsyncName || name == redislockLn { // they sleep
			r.turns = slowTurns
		}
		relays = append(relays, r)
	}
	defer func() {
		for _, r := range relays {
			if r.handOff != nil {
				_ = inTime(patience, r.leave) // the server ends soon
				r.close()
			}
		}
	}()
	return b.rounds(s3, func() error { return b.relayRound(relays, patience) })
}

// relayRound goes turn by turn: whatever else goes on meets all of them.
func (b *bench) relayRound(relays []*relay, patience time.Duration) error {
	for _, r := range relays {
		if r.handOff != nil {
			continue
		}
		var err error
		if r.handOff, err = r.open(); b.pardon(s3, r.name, err) != nil {
			return fmt.Errorf("%s: %w", r.name, err)
		}
	}
	taken := make([][]time.Duration, len(relays))
	for i := range relays[0].turns {
		for j, r := range relays {
			if r.handOff == nil || i%(relays[0].turns/r.turns) != 0 {
				continue
			}
			var took time.Duration
			turn := r.turn // r is not that of a turn that got stuck
			err := inTime(patience, func() (err error) {
				took, err = turn()
				return err
			})
			if err == nil {
				taken[j] = append(taken[j], took)
				continue
			}
			if b.pardon(s3, r.name, err) != nil {
				return fmt.Errorf("%s: %w", r.name, err)
			}
			r.close()
			r.handOff = nil
		}
	}
	for j, r := range relays {
		if r.handOff != nil {
			b.add(s3, twoClients, r.name, handOffP50, millis(percentile(taken[j], 0.5)))
			b.add(s3, twoClients, r.name, handOffP99, millis(percentile(taken[j], 0.99)))
		}
	}
	return nil
}

var relayNames counter // a relay that got stuck may come to a lock later, and must not meet the next one

// lockRelay hands on a lock of two clients of a contender.
func lockRelay(addr, contender string) (*handOff, error) {
	clients, closeAll, err := openAll(addr, settings{lease: 30 * time.Second}, contender, contender)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	h := &handOff{close: func() { cancel(); closeAll() }}
	name := fmt.Sprint("bench:relay:", contender, ":", relayNames.next())
	sessions := []session{clients[0].session(name), clients[1].session(name)}
	holder, err := acquireInTime(ctx, sessions[0])
	if err != nil {
		h.close()
		return nil, err
	}
	type got struct {
		held
		at  time.Time
		err error
	}
	i := 0
	h.turn = func() (time.Duration, error) {
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
	h.leave = func() error {
		if holder == nil {
			return nil
		}
		return holder.release(ctx)
	}
	return h, nil
}

// floorRelay does by hand what it takes at least: one script that releases and publishes, and another when the message is
// there.
func floorRelay(addr string) (*handOff, error) {
	name := fmt.Sprint("bench:relay:floor:", relayNames.next())
	ctx := context.Background()
	raw, err := openRaw(addr, settings{lease: 30 * time.Second})
	if err != nil {
		return nil, err
	}
	c := raw.(*rawClient)
	sub := c.rdb.Subscribe(ctx, "redisson_lock__channel:{"+name+"}")
	sessions := []session{raw.session(name), raw.session(name)}
	h := &handOff{leave: func() error { return nil }, close: func() { sub.Close(); raw.Close() }}
	if _, err := sub.Receive(ctx); err != nil {
		h.close()
		return nil, err
	}
	holder, err := sessions[0].acquire(ctx)
	if err != nil {
		h.close()
		return nil, err
	}
	i := 0
	h.turn = func() (time.Duration, error) {
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
	return h, nil
}
