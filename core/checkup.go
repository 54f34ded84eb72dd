package core

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"
	"github.com/reqlock/reqlock/core/internal/lua"
	"github.com/reqlock/reqlock/core/internal/wire"
	"github.com/reqlock/reqlock/internal/redisinfo"
)

// A need is a command that some kind of lock needs.
type need struct {
	kind string
	lua.Command
}

// otherCommands lists, by kind, the commands besides those that Ping tries itself. KEY is the lock,
// and the other words in capitals after the command are its further keys.
var otherCommands = []struct {
	kind  string
	reads bool // they change nothing
	lines []string
}{
	{"Once", true, []string{"HGET RECORD f"}},
	{"Once", false, []string{"HSET RECORD f 1", "HDEL RECORD f", "PEXPIRE RECORD 1", "DEL RECORD"}},
	{"fenced", true, []string{"GET COUNTER"}},
	{"fenced", false, []string{"HSETNX KEY f 1", "INCR COUNTER"}},
	{"fair", true, []string{"TIME", "LINDEX QUEUE 0", "LRANGE QUEUE 0 0", "LPOS QUEUE owner", "LLEN QUEUE",
		"ZSCORE DEADLINES owner", "ZRANK DEADLINES owner", "ZCARD DEADLINES"}},
	{"fair", false, []string{"RPUSH QUEUE owner", "LREM QUEUE 0 owner", "LSET QUEUE 0 owner", "ZADD DEADLINES 1 owner",
		"ZREM DEADLINES owner", "DEL DEADLINES"}},
	{"read/write", true, []string{"EXISTS KEY", "PTTL TIMEOUT"}},
	{"read/write", false, []string{"HSETNX KEY f 1", "SET TIMEOUT 1", "DEL TIMEOUT"}},
}

// needs returns otherCommands with the keys of a lock.
func needs(key string) []need {
	keys := map[string]string{
		"KEY":       key,
		"RECORD":    wire.RecordKey(key),
		"COUNTER":   wire.TokenCounter(key),
		"QUEUE":     wire.FairQueue(key),
		"DEADLINES": wire.FairDeadlines(key),
		"TIMEOUT":   wire.ReadTimeout(key, "owner", 1),
	}
	var all []need
	for _, other := range otherCommands {
		for _, line := range other.lines {
			words := strings.Fields(line)
			for i, word := range words {
				words[i] = cmp.Or(keys[word], word)
			}
			all = append(all, need{other.kind, lua.Command{Words: words, Reads: other.reads}})
		}
	}
	return all
}

// abilities asks the server that has the lock which of the commands can be run.
func (e *engine) abilities(ctx context.Context, key string, needs []need) ([]lua.Ability, error) {
	commands := make([]lua.Command, len(needs))
	for i, n := range needs {
		commands[i] = n.Command
	}
	reply, err := e.run(ctx, lua.Abilities(key, commands))
	if err != nil {
		return nil, err
	}
	return lua.ReadAbilities(reply, len(needs))
}

// checkKinds returns the kinds of locks that the user cannot use. It returns an error that names
// rdb, its version and the commands that it lacks, if any kind needs them.
func (e *engine) checkKinds(ctx context.Context, rdb redis.Cmdable, key string) (forbidden []string, err error) {
	needs := needs(key)
	able, err := e.abilities(ctx, key, needs)
	if err != nil {
		return nil, err
	}
	lacking := make(map[string][]string) // the kinds that need a command
	for i, n := range needs {
		switch able[i] {
		case lua.Unknown:
			lacking[n.Words[0]] = append(lacking[n.Words[0]], n.kind)
		case lua.Forbidden:
			if !slices.Contains(forbidden, n.kind) {
				forbidden = append(forbidden, n.kind)
			}
		}
	}
	if len(lacking) == 0 {
		return forbidden, nil
	}
	server := "the server"
	if i, err := e.info(ctx, rdb); err == nil {
		server = i.Server()
	}
	var parts []string
	for command, kinds := range lacking {
		slices.Sort(kinds)
		parts = append(parts, command+" (for "+strings.Join(slices.Compact(kinds), ", ")+")")
	}
	slices.Sort(parts)
	return nil, fmt.Errorf("%s lacks commands that locks need: %s: "+
		"use Redis 6.2 or newer, Valkey or KeyDB, without rename-command", server, strings.Join(parts, ", "))
}

// logLacking logs which commands the server of a lock lacks: the error of the command that failed
// may not say.
func (e *engine) logLacking(key string) {
	e.background.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), e.opts.CommandTimeout)
		defer cancel()
		if _, err := e.checkKinds(ctx, e.publish.rdb, key); err != nil {
			e.opts.Logger.Warn("reqlock: the server cannot keep all kinds of locks", "error", err)
		}
	})
}

// info returns INFO. The Redis client does not watch ctx while it reads, so it runs in the
// background, where Close waits for it.
func (e *engine) info(ctx context.Context, rdb redis.Cmdable) (redisinfo.Info, error) {
	type result struct {
		text string
		err  error
	}
	over, cancel := context.WithTimeout(ctx, e.opts.CommandTimeout)
	defer cancel()
	results := make(chan result, 1)
	if !e.background.Go(func() {
		text, err := rdb.Info(over).Result()
		results <- result{text, err}
	}) {
		return nil, ErrClosed
	}
	select {
	case r := <-results:
		return redisinfo.Parse(r.text), r.err
	case <-over.Done():
		return nil, ended(over)
	}
}
