package core

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/reqlock/reqlock/core/internal/lua"
	"github.com/reqlock/reqlock/core/internal/redisop"
	"github.com/reqlock/reqlock/core/internal/wire"
)

// Ping reports whether locks work: nil if a lock can be acquired, released, announced and waited
// for. It is for start-up checks and health checks. It acquires and releases a plain lock named
// reqlock:ping:RANDOM (by NameMapper) with the scripts of the locks and with ReplicaAcks; runs, to
// no effect, each command that docs/operations.md asks for under Access; and subscribes to the
// channel of that lock, and publishes there. In a cluster it does so on each master that has slots.
//
// The error says what is wrong and what to change: Redis cannot be reached or does not answer; it
// refuses the password; it is out of memory, a read-only replica, or cannot save. Where the Redis
// user lacks permissions it has the rules to add, as in
//
//	reqlock: ping: the Redis user "orders" lacks permissions: ACL SETUSER orders +publish &redisson_lock__channel:*
//
// It also matches ctx's error, if ctx ends first, ErrClosed and ErrNotReplicated. A Redis that does
// not answer is reported after CommandTimeout. Not checked are the permissions that only other
// kinds of lock need (fair, read/write, fenced), and those for names that do not begin with
// "reqlock:", as those of the guard do.
func (c *Client) Ping(ctx context.Context) error {
	if c.state.Load() != open {
		return pingError(ErrClosed)
	}
	probes, err := c.probes(ctx)
	if err != nil {
		return pingError(explain(err))
	}
	errs := make([]error, len(probes))
	var running sync.WaitGroup
	for i, p := range probes {
		running.Go(func() { errs[i] = p.run(ctx) })
	}
	running.Wait()
	return pingError(errors.Join(errs...))
}

func pingError(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("reqlock: ping: %w", bareError{err})
}

// A bareError is an error within another's text.
type bareError struct{ error }

func (e bareError) Error() string { return strings.ReplaceAll(bare(e.error), "\n", "; ") }
func (e bareError) Unwrap() error { return e.error }

// A probe is what Ping does with one server.
type probe struct {
	c       *Client
	server  redis.UniversalClient
	where   string // in a cluster, which server it is
	user    string
	key     string
	channel string
	mode    PublishMode
}

// probes makes a probe for the server, or for each master of a cluster.
func (c *Client) probes(ctx context.Context) ([]*probe, error) {
	ctx, cancel := context.WithTimeout(ctx, c.opts.CommandTimeout)
	defer cancel()
	if c.cluster == nil {
		key, err := c.probeKey()
		if err != nil {
			return nil, err
		}
		p := c.probe(c.publish.rdb, key)
		if node, ok := c.publish.rdb.(*redis.Client); ok {
			p.user = node.Options().Username
		}
		return []*probe{p}, nil
	}
	return c.clusterProbes(ctx)
}

// clusterProbes finds a key for each master. One that has no slots has no locks either.
func (c *Client) clusterProbes(ctx context.Context) (probes []*probe, err error) {
	cluster := c.cluster
	masters := 0
	var mu sync.Mutex
	if err := cluster.ForEachMaster(ctx, func(context.Context, *redis.Client) error {
		mu.Lock()
		defer mu.Unlock()
		masters++
		return nil
	}); err != nil {
		return nil, err
	}
	known := make(map[*redis.Client]bool)
	for tries := 0; len(known) < masters && tries < 100*masters; tries++ {
		key, err := c.probeKey()
		if err != nil {
			return nil, err
		}
		node, err := cluster.MasterForKey(ctx, key)
		if err != nil {
			return nil, err
		}
		if known[node] {
			continue
		}
		known[node] = true
		p := c.probe(node, key)
		p.where, p.user = node.Options().Addr, node.Options().Username
		probes = append(probes, p)
	}
	return probes, nil
}

const pingName = "reqlock:ping:"

func (c *Client) probeKey() (string, error) {
	l := c.Lock(fmt.Sprintf("%s%016x", pingName, rand.Uint64()))
	return l.key, l.err
}

func (c *Client) probe(server redis.UniversalClient, key string) *probe {
	return &probe{c: c, server: server, key: key, channel: wire.LockChannel(key)}
}

func (p *probe) run(ctx context.Context) error {
	err := p.check(ctx)
	if err != nil && p.where != "" {
		return fmt.Errorf("%s: %w", p.where, err)
	}
	return err
}

// check goes from what changes nothing to what writes: a lock that could not be given a time to
// live would stay.
func (p *probe) check(ctx context.Context) error {
	_, err := p.c.ask(ctx, lua.Inspect(p.key, ""))
	if err != nil && !redisop.IsPermission(err) {
		return explain(err)
	}
	denied, err := p.useCommands(ctx)
	if err != nil {
		return explain(err)
	}
	if len(denied) > 0 {
		return p.lacks(denied)
	}
	if err := p.useLock(ctx); redisop.IsPermission(err) {
		return p.lacks([]error{err})
	} else if err != nil {
		return explain(err)
	}
	return nil
}

// explain completes an error of Redis, or of the way there, by what is wrong and what to change.
func explain(err error) error {
	f := faultOf(err)
	own := strings.HasPrefix(err.Error(), "reqlock: ") || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
	if f == nil || own {
		return err
	}
	return fmt.Errorf("%s: %w (%s)", f.Cause, err, f.Change)
}

// useCommands uses each command directly, as far as that changes nothing, and subscribes. It
// returns what was denied. The Redis client does not watch ctx while it reads, so that the caller
// may leave before; Close waits.
func (p *probe) useCommands(ctx context.Context) (denied []error, err error) {
	type result struct {
		denied []error
		err    error
	}
	over, cancel := context.WithTimeout(ctx, p.c.opts.CommandTimeout)
	defer cancel()
	results := make(chan result, 1)
	if !p.c.background.Go(func() {
		r := result{}
		if p.mode, r.err = p.c.publish.ask(over); r.err == nil {
			r.denied, r.err = p.pipeline(over)
		}
		if r.err == nil {
			var more []error
			more, r.err = p.subscribe(over)
			r.denied = append(r.denied, more...)
		}
		results <- r
	}) {
		return nil, ErrClosed
	}
	select {
	case r := <-results:
		if r.err != nil && ctx.Err() != nil {
			return nil, ended(ctx)
		}
		return r.denied, p.c.ops.Opaque(r.err)
	case <-over.Done():
		if ctx.Err() != nil {
			return nil, ended(ctx)
		}
		return nil, redisop.ErrTimeout
	}
}

// noScript is the digest of no script. To run it is refused for that reason, or for lack of
// permission.
const noScript = "0000000000000000000000000000000000000000"

// mayWrite asks whether the user may use HSET, which cannot be tried without writing.
const mayWrite = "if redis.acl_check_cmd then return redis.acl_check_cmd('HSET', KEYS[1], 'f', '1') and 1 or 0 end return 1"

// pipeline tries all commands that the documented user of the guard may run, on a key that is not
// there.
func (p *probe) pipeline(ctx context.Context) (denied []error, err error) {
	commands := [][]any{
		{"PING"},
		{"EVALSHA", noScript, 0},
		{"HGET", p.key, "f"},
		{"HKEYS", p.key},
		{"HMGET", p.key, "owner"},
		{"HLEN", p.key},
		{"HEXISTS", p.key, "f"},
		{"PTTL", p.key},
		{"PEXPIRE", p.key, 1},
		{"HDEL", p.key, "f"},
		{"DEL", p.key},
	}
	for _, publish := range p.mode.publishCommands() {
		commands = append(commands, []any{publish, p.channel, wire.Unlocked})
	}
	pipe := p.server.Pipeline()
	hset := pipe.Do(ctx, "EVAL", mayWrite, 1, p.key)
	var results []*redis.Cmd
	for _, command := range commands {
		results = append(results, pipe.Do(ctx, command...))
	}
	_, failure := pipe.Exec(ctx)
	for _, r := range append(results, hset) {
		switch err := r.Err(); {
		case redisop.IsPermission(err):
			denied = append(denied, err)
		case err == nil && r == hset:
			if n, _ := r.Int(); n == 0 {
				denied = append(denied, errNoHSET)
			}
		case err != nil && err != redis.Nil:
			if f := faultOf(err); f != nil && f.Named() {
				return nil, err
			}
		}
	}
	if failure != nil && failure != redis.Nil && !redisop.IsAnswer(failure) {
		return nil, failure
	}
	return denied, nil
}

var errNoHSET = errors.New("NOPERM this user has no permissions to run the 'hset' command")

// subscribe subscribes to the channel as the hub does, and ends that.
func (p *probe) subscribe(ctx context.Context) (denied []error, err error) {
	connection := p.server.Subscribe(ctx)
	defer connection.Close()
	var steps []func(context.Context, ...string) error
	if p.mode != PublishSharded {
		steps = append(steps, connection.Subscribe, connection.Unsubscribe)
	}
	if p.mode == PublishSharded || p.mode == PublishBoth {
		steps = append(steps, connection.SSubscribe, connection.SUnsubscribe)
	}
	for _, step := range steps {
		err := step(ctx, p.channel)
		if err == nil {
			_, err = connection.ReceiveTimeout(ctx, p.c.opts.CommandTimeout)
		}
		if redisop.IsPermission(err) {
			denied = append(denied, err)
		} else if err != nil {
			return nil, err
		}
	}
	return denied, nil
}

// useLock acquires and releases the lock. If Ping ends in between, the lease bounds what is left.
func (p *probe) useLock(ctx context.Context) error {
	field := p.c.newField()
	x := p.c.ops.Op(lua.Acquire(p.key, field, pingLease), p.c.opts.CommandTimeout).Replicated()
	if _, err := x.Run(ctx.Done(), nil); err == redisop.ErrLeft {
		return ended(ctx)
	} else if err != nil {
		return err
	}
	_, err := p.c.ask(context.WithoutCancel(ctx), lua.Release(p.key, field, p.c.announce(p.channel)))
	return cmp.Or(x.Proven(), err)
}

const pingLease = 10 * time.Second

var deniedCommand = regexp.MustCompile(`'([a-z|]+)' command`)

// lacks says which rules the user needs.
func (p *probe) lacks(denied []error) error {
	var rules []string
	for _, err := range denied {
		if rule := p.rule(err.Error()); !slices.Contains(rules, rule) {
			rules = append(rules, rule)
		}
	}
	user := p.user
	if user == "" {
		user = "default"
	}
	return fmt.Errorf("the Redis user %q lacks permissions: ACL SETUSER %s %s (%w)", user, user, strings.Join(rules, " "), bareError{denied[0]})
}

// rule is the ACL rule that allows what was denied.
func (p *probe) rule(denial string) string {
	command := deniedCommand.FindStringSubmatch(denial)
	switch {
	case command != nil:
		return "+" + command[1]
	case strings.Contains(denial, "channel"):
		return "&redisson_lock__channel:*"
	case strings.Contains(denial, "can't run this command"): // in a script, and all others have been tried
		return "+hset"
	case strings.HasPrefix(p.key, pingName):
		return "~reqlock:*"
	}
	return "~" + p.key[:len(p.key)-16] + "*" // by NameMapper
}
