package core

import (
	"context"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"
	"github.com/reqlock/reqlock/core/internal/access"
	"github.com/reqlock/reqlock/core/internal/lua"
	"github.com/reqlock/reqlock/internal/redisinfo"
)

// abilities asks the server that has the lock which of the commands can be run.
func (eng *engine) abilities(ctx context.Context, key string, needs []access.Need) ([]lua.Ability, error) {
	commands := make([]lua.Command, len(needs))
	for i, n := range needs {
		commands[i] = n.Command
	}
	reply, err := eng.run(ctx, lua.Abilities(key, commands))
	if err != nil {
		return nil, err
	}
	return lua.ReadAbilities(reply, len(needs))
}

// checkKinds returns the kinds of locks that the user cannot use. It returns an error that names
// rdb, its version and the commands that it lacks, if any kind needs them.
func (eng *engine) checkKinds(ctx context.Context, rdb redis.Cmdable, key string) (forbidden []string, err error) {
	needs := access.Needs(key)
	able, err := eng.abilities(ctx, key, needs)
	if err != nil {
		return nil, err
	}
	forbidden, lacking := access.Judge(needs, able)
	if len(lacking) == 0 {
		return forbidden, nil
	}
	server := "the server"
	if i, err := eng.info(ctx, rdb); err == nil {
		server = i.Server()
	}
	return nil, fmt.Errorf("%s lacks commands that locks need: %s: "+
		"use Redis 6.2 or newer, Valkey or KeyDB, without rename-command", server, strings.Join(lacking, ", "))
}

// logLacking logs which commands the server of a lock lacks: the error of the command that failed
// may not say.
func (eng *engine) logLacking(key string) {
	eng.background.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), eng.opts.CommandTimeout)
		defer cancel()
		if _, err := eng.checkKinds(ctx, eng.redis, key); err != nil {
			eng.opts.Logger.Warn("reqlock: the server cannot keep all kinds of locks", "error", err)
		}
	})
}

// info returns INFO. The Redis client does not watch ctx while it reads, so it runs in the
// background, where Close waits for it.
func (eng *engine) info(ctx context.Context, rdb redis.Cmdable) (redisinfo.Info, error) {
	type result struct {
		text string
		err  error
	}
	over, cancel := context.WithTimeout(ctx, eng.opts.CommandTimeout)
	defer cancel()
	results := make(chan result, 1)
	if !eng.background.Go(func() {
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
