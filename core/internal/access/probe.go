package access

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/reqlock/reqlock/core/internal/redisop"
	"github.com/reqlock/reqlock/core/internal/wire"
	"github.com/reqlock/reqlock/internal/redisacl"
)

// A Probe tries the commands of a plain lock on one server.
type Probe struct {
	Server *redis.Client
	// Key belongs to a lock that no owner has.
	Key string
	// Keys is the pattern of rules that permit Key.
	Keys string
	// Own is the client's own channel.
	Own string
	// Publish are the commands that announce a release.
	Publish []string
	// Plain is true if waiters subscribe to plain channels.
	Plain bool
	// Sharded is true if waiters subscribe to sharded channels.
	Sharded bool
	// Timeout is how long each confirmation of a subscription may take.
	Timeout time.Duration
}

// Denial returns an error that denies a command or a script of the lock, with what these use.
func (p *Probe) Denial(err error) redisacl.Denial {
	// When a script runs, all commands but HSET were permitted: HSET alone cannot be tried.
	return redisacl.Denial{Err: err, Key: p.Keys, Channel: lockChannels, InScript: "hset"}
}

// lockChannels is the pattern of the channels of all locks.
const lockChannels = "redisson_lock__channel:*"

// OwnChannels is the pattern of the channels that clients have of their own.
var OwnChannels = wire.ClientChannel("*")

// MaySubscribe is a script that replies 0 if the user may not subscribe to ARGV[1].
var MaySubscribe = redisacl.May("'SUBSCRIBE', ARGV[1]")

// mayWrite replies 0 if the user may not run HSET, which cannot be tried without writing.
var mayWrite = redisacl.May("'HSET', KEYS[1], 'f', '1'")

// errNoHSET is what Redis would answer.
var errNoHSET = errors.New("NOPERM this user has no permissions to run the 'hset' command")

// noScript is the digest of no script. Redis refuses to run it for that reason, or because the
// permission is missing.
const noScript = "0000000000000000000000000000000000000000"

// Run tries all commands and returns what was denied. The Redis client does not watch ctx while it
// reads, so Run may return later.
func (p *Probe) Run(ctx context.Context) (denied []redisacl.Denial, err error) {
	denied, err = p.pipeline(ctx)
	if err != nil {
		return nil, err
	}
	more, err := p.subscribe(ctx)
	return append(denied, more...), err
}

// An attempt is a command that changes nothing, and what a rule would permit.
type attempt struct {
	words  []any
	permit redisacl.Denial
}

// attempts lists all commands that the ACL user in docs/guides/operations.md may run.
func (p *Probe) attempts() []attempt {
	permit := p.Denial(nil)
	all := []attempt{
		{[]any{"PING"}, permit},
		{[]any{"EVALSHA", noScript, 0}, permit},
		{[]any{"HGET", p.Key, "f"}, permit},
		{[]any{"HKEYS", p.Key}, permit},
		{[]any{"HMGET", p.Key, "owner"}, permit},
		{[]any{"HLEN", p.Key}, permit},
		{[]any{"HEXISTS", p.Key, "f"}, permit},
		{[]any{"PTTL", p.Key}, permit},
		{[]any{"PEXPIRE", p.Key, 1}, permit},
		{[]any{"HDEL", p.Key, "f"}, permit},
		{[]any{"DEL", p.Key}, permit},
	}
	for _, publish := range p.Publish {
		all = append(all, attempt{[]any{publish, wire.LockChannel(p.Key), wire.Unlocked}, redisacl.Denial{Channel: lockChannels}})
	}
	return append(all,
		attempt{[]any{"PUBLISH", p.Own, ""}, redisacl.Denial{Channel: OwnChannels}}, // no lock has an empty key
		attempt{[]any{"CLUSTER", "SLOTS"}, permit},
		attempt{[]any{"EVAL", mayWrite, 1, p.Key}, permit},
	)
}

// pipeline sends all attempts at once.
func (p *Probe) pipeline(ctx context.Context) (denied []redisacl.Denial, err error) {
	pipe := p.Server.Pipeline()
	attempts := p.attempts()
	results := make([]*redis.Cmd, len(attempts))
	for i, a := range attempts {
		results[i] = pipe.Do(ctx, a.words...)
	}
	_, failure := pipe.Exec(ctx)
	for i, r := range results {
		err := r.Err()
		if i == len(results)-1 && err == nil {
			if n, _ := r.Int(); n == 0 {
				err = errNoHSET
			}
		}
		switch {
		case redisacl.Denied(err):
			d := attempts[i].permit
			d.Err = err
			denied = append(denied, d)
		case err != nil && err != redis.Nil:
			if f := redisop.FaultOf(err); f != nil && f.Named() {
				return nil, err
			}
		}
	}
	if failure != nil && failure != redis.Nil && !redisop.IsAnswer(failure) {
		return nil, failure
	}
	return denied, nil
}

// subscribe subscribes to the channels of the lock and of the client as the hub does, and
// unsubscribes.
func (p *Probe) subscribe(ctx context.Context) (denied []redisacl.Denial, err error) {
	connection := p.Server.Subscribe(ctx)
	defer connection.Close()
	type step struct {
		do      func(context.Context, ...string) error
		channel string
		pattern string
	}
	var steps []step
	channel := wire.LockChannel(p.Key)
	if p.Plain {
		steps = append(steps, step{connection.Subscribe, channel, lockChannels}, step{connection.Unsubscribe, channel, lockChannels})
	}
	if p.Sharded {
		steps = append(steps, step{connection.SSubscribe, channel, lockChannels}, step{connection.SUnsubscribe, channel, lockChannels})
	}
	steps = append(steps, step{connection.Subscribe, p.Own, OwnChannels}, step{connection.Unsubscribe, p.Own, OwnChannels})
	for _, s := range steps {
		err := s.do(ctx, s.channel)
		if err == nil {
			_, err = connection.ReceiveTimeout(ctx, p.Timeout)
		}
		if redisacl.Denied(err) {
			denied = append(denied, redisacl.Denial{Err: err, Channel: s.pattern})
		} else if err != nil {
			return nil, err
		}
	}
	return denied, nil
}
