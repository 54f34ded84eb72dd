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
	"github.com/reqlock/reqlock/core/internal/claim"
	"github.com/reqlock/reqlock/core/internal/lua"
	"github.com/reqlock/reqlock/core/internal/redisop"
	"github.com/reqlock/reqlock/core/internal/wire"
)

// Ping checks that locks work: that the Redis client fits the server, and that a lock can be
// acquired, released, announced and waited for. Use
// it for start-up checks and health checks. It acquires and releases a plain lock named
// reqlock:ping:RANDOM (after NameMapper) with the scripts of the locks and with ReplicaAcks. It
// runs each command that docs/operations.md lists under Access in a way that changes nothing. It
// subscribes to the channel of that lock and to the client's own, and publishes there. In a cluster
// it does all of this on each master that has slots.
//
// The error names the fault and the change to make: Redis cannot be reached or does not answer, it
// refuses the password, it is out of memory, it is a read-only replica, or it cannot save. If the
// Redis user lacks permissions, the error has the rules to add, such as
//
//	reqlock: ping: the Redis user "orders" lacks permissions:
//	ACL SETUSER orders +publish &redisson_lock__channel:*
//
// The error matches ctx's error if ctx ends first, and ErrClosed or ErrNotReplicated if they are
// the cause. If Redis does not answer, Ping returns after CommandTimeout. It does not check the
// permissions that only other kinds of lock need (fair, read/write, fenced), or those for names
// without the prefix "reqlock:", which names of the guard have. It returns an error that names the
// server, its version and the commands that it lacks, if any kind of lock needs one of them.
//
// What puts locks at risk without failing any is logged, and Warnings returns it.
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
	var found []Warning
	for _, p := range probes {
		found = append(found, p.warnings...)
	}
	c.checkup.note(found, c.opts.Logger)
	return pingError(errors.Join(errs...))
}

func pingError(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("reqlock: ping: %w", bareError{err})
}

// A bareError has an error's text for use within another error's text: on one line, without the
// prefix "reqlock: ".
type bareError struct{ error }

func (e bareError) Error() string { return strings.ReplaceAll(bare(e.error), "\n", "; ") }
func (e bareError) Unwrap() error { return e.error }

// A probe checks one server for Ping.
type probe struct {
	c       *Client
	server  *redis.Client
	where   string // in a cluster, the address of the server
	user    string
	key     string
	channel string
	mode    PublishMode

	warnings []Warning
}

// probes returns a probe for the server, or for each master of a cluster.
func (c *Client) probes(ctx context.Context) ([]*probe, error) {
	if !c.inCluster() {
		key, err := c.probeKey()
		return []*probe{c.probe(c.redis.Node(), key)}, err
	}
	ctx, cancel := context.WithTimeout(ctx, c.opts.CommandTimeout)
	defer cancel()
	return c.clusterProbes(ctx)
}

// clusterProbes returns a probe for each master, with a key in one of its slots. A master without
// slots has no locks.
func (c *Client) clusterProbes(ctx context.Context) (probes []*probe, err error) {
	masters, err := c.redis.Masters(ctx)
	if err != nil {
		return nil, err
	}
	known := make(map[*redis.Client]bool)
	for tries := 0; len(known) < len(masters) && tries < 100*len(masters); tries++ {
		key, err := c.probeKey()
		if err != nil {
			return nil, err
		}
		node, err := c.redis.MasterForKey(ctx, key)
		if err != nil {
			return nil, err
		}
		if known[node] {
			continue
		}
		known[node] = true
		p := c.probe(node, key)
		p.where = node.Options().Addr
		probes = append(probes, p)
	}
	return probes, nil
}

const pingName = "reqlock:ping:"

func (c *Client) probeKey() (string, error) {
	l := c.Lock(fmt.Sprintf("%s%016x", pingName, rand.Uint64()))
	return l.key, l.err
}

func (c *Client) probe(server *redis.Client, key string) *probe {
	return &probe{c: c, server: server, user: server.Options().Username, key: key, channel: wire.LockChannel(key)}
}

func (p *probe) run(ctx context.Context) error {
	err := p.check(ctx)
	if err != nil && p.where != "" {
		return fmt.Errorf("%s: %w", p.where, err)
	}
	return err
}

// check first runs the commands that change nothing, and writes a lock only if they are permitted.
// Without permission for PEXPIRE, the lock would never expire.
func (p *probe) check(ctx context.Context) error {
	if err := p.c.ops.CheckServer(ctx.Done()); err == redisop.ErrLeft {
		return ended(ctx)
	} else if err != nil {
		return explain(err)
	}
	_, err := p.c.run(ctx, lua.Inspect(p.key, ""))
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
	warnings, err := p.useOthers(ctx)
	if err != nil {
		return explain(err)
	}
	if err := p.useLock(ctx); redisop.IsPermission(err) {
		return p.lacks([]error{err})
	} else if err != nil {
		return explain(err)
	}
	p.warnings = append(warnings, p.settings(ctx)...)
	return nil
}

// explain adds the fault and the change to make to an error of Redis or of the connection to it.
func explain(err error) error {
	if strings.HasPrefix(err.Error(), "reqlock: ") || isOwn(err) {
		return err
	}
	return redisop.Explain(err)
}

// useCommands runs each command directly, in a way that changes nothing, and subscribes. It returns
// the errors of the commands that were denied. The Redis client does not watch ctx while it reads.
// So the commands run in the background, where Close waits for them, and the caller may return
// earlier.
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
		if p.mode, r.err = p.c.publish.detect(over); r.err == nil {
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

// noScript is the digest of no script. Redis refuses to run it for that reason, or because the
// permission is missing.
const noScript = "0000000000000000000000000000000000000000"

// mayWrite returns 1 if the user may run HSET, which cannot be tried without writing. A Redis that
// cannot tell returns 1.
const mayWrite = "if redis.acl_check_cmd then return redis.acl_check_cmd('HSET', KEYS[1], 'f', '1') and 1 or 0 end return 1"

// pipeline runs all commands that the ACL user in docs/operations.md may run, on a key that does
// not exist.
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
	own := len(commands)
	commands = append(commands, []any{"PUBLISH", p.c.inbox.name, ""}, []any{"CLUSTER", "SLOTS"}) // no lock has an empty key
	pipe := p.server.Pipeline()
	hset := pipe.Do(ctx, "EVAL", mayWrite, 1, p.key)
	var results []*redis.Cmd
	for _, command := range commands {
		results = append(results, pipe.Do(ctx, command...))
	}
	_, failure := pipe.Exec(ctx)
	for i, r := range append(results, hset) {
		switch err := r.Err(); {
		case redisop.IsPermission(err) && i == own:
			denied = append(denied, ownChannelError{err})
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

// An ownChannelError is a denial that concerns the client's own channel.
type ownChannelError struct{ error }

func (e ownChannelError) Unwrap() error { return e.error }

// subscribe subscribes to the channels of the lock and of the client as the hub does, and
// unsubscribes.
func (p *probe) subscribe(ctx context.Context) (denied []error, err error) {
	connection := p.server.Subscribe(ctx)
	defer connection.Close()
	type step struct {
		do      func(context.Context, ...string) error
		channel string
	}
	var steps []step
	if p.mode != PublishSharded {
		steps = append(steps, step{connection.Subscribe, p.channel}, step{connection.Unsubscribe, p.channel})
	}
	if p.mode == PublishSharded || p.mode == PublishBoth {
		steps = append(steps, step{connection.SSubscribe, p.channel}, step{connection.SUnsubscribe, p.channel})
	}
	own := p.c.inbox.name
	for _, s := range append(steps, step{connection.Subscribe, own}, step{connection.Unsubscribe, own}) {
		err := s.do(ctx, s.channel)
		if err == nil {
			_, err = connection.ReceiveTimeout(ctx, p.c.opts.CommandTimeout)
		}
		switch {
		case redisop.IsPermission(err) && s.channel == own:
			denied = append(denied, ownChannelError{err})
		case redisop.IsPermission(err):
			denied = append(denied, err)
		case err != nil:
			return nil, err
		}
	}
	return denied, nil
}

// useLock acquires and releases the lock. It does so in the background, as useCommands does: the
// lock is released even if ctx ends meanwhile.
func (p *probe) useLock(ctx context.Context) error {
	done := make(chan error, 1)
	if !p.c.background.Go(func() { done <- p.acquireAndRelease() }) {
		return ErrClosed
	}
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ended(ctx)
	}
}

// acquireAndRelease hands what may be left of the lock to the cleaner.
func (p *probe) acquireAndRelease() error {
	field, timeout := p.c.field(newOwner()), p.c.opts.CommandTimeout
	call := lua.Release(p.key, field, p.c.announce(p.channel))
	left := claim.Left{}
	defer func() { p.c.cleaner.add(call, holdCounts{key: p.key, field: field}, pingLease, left) }()

	acquire := p.c.ops.Op(lua.Acquire(p.key, field, pingLease), timeout).Replicated()
	if _, err := acquire.Run(redisop.Until{}); err != nil {
		left = leftBy(acquire, false)
		return err
	}
	_, err := p.c.ops.Op(call, timeout).Run(redisop.Until{})
	left = claim.AfterRelease(err == nil, false, acquire.Stray())
	return cmp.Or(acquire.Proven(), err)
}

// pingLease frees the lock if this process dies.
const pingLease = 10 * time.Second

var deniedCommand = regexp.MustCompile(`'([a-z|]+)' command`)

// lacks returns an error with the ACL rules that the user needs.
func (p *probe) lacks(denied []error) error {
	var rules []string
	for _, err := range denied {
		if rule := p.rule(err); !slices.Contains(rules, rule) {
			rules = append(rules, rule)
		}
	}
	user := p.user
	if user == "" {
		user = "default"
	}
	return fmt.Errorf("the Redis user %q lacks permissions: ACL SETUSER %s %s (%w)",
		user, user, strings.Join(rules, " "), bareError{denied[0]})
}

// rule returns the ACL rule that permits what was denied.
func (p *probe) rule(denied error) string {
	denial := denied.Error()
	command := deniedCommand.FindStringSubmatch(denial)
	var own ownChannelError
	switch {
	case command != nil:
		return "+" + command[1]
	case errors.As(denied, &own):
		return "&" + wire.ClientChannel("*")
	case strings.Contains(denial, "channel"):
		return "&redisson_lock__channel:*"
	// In a script; all other commands were permitted.
	case strings.Contains(denial, "can't run this command"):
		return "+hset"
	case strings.HasPrefix(p.key, pingName):
		return "~reqlock:*"
	}
	return "~" + p.key[:len(p.key)-16] + "*" // from NameMapper
}
