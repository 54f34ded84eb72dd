package core

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/reqlock/reqlock/core/internal/access"
	"github.com/reqlock/reqlock/core/internal/claim"
	"github.com/reqlock/reqlock/core/internal/kinds"
	"github.com/reqlock/reqlock/core/internal/lua"
	"github.com/reqlock/reqlock/core/internal/redisop"
	"github.com/reqlock/reqlock/internal/redisacl"
)

// Ping checks that locks work: that the Redis client fits the server, and that a lock can be
// acquired, released, announced and waited for. Use
// it for start-up checks and health checks. It acquires and releases a plain lock named
// reqlock:ping:RANDOM (after NameMapper) with the scripts of the locks and with ReplicaAcks. It
// runs each command that docs/guides/operations.md lists under Access in a way that changes
// nothing. It subscribes to the channel of that lock and to the client's own, and publishes there.
// In a cluster it does all of this on each master that has slots.
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
	c      *Client
	server *redis.Client
	where  string // the address of the server in a cluster; else empty
	user   redisacl.User
	key    string

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
	return &probe{c: c, server: server, user: redisacl.User(server.Options().Username), key: key}
}

// keys returns the pattern of the names that a rule has to permit.
func (p *probe) keys() string {
	if strings.HasPrefix(p.key, pingName) {
		return "reqlock:*"
	}
	return p.key[:len(p.key)-16] + "*" // NameMapper may have added what is before and behind
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
	if err != nil && !redisacl.Denied(err) {
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
	if err := p.useLock(ctx); redisacl.Denied(err) {
		return p.lacks([]redisacl.Denial{p.access(PublishAuto).Denial(err)})
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

// access returns what tries the commands, with the ways in which releases are announced.
func (p *probe) access(mode PublishMode) *access.Probe {
	return &access.Probe{
		Server:  p.server,
		Key:     p.key,
		Keys:    p.keys(),
		Own:     p.c.inbox.name,
		Publish: mode.publishCommands(),
		Plain:   mode != PublishSharded,
		Sharded: mode == PublishSharded || mode == PublishBoth,
		Timeout: p.c.opts.CommandTimeout,
	}
}

// useCommands runs each command directly, in a way that changes nothing, and subscribes. It returns
// what was denied. The Redis client does not watch ctx while it reads. So the commands run in the
// background, where Close waits for them, and the caller may return earlier.
func (p *probe) useCommands(ctx context.Context) (denied []redisacl.Denial, err error) {
	type result struct {
		denied []redisacl.Denial
		err    error
	}
	over, cancel := context.WithTimeout(ctx, p.c.opts.CommandTimeout)
	defer cancel()
	results := make(chan result, 1)
	if !p.c.background.Go(func() {
		r := result{}
		var mode PublishMode
		if mode, r.err = p.c.publish.detect(over); r.err == nil {
			r.denied, r.err = p.access(mode).Run(over)
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
	timeout, plain, settings := p.c.opts.CommandTimeout, kinds.Plain, p.c.settings()
	hold := kinds.Hold{Key: p.key, Wire: p.c.wireOwner(newOwner())}
	release := plain.Release(settings, hold)
	left := claim.Leftovers{}
	defer func() { p.c.cleaner.add(release, hold, pingLease, left) }()

	acquire := p.c.ops.Op(plain.Acquire(settings, kinds.Try{Key: p.key, Wire: hold.Wire, Lease: pingLease}), timeout).Replicated()
	if _, err := acquire.Run(redisop.Until{}); err != nil {
		left = claim.AfterAcquire(false, acquire.TryUnanswered())
		return err
	}
	_, err := p.c.ops.Op(release, timeout).Run(redisop.Until{})
	left = claim.AfterRelease(err == nil, false, acquire.TryUnanswered())
	return cmp.Or(acquire.Proven(), err)
}

// pingLease frees the lock if this process dies.
const pingLease = 10 * time.Second

// lacks returns an error with the ACL rules that the user needs.
func (p *probe) lacks(denied []redisacl.Denial) error {
	denied[0].Err = bareError{denied[0].Err}
	return p.user.Lacks(denied)
}
