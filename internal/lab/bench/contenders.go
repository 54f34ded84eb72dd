package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"

	"github.com/reqlock/reqlock/core"
)

// The names of the contenders in reports.
const (
	ours        = "reqlock"
	pipelines   = "shared pipelines"
	rawPair     = "raw pair"
	pingFloor   = "PING floor"
	fifo        = "FIFO floor"
	redsyncName = "redsync"
	redislockLn = "redislock"
	rueidisLock = "rueidislock"
	withLatch   = "with the latch"
	plainSet    = "SET NX, compare and delete"
	leanPair    = "lean scripts"
	manyKeys    = "lean, many keys a script"
)

// A contender opens clients of a Redis server.
type contender struct {
	name string
	open func(addr string, s settings) (client, error)
}

// settings are a scenario's requirements for clients.
type settings struct {
	lease time.Duration // renewed by the watchdog, or set once if there is none
	tls   *tls.Config   // nil: no TLS
	pool  int           // connections of a go-redis client; 0: its default
	// peers is a client that all contenders on go-redis share, apart from reqlock. Otherwise each
	// opens its own.
	peers *redis.Client
}

// A client creates sessions. Each session is used by one goroutine at a time.
type client interface {
	session(name string) session
	io.Closer
}

// A session acquires one lock repeatedly. acquire waits until it has the lock or ctx ends.
type session interface {
	acquire(ctx context.Context) (held, error)
}

type held interface {
	release(ctx context.Context) error
}

// commandsOf lists the commands each contender sends. Redis also counts those within scripts.
var commandsOf = map[string][]string{
	ours:        {"evalsha", "eval"},
	pipelines:   {"evalsha", "eval"},
	rawPair:     {"evalsha", "eval"},
	pingFloor:   {"ping"},
	fifo:        {"evalsha", "eval"},
	redsyncName: {"evalsha", "eval", "set"},
	redislockLn: {"evalsha", "eval"},
	rueidisLock: {"evalsha", "eval"},
	withLatch:   {"evalsha", "eval"}, // not del, which its scripts run too
	plainSet:    {"evalsha", "eval"},
	leanPair:    {"evalsha", "eval"},
	manyKeys:    {"evalsha", "eval"},
	redisson:    {"evalsha", "eval"},
	plainLock:   {"evalsha", "eval"},
	permitPair:  {"evalsha", "eval"},
	zsetPolling: {"evalsha", "eval"},

	singleflightName: {},
	lockAndCache:     {"evalsha", "eval", "hget", "hset"},
}

var contenders = map[string]contender{
	ours:        {ours, openOurs},
	pipelines:   {pipelines, openPipelines},
	rawPair:     {rawPair, openRaw},
	pingFloor:   {pingFloor, openPing},
	fifo:        {fifo, openFIFO},
	redsyncName: {redsyncName, openRedsync},
	redislockLn: {redislockLn, openRedislock},
	rueidisLock: {rueidisLock, openRueidislock},
	withLatch:   {withLatch, openDialect(redissonLatch)},
	plainSet:    {plainSet, openDialect(setNX)},
	leanPair:    {leanPair, openDialect(lean)},
	manyKeys:    {manyKeys, openManyKeys},
	plainLock:   {plainLock, openOurs},
	permitPair:  {permitPair, openDialect(permits)},
}

// openAll opens the named contenders in this order.
func openAll(addr string, s settings, names ...string) (clients []named, closeAll func(), err error) {
	closeAll = func() {
		for _, c := range clients {
			if err := inTime(patience, c.Close); err != nil {
				slog.Warn("close", "contender", c.name, "error", err)
			}
		}
	}
	for _, name := range names {
		c, err := contenders[name].open(addr, s)
		if err != nil {
			closeAll()
			return nil, nil, fmt.Errorf("%s: %w", name, err)
		}
		clients = append(clients, named{name, c})
	}
	return clients, closeAll, nil
}

// A named client knows its contender.
type named struct {
	name string
	client
}

// goRedis returns a client with go-redis's defaults, but for the settings.
func goRedis(addr string, s settings) *redis.Client {
	return redis.NewClient(&redis.Options{Addr: addr, TLSConfig: s.tls, PoolSize: s.pool})
}

// A peerRedis is the go-redis client of a contender.
type peerRedis struct {
	*redis.Client
	shared bool
}

func (s settings) peerRedis(addr string) peerRedis {
	if s.peers != nil {
		return peerRedis{s.peers, true}
	}
	return peerRedis{goRedis(addr, s), false}
}

func (r peerRedis) Close() error {
	if r.shared {
		return nil
	}
	return r.Client.Close()
}

// --- reqlock, through its public API, the watchdog armed

type ourClient struct {
	*core.Client
	rdb *redis.Client
}

type ourSession struct {
	c    *core.Client
	name string
}

type ourLease core.Lease

func openOurs(addr string, s settings) (client, error) {
	rdb := goRedis(addr, s)
	c, err := core.New(rdb, core.Options{WatchdogTimeout: s.lease, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return nil, errors.Join(err, rdb.Close())
	}
	return ourClient{c, rdb}, nil
}

func (c ourClient) session(name string) session { return ourSession{c.Client, name} }

func (c ourClient) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return errors.Join(c.Client.Close(ctx), c.rdb.Close())
}

func (s ourSession) acquire(ctx context.Context) (held, error) {
	lease, err := s.c.Lock(s.name).Acquire(ctx, core.AcquireOptions{WaitTime: core.WaitForever})
	if err != nil {
		return nil, err
	}
	return (*ourLease)(lease), nil
}

func (l *ourLease) release(ctx context.Context) error { return (*core.Lease)(l).Release(ctx) }

// --- the raw pair: two scripts by EVALSHA, one call per round trip. It does not wait for a held
// lock.

type rawClient struct {
	do      func(ctx context.Context, args []any) (any, error)
	rdb     peerRedis
	dialect dialect
	lease   int64
}

var owners counter // of all raw clients

// A rawSession builds its commands anew for each cycle, as a program that locks per request must.
type rawSession struct {
	c                          *rawClient
	name, self, channel, latch string
}

func openRaw(addr string, s settings) (client, error) {
	return newRawClient(addr, s, redissonStyle, func(rdb *redis.Client) func(context.Context, []any) (any, error) {
		return func(ctx context.Context, args []any) (any, error) { return rdb.Do(ctx, args...).Result() }
	})
}

// openPipelines opens the raw pair on pipelines that all goroutines share.
func openPipelines(addr string, s settings) (client, error) {
	return openDialect(redissonStyle)(addr, s)
}

// openDialect is openPipelines with other scripts.
func openDialect(d dialect) func(addr string, s settings) (client, error) {
	return func(addr string, s settings) (client, error) {
		return newRawClient(addr, s, d, func(rdb *redis.Client) func(context.Context, []any) (any, error) { return newPipe(rdb).do })
	}
}

// openManyKeys runs all calls of a pipeline in one script.
func openManyKeys(addr string, s settings) (client, error) {
	return newRawClient(addr, s, lean, func(rdb *redis.Client) func(context.Context, []any) (any, error) {
		p := newPipe(rdb)
		p.send = sendAsOneScript
		return p.do
	})
}

func newRawClient(addr string, s settings, d dialect, way func(*redis.Client) func(context.Context, []any) (any, error)) (client, error) {
	rdb := s.peerRedis(addr)
	ctx := context.Background()
	if err := errors.Join(d.take.Load(ctx, rdb).Err(), d.give.Load(ctx, rdb).Err()); err != nil {
		return nil, errors.Join(err, rdb.Close())
	}
	return &rawClient{do: way(rdb.Client), rdb: rdb, dialect: d, lease: s.lease.Milliseconds()}, nil
}

func (c *rawClient) Close() error { return c.rdb.Close() }

func (c *rawClient) session(name string) session {
	return &rawSession{c: c, name: name, self: fmt.Sprint("bench:", owners.next()), channel: "redisson_lock__channel:{" + name + "}"}
}

var errHeld = errors.New("the lock is held, and the raw pair does not wait")

func (s *rawSession) acquire(ctx context.Context) (held, error) {
	d := &s.c.dialect
	answer, err := s.c.do(ctx, d.takeArgs(s, s.evalSHA(d.take)))
	switch {
	case err != nil && err != redis.Nil:
		return nil, err
	case answer != d.granted:
		return nil, errHeld
	}
	return s, nil
}

func (s *rawSession) release(ctx context.Context) error {
	d := &s.c.dialect
	n, err := s.c.do(ctx, d.giveArgs(s, s.evalSHA(d.give)))
	if err != nil {
		return err
	}
	if n != int64(1) {
		return fmt.Errorf("the release returned %v, want 1", n)
	}
	if d.afterGive != "" {
		_, err = s.c.do(ctx, []any{d.afterGive, s.latch})
	}
	return err
}

// evalSHA returns the first arguments of a command, with room for the rest.
func (s *rawSession) evalSHA(script *redis.Script) []any {
	return append(make([]any, 0, 9), "evalsha", script.Hash(), 1, s.name)
}

// --- the PING floor: a PING for each script

type pingClient struct{ peerRedis }

func openPing(addr string, s settings) (client, error) { return pingClient{s.peerRedis(addr)}, nil }

func (c pingClient) session(string) session { return c }

func (c pingClient) acquire(ctx context.Context) (held, error) { return c, c.Ping(ctx).Err() }

func (c pingClient) release(ctx context.Context) error { return c.Ping(ctx).Err() }

// --- the FIFO floor: waiters of a process queue in it, and the first takes the lock in Redis by
// the raw pair

type fifoClient struct {
	client
	turns turns
}

type fifoSession struct {
	turns *turns
	raw   session
	held  held
}

func openFIFO(addr string, s settings) (client, error) {
	raw, err := openRaw(addr, s)
	return &fifoClient{client: raw}, err
}

func (c *fifoClient) session(name string) session {
	return &fifoSession{turns: &c.turns, raw: c.client.session(name)}
}

func (s *fifoSession) acquire(ctx context.Context) (held, error) {
	if err := s.turns.wait(ctx); err != nil {
		return nil, err
	}
	var err error
	if s.held, err = s.raw.acquire(ctx); err != nil {
		s.turns.next()
		return nil, err
	}
	return s, nil
}

func (s *fifoSession) release(ctx context.Context) error {
	defer s.turns.next()
	return s.held.release(ctx)
}

// --- redsync: default delays between tries, and unlimited tries

type redsyncClient struct {
	rs    *redsync.Redsync
	rdb   peerRedis
	lease time.Duration
}

type redsyncSession struct{ *redsync.Mutex }

type redsyncHeld redsync.Mutex

func openRedsync(addr string, s settings) (client, error) {
	rdb := s.peerRedis(addr)
	return &redsyncClient{redsync.New(goredis.NewPool(rdb.Client)), rdb, s.lease}, nil
}

func (c *redsyncClient) session(name string) session {
	return redsyncSession{c.rs.NewMutex(name, redsync.WithExpiry(c.lease), redsync.WithTries(1<<30))}
}

func (c *redsyncClient) Close() error { return c.rdb.Close() }

func (s redsyncSession) acquire(ctx context.Context) (held, error) {
	if err := s.LockContext(ctx); err != nil {
		return nil, err
	}
	return (*redsyncHeld)(s.Mutex), nil
}

func (h *redsyncHeld) release(ctx context.Context) error {
	if ok, err := (*redsync.Mutex)(h).UnlockContext(ctx); !ok {
		return fmt.Errorf("redsync: not unlocked: %w", err)
	}
	return nil
}

// --- redislock: retries every 100 ms, as in its documentation

type redislockClient struct {
	*redislock.Client
	rdb   peerRedis
	lease time.Duration
}

type redislockSession struct {
	c    *redislockClient
	name string
	opts redislock.Options
}

type redislockHeld redislock.Lock

func openRedislock(addr string, s settings) (client, error) {
	rdb := s.peerRedis(addr)
	return &redislockClient{redislock.New(rdb.Client), rdb, s.lease}, nil
}

func (c *redislockClient) session(name string) session {
	return &redislockSession{c, name, redislock.Options{RetryStrategy: redislock.LinearBackoff(100 * time.Millisecond)}}
}

func (c *redislockClient) Close() error { return c.rdb.Close() }

func (s *redislockSession) acquire(ctx context.Context) (held, error) {
	lock, err := s.c.Obtain(ctx, s.name, s.c.lease, &s.opts)
	if err != nil {
		return nil, err
	}
	return (*redislockHeld)(lock), nil
}

func (h *redislockHeld) release(ctx context.Context) error { return (*redislock.Lock)(h).Release(ctx) }

// --- rueidislock: one key per lock, as the others, and NOLOOP, which its documentation recommends.
// Its command timeout of 20 ms is raised, because on a busy machine it would fail instead of being
// slow. So is the number of calls that a connection takes at once: with the default, which is 1024,
// 4096 callers on loopback wait for each other forever.

type rueidisClient struct{ rueidislock.Locker }

type rueidisSession struct {
	l    rueidislock.Locker
	name string
}

type rueidisHeld context.CancelFunc

func openRueidislock(addr string, s settings) (client, error) {
	l, err := rueidislock.NewLocker(rueidislock.LockerOption{
		ClientOption:   rueidis.ClientOption{InitAddress: []string{addr}, TLSConfig: s.tls, RingScaleEachConn: 13},
		KeyValidity:    s.lease,
		TryNextAfter:   2 * time.Second,
		KeyMajority:    1,
		NoLoopTracking: true,
	})
	return rueidisClient{l}, err
}

func (c rueidisClient) session(name string) session { return rueidisSession{c.Locker, name} }

func (c rueidisClient) Close() error {
	c.Locker.Close()
	return nil
}

func (s rueidisSession) acquire(ctx context.Context) (held, error) {
	_, cancel, err := s.l.WithContext(ctx, s.name)
	return rueidisHeld(cancel), err
}

func (h rueidisHeld) release(context.Context) error {
	h()
	return nil
}
