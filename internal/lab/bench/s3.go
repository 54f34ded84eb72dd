package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	s3          = "S3"
	pubSubFloor = "pub/sub floor"
	twoClients  = "two clients"
	handOffP50  = "hand-off p50, ms"
	handOffP99  = "hand-off p99, ms"
	// Time for the other client to wait, and for the last turn to finish.
	settleHandOf = 3 * time.Millisecond
	// Longer than a stuck peer, so that no lock expires unrenewed.
	relayLease = 10 * patience
)

// A relay passes one lock between two clients.
type relay struct {
	name  string
	turns int // per round
	open  func() (*handOff, error)
	*handOff
}

// A handOff is an open relay; nil: open it, because it has not been yet or got stuck.
type handOff struct {
	turn  func() (time.Duration, error) // from before the release to after the acquire
	leave func() error                  // releases the lock; do not call it after a stuck turn
	close func()
}

// handOffs measures how long a lock takes from the client that releases it to one that waits for
// it.
func (b *bench) handOffs() error {
	turns, slowTurns := 300, 10
	if b.short {
		turns, slowTurns = 60, 3
	}
	relays := []*relay{{name: pubSubFloor, turns: turns, open: func() (*handOff, error) { return floorRelay(b.addr) }}}
	for _, name := range []string{redsyncName, redislockLn, rueidisLock, ours} {
		r := &relay{name: name, turns: turns, open: func() (*handOff, error) { return lockRelay(b.addr, name) }}
		if name == redsyncName || name == redislockLn { // they poll
			r.turns = slowTurns
		}
		relays = append(relays, r)
	}
	defer func() {
		for _, r := range relays {
			if r.handOff != nil {
				_ = inTime(patience, r.leave) // the server ends soon anyway
				r.close()
			}
		}
	}()
	return b.rounds(s3, func() error { return b.relayRound(relays, patience) })
}

// relayRound runs single turns in random order, so that other load and the state of caches affect
// all contenders equally.
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
		for _, j := range rand.Perm(len(relays)) {
			r := relays[j]
			if r.handOff == nil || i%(relays[0].turns/r.turns) != 0 {
				continue
			}
			var took time.Duration
			// reqlock unsubscribes 2 ms after a turn, which must not warm up the machine for the
			// next.
			time.Sleep(settleHandOf)
			turn := r.turn // r changes if a turn gets stuck
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

var relayNames counter // a stuck relay may acquire its lock later, so each relay needs a new name

// lockRelay passes a lock between two clients of a contender.
func lockRelay(addr, contender string) (*handOff, error) {
	clients, closeAll, err := openAll(addr, settings{lease: relayLease}, contender, contender)
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
	h.turn, h.leave = between(ctx, holder, func(side int) (held, error) { return sessions[side].acquire(ctx) }, func(int) error { return nil })
	return h, nil
}

// between returns the turns in which a lock passes between two sides. take waits until the lock is
// acquired; rest is what a side does afterwards in its own time.
func between(ctx context.Context, holder held, take func(side int) (held, error), rest func(side int) error) (turn func() (time.Duration, error), leave func() error) {
	type got struct {
		held
		at  time.Time
		err error
	}
	side := 0
	turn = func() (time.Duration, error) {
		side = 1 - side
		next := make(chan got, 1)
		go func() {
			h, err := take(side)
			next <- got{h, time.Now(), err}
		}()
		time.Sleep(settleHandOf)
		began := time.Now()
		if err := holder.release(ctx); err != nil {
			return 0, err
		}
		g := <-next
		holder = g.held
		if g.err != nil {
			return 0, g.err
		}
		return g.at.Sub(began), rest(side)
	}
	leave = func() error {
		if holder == nil {
			return nil
		}
		return holder.release(ctx)
	}
	return turn, leave
}

// A floorSide is one of two hand-written clients that pass a lock.
type floorSide struct {
	*rawClient
	session
	sub *redis.PubSub
}

func openFloorSide(addr, name string) (*floorSide, error) {
	raw, err := openRaw(addr, settings{lease: relayLease})
	if err != nil {
		return nil, err
	}
	c := raw.(*rawClient)
	return &floorSide{c, c.session(name), c.rdb.Subscribe(context.Background())}, nil
}

func (s *floorSide) close() {
	s.sub.Close()
	s.Close()
}

// take waits for the message that the lock is free, and acquires it.
func (s *floorSide) take(ctx context.Context) (held, error) {
	for {
		message, err := s.sub.Receive(ctx)
		if err != nil {
			return nil, err
		}
		if _, ok := message.(*redis.Message); ok {
			return s.acquire(ctx)
		}
	}
}

// listen subscribes to the releases that follow its return.
func (s *floorSide) listen(ctx context.Context, channel string) error {
	if err := s.sub.Subscribe(ctx, channel); err != nil {
		return err
	}
	return s.confirmed(ctx, "subscribe")
}

// deafen unsubscribes from the releases that follow, which are its own.
func (s *floorSide) deafen(ctx context.Context, channel string) error {
	if err := s.sub.Unsubscribe(ctx, channel); err != nil {
		return err
	}
	return s.confirmed(ctx, "unsubscribe")
}

func (s *floorSide) confirmed(ctx context.Context, kind string) error {
	for {
		message, err := s.sub.Receive(ctx)
		if err != nil {
			return err
		}
		if done, ok := message.(*redis.Subscription); ok && done.Kind == kind {
			return nil
		}
	}
}

// floorRelay does the minimum by hand: one script that releases and publishes, and one that
// acquires on the message.
func floorRelay(addr string) (*handOff, error) {
	name := fmt.Sprint("bench:relay:floor:", relayNames.next())
	channel := "redisson_lock__channel:{" + name + "}"
	ctx := context.Background()
	var sides []*floorSide
	h := &handOff{close: func() {
		for _, s := range sides {
			s.close()
		}
	}}
	for range 2 {
		side, err := openFloorSide(addr, name)
		if err != nil {
			h.close()
			return nil, err
		}
		sides = append(sides, side)
	}
	holder, err := sides[0].acquire(ctx)
	if err == nil {
		err = sides[1].listen(ctx, channel)
	}
	if err != nil {
		h.close()
		return nil, err
	}
	h.turn, h.leave = between(ctx, holder,
		func(i int) (held, error) { return sides[i].take(ctx) },
		func(i int) error {
			if err := sides[i].deafen(ctx, channel); err != nil {
				return err
			}
			return sides[1-i].listen(ctx, channel)
		})
	return h, nil
}
