package main

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/reqlock/reqlock/core"
)

const (
	s7           = "S7"
	s7Goroutines = 256

	plainLock   = "plain lock"
	permitPair  = "permit pair, shared pipelines"
	zsetPolling = "sorted set, polling"
)

// permitCounts are the semaphores that all goroutines want.
var permitCounts = []int{1, 8, 64}

// permitsOf names the part of a semaphore.
func permitsOf(n int, hold time.Duration) string {
	return fmt.Sprintf("%d permits, %s", n, holdOf(hold))
}

// fullQueue is the part of the issue of waiting: a semaphore that is always full.
const fullQueue = "8 permits, 64 goroutines, hold 1ms"

const ownSemaphores = "a semaphore each"

// permits measures semaphores: one that all goroutines want, and one for each goroutine beside a plain
// lock and the scripts alone.
func (b *bench) permits() error {
	clients, closeAll, err := openAll(b.addr, settings{lease: 30 * time.Second}, plainLock, permitPair, ours)
	if err != nil {
		return err
	}
	defer closeAll()
	locks := clients[2].client.(ourClient)
	own := []named{clients[0], clients[1], {ours, permitClient{locks, 1}}}
	return b.rounds(s7, func() error {
		for _, c := range inTurn(b, own) {
			u, err := b.probe.together(s7Goroutines, b.pick(time.Second, 100*time.Millisecond), c.name, uncontendedCycles(c))
			if err != nil {
				return fmt.Errorf("%s: %w", c.name, err)
			}
			b.addUsage(s7, ownSemaphores, c.name, u)
		}
		window := b.pick(2*time.Second, 300*time.Millisecond)
		for _, n := range permitCounts {
			for _, hold := range []time.Duration{0, time.Millisecond} {
				for _, c := range inTurn(b, []named{{zsetPolling, zsetClient{locks.rdb, n}}, {ours, permitClient{locks, n}}}) {
					if err := b.fight(c, contest{s7, permitsOf(n, hold), s7Goroutines, hold}, window); err != nil {
						return fmt.Errorf("%s: %w", c.name, err)
					}
				}
				if err := b.probe.rdb.FlushDB(context.Background()).Err(); err != nil {
					return err
				}
			}
		}
		return b.fight(named{ours, permitClient{locks, 8}}, contest{s7, fullQueue, 64, time.Millisecond}, window)
	})
}

// --- reqlock's permits

type permitClient struct {
	ourClient
	permits int
}

type permitSession struct{ s *core.Semaphore }

func (c permitClient) session(name string) session {
	return permitSession{c.Semaphore(fmt.Sprint("permits:", c.permits, ":", name), c.permits)}
}

func (s permitSession) acquire(ctx context.Context) (held, error) {
	lease, err := s.s.Acquire(ctx, core.AcquireOptions{WaitTime: core.WaitForever})
	if err != nil {
		return nil, err
	}
	return (*ourLease)(lease), nil
}

// --- a semaphore by hand: a sorted set by expiry, and callers that poll every 10 ms

type zsetClient struct {
	rdb     *redis.Client
	permits int
}

type zsetSession struct {
	c          zsetClient
	name, self string
}

// KEYS[1] sorted set; ARGV[1] owner, ARGV[2] lease in ms, ARGV[3] permits. Reply: 1, granted.
var zsetTake = redis.NewScript(`
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now)
if redis.call('ZCARD', KEYS[1]) >= tonumber(ARGV[3]) then
  return 0
end
redis.call('ZADD', KEYS[1], now + ARGV[2], ARGV[1])
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return 1
`)

// KEYS[1] sorted set; ARGV[1] owner.
var zsetGive = redis.NewScript(`return redis.call('ZREM', KEYS[1], ARGV[1])`)

const zsetPoll = 10 * time.Millisecond

func (c zsetClient) Close() error { return nil }

func (c zsetClient) session(name string) session {
	return &zsetSession{c, fmt.Sprint(name, ":zset:", c.permits), fmt.Sprint("bench:", owners.next())}
}

func (s *zsetSession) acquire(ctx context.Context) (held, error) {
	for {
		n, err := zsetTake.Run(ctx, s.c.rdb, []string{s.name}, s.self, 30000, s.c.permits).Int()
		if err != nil {
			return nil, err
		}
		if n == 1 {
			return s, nil
		}
		select {
		case <-time.After(zsetPoll):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (s *zsetSession) release(ctx context.Context) error {
	return zsetGive.Run(ctx, s.c.rdb, []string{s.name}, s.self).Err()
}

// permits does what reqlock's scripts for permits do while there is no trouble.
var permits = dialect{
	take: permitTakeScript, takeArgs: func(s *rawSession, command []any) []any {
		command[3] = "pair:" + s.name // another kind of key than a lock's
		return ownerAndLease(s, command)
	}, granted: int64(1),
	give: permitGiveScript, giveArgs: func(s *rawSession, command []any) []any {
		command[3] = "pair:" + s.name
		return append(command, s.self, s.channel)
	},
}

// KEYS[1] number of free permits; ARGV[1] owner, ARGV[2] lease in ms. There is one permit.
var permitTakeScript = redis.NewScript(`
local taken = '{' .. KEYS[1] .. '}:timeout'
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local free = tonumber(redis.call('GET', KEYS[1]) or 1)
local expired = redis.call('ZREMRANGEBYSCORE', taken, '-inf', now)
local others = redis.call('ZCARD', taken)
if free + expired < 1 then
  return {0}
end
redis.call('ZADD', taken, 'GT', now + ARGV[2], ARGV[1])
redis.call('SET', KEYS[1], 0, 'KEEPTTL')
if redis.call('PTTL', KEYS[1]) < 3600000 then
  redis.call('PEXPIRE', KEYS[1], 86400000)
end
redis.call('PEXPIRE', taken, 86400000)
return 1
`)

// KEYS[1] number of free permits; ARGV[1] owner, ARGV[2] channel.
var permitGiveScript = redis.NewScript(`
if redis.call('ZREM', '{' .. KEYS[1] .. '}:timeout', ARGV[1]) == 0 then
  return 0
end
redis.call('PUBLISH', ARGV[2], redis.call('INCRBY', KEYS[1], 1))
return 1
`)
