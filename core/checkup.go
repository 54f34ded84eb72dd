package core

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/reqlock/reqlock/core/internal/lua"
	"github.com/reqlock/reqlock/core/internal/wire"
	"github.com/reqlock/reqlock/internal/redisinfo"
)

// A Warning is something that Ping found: locks work, but some may be lost, or some kinds of locks
// do not work.
type Warning struct {
	Server  string // its address, in a cluster
	Check   string // eviction, persistence, permissions or settings
	Finding string
	Change  string // what to do
}

// Warnings returns what the last Ping found. Ping logs each of them, too, but not again in a row.
// It finds
//
//   - eviction: the server may evict keys of locks (maxmemory-policy).
//   - persistence: a restart of the server forgets locks and the counters of fencing tokens. Ping
//     looks only if the client has been used for fenced locks.
//   - permissions: the Redis user lacks what other kinds of locks need, such as Once. A server before
//     Redis 7.0 does not say.
//   - settings: the user may not run INFO, so eviction and persistence are unknown.
func (c *Client) Warnings() []Warning {
	c.checkup.mu.Lock()
	defer c.checkup.mu.Unlock()
	return slices.Clone(c.checkup.last)
}

// A checkup keeps the warnings of the last Ping.
type checkup struct {
	mu   sync.Mutex
	last []Warning
}

// note logs the warnings that the Ping before did not find.
func (c *engine) note(found []Warning) {
	c.checkup.mu.Lock()
	before := c.checkup.last
	c.checkup.last = found
	c.checkup.mu.Unlock()
	for _, w := range found {
		if slices.Contains(before, w) {
			continue
		}
		args := []any{"check", w.Check, "finding", w.Finding, "change", w.Change}
		if w.Server != "" {
			args = append(args, "server", w.Server)
		}
		c.opts.Logger.Warn("reqlock: ping: locks are at risk", args...)
	}
}

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
	{"fair", true, []string{"TIME", "LINDEX QUEUE 0", "LRANGE QUEUE 0 0", "LPOS QUEUE owner", "ZSCORE DEADLINES owner"}},
	{"fair", false, []string{"RPUSH QUEUE owner", "LREM QUEUE 0 owner", "ZADD DEADLINES 1 owner",
		"ZINCRBY DEADLINES 1 owner", "ZREM DEADLINES owner", "DEL DEADLINES"}},
	{"read/write", true, []string{"EXISTS KEY", "PTTL TIMEOUT"}},
	{"read/write", false, []string{"HSETNX KEY f 1", "SET TIMEOUT 1", "DEL TIMEOUT"}},
}

// needs returns otherCommands with the keys of the probe's lock.
func (p *probe) needs() []need {
	keys := map[string]string{
		"KEY":       p.key,
		"RECORD":    wire.RecordKey(p.key),
		"COUNTER":   wire.TokenCounter(p.key),
		"QUEUE":     wire.FairQueue(p.key),
		"DEADLINES": wire.FairDeadlines(p.key),
		"TIMEOUT":   wire.ReadTimeout(p.key, "owner", 1),
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

// abilities asks which of the commands can be run.
func (p *probe) abilities(ctx context.Context, needs []need) ([]lua.Ability, error) {
	commands := make([]lua.Command, len(needs))
	for i, n := range needs {
		commands[i] = n.Command
	}
	reply, err := p.c.run(ctx, lua.Abilities(p.key, commands))
	if err != nil {
		return nil, err
	}
	return lua.ReadAbilities(reply, len(needs))
}

// useOthers checks the commands of all kinds of locks. The error says what the server lacks. The
// warnings say which kinds the user cannot use.
func (p *probe) useOthers(ctx context.Context) ([]Warning, error) {
	needs := p.needs()
	able, err := p.abilities(ctx, needs)
	if err != nil {
		return nil, err
	}
	lacking, forbidden := make(map[string][]string), make(map[string]bool)
	var kinds []string
	for i, n := range needs {
		switch able[i] {
		case lua.Unknown:
			lacking[n.Words[0]] = append(lacking[n.Words[0]], n.kind)
		case lua.Forbidden:
			if !forbidden[n.kind] {
				kinds = append(kinds, n.kind)
			}
			forbidden[n.kind] = true
		}
	}
	if len(lacking) > 0 {
		return nil, p.lacksCommands(ctx, lacking)
	}
	if len(kinds) == 0 {
		return nil, nil
	}
	user := p.user
	if user == "" {
		user = "default"
	}
	change := "grant what docs/redisson.md lists under Access, if you use them"
	if forbidden["Once"] {
		change = fmt.Sprintf("ACL SETUSER %s %s for idempotency keys (Once); ", user, p.recordRule()) + change
	}
	return []Warning{{
		Server: p.where,
		Check:  "permissions",
		Finding: fmt.Sprintf("the Redis user %q lacks permissions that these kinds of locks need: %s",
			user, strings.Join(kinds, ", ")),
		Change: change,
	}}, nil
}

// recordRule returns the ACL rule for the records of a Once.
func (p *probe) recordRule() string {
	if strings.HasPrefix(p.key, pingName) {
		return "~{reqlock:*"
	}
	return "~{" + p.key[:len(p.key)-16] + "*" // from NameMapper
}

// lacksCommands returns the error for a server that lacks commands, with the kinds of locks that
// need each.
func (p *probe) lacksCommands(ctx context.Context, lacking map[string][]string) error {
	server := "the server"
	if i, err := p.info(ctx); err == nil {
		server = i.Server()
	}
	var parts []string
	for command, kinds := range lacking {
		slices.Sort(kinds)
		parts = append(parts, command+" (for "+strings.Join(slices.Compact(kinds), ", ")+")")
	}
	slices.Sort(parts)
	return fmt.Errorf("%s lacks commands that locks need: %s: "+
		"use Redis 6.2 or newer, Valkey or KeyDB, without rename-command", server, strings.Join(parts, ", "))
}

// logLacking logs which commands a server lacks: the error of the command that failed may not say.
func (c *Client) logLacking() {
	c.background.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), c.opts.CommandTimeout)
		defer cancel()
		probes, err := c.probes(ctx)
		if err != nil {
			return // the next fault tries again
		}
		for _, p := range probes {
			if _, err := p.useOthers(ctx); err != nil {
				c.opts.Logger.Warn("reqlock: the server cannot keep all kinds of locks", "server", p.where, "error", err)
			}
		}
	})
}

// info returns INFO. It runs in the background, as useCommands does.
func (p *probe) info(ctx context.Context) (redisinfo.Info, error) {
	type result struct {
		text string
		err  error
	}
	over, cancel := context.WithTimeout(ctx, p.c.opts.CommandTimeout)
	defer cancel()
	results := make(chan result, 1)
	if !p.c.background.Go(func() {
		text, err := p.server.Info(over).Result()
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

// settings returns the warnings about the settings of the server. It does not run INFO if Redis
// says that the user may not, so that the ACL log stays empty.
func (p *probe) settings(ctx context.Context) []Warning {
	able, err := p.abilities(ctx, []need{{"", lua.Command{Words: []string{"INFO"}}}})
	unknown := err != nil || able[0] != lua.Able
	var i redisinfo.Info
	if !unknown {
		i, err = p.info(ctx)
		unknown = err != nil || i["maxmemory_policy"] == ""
	}
	if unknown {
		return []Warning{{p.where, "settings", "maxmemory-policy and persistence could not be read",
			"grant +info, or check that maxmemory-policy is noeviction"}}
	}
	var found []Warning
	if r := i.Eviction(); r != nil {
		found = append(found, Warning{p.where, "eviction", r.Finding, r.Change})
	}
	if r := i.Persistence(); r != nil && p.c.fenced.Load() {
		found = append(found, Warning{p.where, "persistence", r.Finding, r.Change})
	}
	return found
}
