package batch

import (
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/reqlock/reqlock/core/internal/clock"
	"github.com/reqlock/reqlock/internal/redisclient"
)

// Config configures a Batcher.
type Config struct {
	// Redis is not closed by the batcher. A client of a cluster provides the master of each call.
	Redis redisclient.Client
	// Timeout bounds one command in the Redis client, including the wait for a connection. The
	// client gives up at most an eighth later. No call's deadline is later than Timeout after
	// it is sent.
	Timeout time.Duration
	// Acks is how many replicas must confirm a Replicated call or a renewal within AckTimeout.
	// 0 means none.
	Acks       int
	AckTimeout time.Duration
}

// A Batcher sends calls to Redis. Its methods may be called from any goroutine.
type Batcher struct {
	cfg    Config
	wg     sync.WaitGroup // runners and pending timers
	totals sent
	ctx    context.Context // ends with Close
	cancel context.CancelFunc

	server *lanes // nil in a cluster
	// The client has loaded the cluster's slots, so asking for a master does not block.
	known atomic.Bool

	mu     sync.RWMutex
	nodes  map[*redis.Client]*lanes // a cluster's; key nil is the lane without a node
	closed bool
}

// lanes are the lanes to one server.
type lanes struct {
	of    [purposes]*lane
	conns *conns       // nil: unknown
	heard atomic.Int64 // moment of the last reply to a call
}

// New returns a batcher. It connects to Redis on the first call.
func New(cfg Config) *Batcher {
	b := &Batcher{cfg: cfg}
	b.ctx, b.cancel = context.WithCancel(context.Background())
	if b.single() {
		b.server = b.newLanes(cfg.Redis.Node(), pooled)
		return b
	}
	bindCluster(cfg.Redis.Cluster)
	b.nodes = map[*redis.Client]*lanes{nil: b.newLanes(nil, alone)}
	return b
}

// single reports whether there is one server, and no cluster.
func (b *Batcher) single() bool { return b.cfg.Redis.Cluster == nil }

// Send queues a call and returns at once. The reply arrives by the call's deadline at the latest.
// now is the current time, which callers already have.
func (b *Batcher) Send(c *Call, now time.Time) {
	for {
		l := b.route(c)
		if l == nil {
			c.Reply <- Reply{Err: ErrClosed}
			return
		}
		if l.send(c, now) {
			return
		}
		if b.single() {
			c.Reply <- Reply{Err: ErrClosed}
			return
		}
		// The lanes of the call's node were just closed, or all of them were.
	}
}

// Do sends a call and waits for the reply, or until the caller leaves. If the call may start at once,
// Do runs it on the caller's goroutine, which saves waking a runner and being woken by it. If left is
// true, the reply arrives on the call's channel, unless Withdraw takes the call back.
func (b *Batcher) Do(c *Call, now time.Time, until Until) (reply Reply, left bool) {
	if l := b.route(c); l == nil || l.node == nil {
		b.Send(c, now)
	} else if r, sent := l.sendInline(c, now, until); r != nil {
		r.serve()
	} else if !sent {
		b.Send(c, now)
	}
	select {
	case reply = <-c.Reply:
		return reply, false
	default:
	}
	select {
	case reply = <-c.Reply:
		return reply, false
	case <-until.Done():
	case <-until.Closing:
	}
	return Reply{}, true
}

// Interrupt makes callers of Do whose Until is over leave. Callers whose Context has ended do that
// by themselves, those whose Closing is closed may not.
func (b *Batcher) Interrupt() {
	b.mu.RLock()
	defer b.mu.RUnlock()
	if b.server != nil {
		b.server.interrupt()
	}
	for _, ls := range b.nodes {
		ls.interrupt()
	}
}

// Withdraw takes back a call that is still queued and reports whether it did. A withdrawn call gets
// no reply.
func (b *Batcher) Withdraw(c *Call) bool {
	for {
		l := c.lane.Load()
		if l == nil {
			return false
		}
		l.mu.Lock()
		if c.lane.Load() != l { // it just changed lanes
			l.mu.Unlock()
			continue
		}
		withdrawn := c.queued
		if withdrawn {
			l.queue.remove(c)
		}
		l.mu.Unlock()
		return withdrawn
	}
}

// Close refuses further calls with ErrClosed, waits for the calls in flight and ends every
// goroutine. It takes no longer than the deadlines of queued calls and the Redis client's timeouts
// for the rest.
func (b *Batcher) Close() {
	b.mu.Lock()
	b.closed = true
	all := slices.Collect(maps.Values(b.nodes))
	if b.server != nil {
		all = append(all, b.server)
	}
	b.mu.Unlock()
	b.cancel()
	for _, ls := range all {
		ls.close()
	}
	b.wg.Wait()
}

func (b *Batcher) newLanes(node *redis.Client, limits limits) *lanes {
	ls := new(lanes)
	if node != nil {
		ls.conns = bind(node)
	}
	for p := range ls.of {
		ls.of[p] = &lane{b: b, all: ls, node: node, limits: limits, acks: b.cfg.Acks > 0 && Purpose(p) != Ordinary}
		ls.of[p].shares = node != nil && !ls.of[p].acks // a WAIT would hold up the flights behind it
	}
	return ls
}

func (ls *lanes) interrupt() {
	for _, l := range ls.of {
		l.interrupt()
	}
}

func (ls *lanes) close() {
	for _, l := range ls.of {
		l.close()
	}
}

// route returns the lane of a call, or nil if the batcher is closed.
func (b *Batcher) route(c *Call) *lane {
	if ls := b.lanesOf(c); ls != nil {
		return ls.of[c.Purpose]
	}
	return nil
}

// lanesOf returns the lanes to the server of a call, or nil if the batcher is closed.
func (b *Batcher) lanesOf(c *Call) *lanes {
	if b.single() {
		return b.server
	}
	node := b.master(c)
	b.mu.RLock()
	ls, closed := b.nodes[node], b.closed
	b.mu.RUnlock()
	if closed {
		return nil
	}
	if ls == nil {
		ls = b.open(node)
	}
	return ls
}

// Redial makes the calls to the server of c use connections that are dialed from now on.
func (b *Batcher) Redial(c *Call) {
	if ls := b.lanesOf(c); ls != nil {
		ls.redial()
	}
}

func (ls *lanes) redial() {
	if ls.conns != nil {
		ls.conns.redial()
	}
}

// Heard returns when the server that a call goes to was last heard, on any connection of the Redis
// client, and what identifies that server. It is nil if the server is not known.
func (b *Batcher) Heard(c *Call) (server any, last clock.Moment) {
	ls := b.lanesOf(c)
	if ls == nil || ls.of[c.Purpose].node == nil {
		return nil, 0
	}
	last = clock.Moment(ls.heard.Load())
	if ls.conns != nil {
		last = max(last, clock.Moment(ls.conns.heard.Load()))
	}
	return ls, last
}

// Starved reports whether a call that was not answered has got no connection since a moment: all in
// the pool are taken, and not by a script that waits for its answer.
func (b *Batcher) Starved(c *Call, since clock.Moment) bool {
	ls := b.lanesOf(c)
	if ls == nil || ls.conns == nil || ls.of[c.Purpose].node == nil {
		return false
	}
	asked := ls.conns.asked.Load()
	if clock.Moment(asked) >= since || asked > ls.conns.heard.Load() {
		return false
	}
	return Exhausted(ls.of[c.Purpose].node)
}

// Exhausted reports whether all connections that the pool of a client may have are taken.
func Exhausted(node *redis.Client) bool {
	pool := node.PoolStats()
	return pool.IdleConns == 0 && int(pool.TotalConns) >= node.Options().PoolSize
}

// master returns the node that has the call's slot, or nil if it is not known.
func (b *Batcher) master(c *Call) *redis.Client {
	if !b.known.Load() {
		return nil
	}
	node, err := b.cfg.Redis.MasterForKey(context.Background(), c.Key())
	if err != nil {
		return nil
	}
	return node
}

// idleNodeTTL is how long the lanes of an unused node are kept. A cluster that is rebalanced keeps
// getting new nodes.
const idleNodeTTL = time.Minute

// open creates the lanes of a node and closes those of nodes that have been idle for long.
func (b *Batcher) open(node *redis.Client) *lanes {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil
	}
	if ls := b.nodes[node]; ls != nil {
		return ls
	}
	since := time.Now().Add(-idleNodeTTL)
	for other, ls := range b.nodes {
		if other != nil && ls.unused(since) {
			delete(b.nodes, other)
			ls.close()
		}
	}
	ls := b.newLanes(node, pooled)
	b.nodes[node] = ls
	return ls
}

func (ls *lanes) unused(since time.Time) bool {
	for _, l := range ls.of {
		if !l.unused(since) {
			return false
		}
	}
	return true
}
