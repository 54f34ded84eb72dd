package core

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/reqlock/reqlock/core/internal/access"
	"github.com/reqlock/reqlock/core/internal/lua"
)

// Warnings returns what the last Ping found. Ping logs each of them, too, but not again in a row.
// It finds
//
//   - eviction: the server may evict keys of locks (maxmemory-policy).
//   - persistence: a restart of the server forgets locks and the counters of fencing tokens. Ping
//     looks only if the client has been used for fenced locks.
//   - permissions: the Redis user lacks what other kinds of locks need, such as Once, or latches. A
//     server before Redis 7.0 does not say.
//   - settings: the user may not run INFO, so eviction and persistence are unknown.
func (c *Client) Warnings() []Warning {
	c.checkup.mu.Lock()
	defer c.checkup.mu.Unlock()
	return slices.Clone(c.checkup.last)
}

// useOthers checks the commands of all kinds of locks. The error says what the server lacks. The
// warning says which kinds the user cannot use.
func (p *probe) useOthers(ctx context.Context) ([]Warning, error) {
	kinds, err := p.c.checkKinds(ctx, p.server, p.key)
	if err != nil || len(kinds) == 0 {
		return nil, err
	}
	change := "grant what docs/guides/redisson.md lists under Access, if you use them"
	if slices.Contains(kinds, "Once") {
		change = p.user.Grant("~{"+p.keys()) + " for idempotency keys (Once); " + change
	}
	return []Warning{{
		Server: p.where,
		Check:  "permissions",
		Finding: fmt.Sprintf("the Redis user %q lacks permissions that these kinds of locks need: %s",
			p.user, strings.Join(kinds, ", ")),
		Change: change,
	}}, nil
}

// settings returns the warnings about the settings of the server. It does not run INFO if Redis
// says that the user may not, so that the ACL log stays empty.
func (p *probe) settings(ctx context.Context) []Warning {
	policy := ""
	able, err := p.c.abilities(ctx, p.key, []access.Need{{Command: lua.Command{Words: []string{"INFO"}}}})
	var found []Warning
	if err == nil && able[0] == lua.Able {
		i, _ := p.c.info(ctx, p.server) // after an error the policy is unknown
		policy = i["maxmemory_policy"]
		if r := i.Eviction(); r != nil {
			found = append(found, Warning{p.where, "eviction", r.Finding, r.Change})
		}
		if r := i.Persistence(); r != nil && p.c.fenced.Load() {
			found = append(found, Warning{p.where, "persistence", r.Finding, r.Change})
		}
	}
	if policy == "" {
		found = append(found, Warning{p.where, "settings", "maxmemory-policy and persistence could not be read",
			"grant +info, or check that maxmemory-policy is noeviction"})
	}
	return found
}
