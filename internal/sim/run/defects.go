package main

import (
	"fmt"
	"regexp"
	"time"
)

// A defect is one that core could have. It is planted by an overlay, to show that the simulation finds it.
type defect struct {
	name  string
	edits []edit
}

// defects are to be found, each within a minute or so.
var defects = []defect{
	{"a release frees whoever holds the lock", []edit{{"core/internal/lua/release.lua", "if redis.call('HDEL', KEYS[1], ARGV[1]) == 0 then", "if redis.call('DEL', KEYS[1]) == 0 then"}}},
	{"wire owners are used again", []edit{{"core/engine.go", "wire.Owner(e.id, holds.Add(1))", "wire.Owner(e.id, holds.Add(1)%3)"}}},
	{"an heir that got nothing stays an heir", []edit{{"core/internal/waitqueue/queue.go", "	if w.state == Heir {\n		w.move(Asleep)\n	}\n}\n\n// HandedOn", "}\n\n// HandedOn"}}},
	{"a renewal counts although its reply was lost", []edit{{"core/client.go", "			verdicts[i] = watchdog.Unanswered\n		case", "			h.handleRenewed(x.Sent(), lease, holds[i])\n		case"}}},
	{"a renewal counts although the field is gone", []edit{{"core/client.go", "		case h.handleMissing(holds[i]):\n			verdicts[i] = watchdog.Gone\n", "		case true:\n			h.handleRenewed(x.Sent(), lease, holds[i])\n"}}},
	{"the cleaner gives up after one try", []edit{{"core/cleaner.go", "case err != nil && now.After(u.expires):", "case err != nil:"}}},
	{"the cleaner does not wait for strays", []edit{{"core/cleaner.go", "	if !u.strays {\n		return true, 0\n	}\n", "	if u.strays || !u.strays {\n		return true, 0\n	}\n"}}},
	{"a lease counts from the reply", []edit{{"core/waiter.go", "		h.addLocked(lease, x.Sent(), at)\n", "		h.addLocked(lease, at, at)\n"}}},
	{"a lease has no margin for clocks", []edit{{"core/internal/clock/clock.go", "	return min(lease/100+2*time.Millisecond, lease/4)\n", "	return 0 * lease\n"}}},
	{"a renewal counts from the reply", []edit{{"core/client.go", "			h.handleRenewed(x.Sent(), lease, holds[i])\n		case h.handle", "			h.handleRenewed(c.clock(), lease, holds[i])\n		case h.handle"}}},
	{"what a caller that left was granted is not freed", []edit{{"core/waiter.go", "			w.cleanUp(field, left.or(afterGrant(x, told.Granted)))\n", "			_, _, _ = field, left, told\n"}}},
	{"a grant that may be a stray is forgotten", []edit{{"core/residue.go", "	return residue{there: granted || x.Stray(), stray: x.Stray()}\n", "	return residue{there: granted}\n"}}},
	{"an heir that left keeps what it was handed", []edit{{"core/handover.go", "; !accepted && !o.kept && !left.none() {", "; !accepted && !o.kept && !left.none() && false {"}}},
	{"a hold that Redis cannot have is not ended", []edit{{"core/entry.go", "	if h.kind.shared && e.holds.exclusive == 0 {\n		return nil\n	}\n", "	if h.kind != nil {\n		return nil\n	}\n"}}},
	{"a message wakes nobody", []edit{{"core/entry.go", "	wake(e.queue.Message())\n", ""}, {"core/engine.go", "	return e.opts.PollInterval - rand.N(e.opts.PollInterval/5+1)\n", "	return 100*e.opts.PollInterval - rand.N(e.opts.PollInterval/5+1)\n"}}},
	{"a waiter does not poll", []edit{{"core/engine.go", "	return e.opts.PollInterval - rand.N(e.opts.PollInterval/5+1)\n", "	return 100*e.opts.PollInterval - rand.N(e.opts.PollInterval/5+1)\n"}}},
	{"a fair waiter that leaves keeps its place", []edit{{"core/waiter.go", "	if lease == nil {\n		w.cleanUp(p.field, p.left)\n	}\n", ""}}},
	{"a fair waiter that leaves keeps its channel", []edit{{"core/waiter.go", "		c.hub.Unsubscribe(p.channel, w)\n", "		_ = c\n"}}},
	{"fencing tokens stand still", []edit{{"core/internal/lua/fenced_draw.lua", "local token = redis.call('INCR', counter)", "local token = tonumber(redis.call('GET', counter) or redis.call('INCR', counter))"}}},
	{"a hand-over does not set the lease", []edit{{"core/internal/lua/pass.lua", "redis.call('PEXPIRE', KEYS[1], ARGV[3])\nredis.call('HSET'", "redis.call('HSET'"}}},
	{"the last reader to leave takes all others along", []edit{{"core/internal/lua/read_write_update.lua", "if redis.call('HLEN', hash) > 1 then\n  local", "if redis.call('HLEN', hash) > 1000 then\n  local"}}},
	{"a writer does not see readers", []edit{{"core/internal/lua/write_acquire.lua", "if mode and redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then", "if mode == 'write' and redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then"}}},
	{"a re-entry brings a lost lock back", []edit{{"core/internal/lua/update.lua", "if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then", "if false then"}}},
	{"a record does not keep callers out", []edit{{"core/internal/lua/once_acquire.lua", "  if record then\n", "  if record and false then\n"}}},
	{"Close does not run the clean-ups", []edit{{"core/client.go", "	c.cleaner.close(ctx)\n", ""}}},
}

func findDefect(name string) (defect, error) {
	for _, d := range defects {
		if d.name == name {
			return d, nil
		}
	}
	return defect{}, fmt.Errorf("sim: no defect is called %q; they stand in internal/sim/run/defects.go", name)
}

// plantAll plants one defect after another, and simulates seeds from the same first one until one finds it.
func (c *campaign) plantAll(length time.Duration) error {
	missed := 0
	first := c.next
	for _, d := range defects {
		if err := c.build(d.edits); err != nil {
			return fmt.Errorf("sim: %s: %w", d.name, err)
		}
		c.next, c.total = first, figures{}
		began := time.Now()
		output, err := c.search(length)
		took := time.Since(began)
		if err == nil {
			missed++
			fmt.Printf("MISSED %-55s in %d seeds and %.1fs\n", d.name, c.total.seeds, took.Seconds())
			continue
		}
		fmt.Printf("found  %-55s in %3d seeds and %5.1fs: %s\n", d.name, c.total.seeds+1, took.Seconds(), violation(output))
	}
	if missed > 0 {
		return fmt.Errorf("sim: %d of %d defects were not found", missed, len(defects))
	}
	return nil
}

// violation is the first one that a test has printed, or how it crashed.
func violation(output string) string {
	for _, pattern := range []*regexp.Regexp{firstViolation, firstPanic} {
		if found := pattern.FindStringSubmatch(output); found != nil {
			return found[1]
		}
	}
	return "it does not end"
}

var (
	firstViolation = regexp.MustCompile(`violates:\s+(.*)`)
	firstPanic     = regexp.MustCompile(`((?:panic|fatal error): .*)`)
)
