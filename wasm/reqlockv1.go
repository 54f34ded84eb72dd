package wasm

import (
	"time"

	"github.com/reqlock/reqlock/guard"
)

// reqlockV1 holds the functions with which guests say what to lock and how.
var reqlockV1 = hostModule{
	{"add_key", types(i32, i32), nil, inCall(func(c *call, mem memory, s []uint64) {
		key := mem.bytes(s[0], s[1])
		// Enough to detect a key that is too long.
		if err := c.addKey(string(key[:min(len(key), maxKeyLen+1)])); err != nil {
			panic(abort{err})
		}
	})},
	{"set_wait_ms", types(i64), nil, inCall(func(c *call, mem memory, s []uint64) {
		c.policy.WaitTime = duration(mem.function, s[0], "MaxWait", c.cfg.MaxWait)
	})},
	{"set_lease_ms", types(i64), nil, inCall(func(c *call, mem memory, s []uint64) {
		c.policy.LeaseTime = duration(mem.function, s[0], "MaxLease", c.cfg.MaxLease)
	})},
	{"set_mode", types(i32), nil, inCall(func(c *call, _ memory, s []uint64) {
		mode := uint32(s[0])
		if mode >= uint32(len(modes)) {
			panic(abort{breach("set_mode(%d): use a number from 0 to %d", int32(s[0]), len(modes)-1)})
		}
		c.policy.Mode = modes[mode]
	})},
	{"set_fenced", nil, nil, inCall(func(c *call, _ memory, _ []uint64) { c.policy.Fenced = true })},
	// The guard refuses what can never work.
	{"set_limit", types(i32), nil, inCall(func(c *call, _ memory, s []uint64) { c.policy.Limit = int(int32(s[0])) })},
	{"skip", nil, nil, inCall(func(c *call, _ memory, _ []uint64) { c.policy.Skip = true })},
	{"deny", types(i32, i32, i32), nil, inCall(func(c *call, mem memory, s []uint64) {
		text := mem.text(s[1], s[2])
		if !refuses(uint32(s[0])) {
			panic(abort{breach("deny(%d): use a status from 400 to 599", int32(s[0]))})
		}
		c.denial = denied(int(uint32(s[0])), text)
	})},
}

// modes maps set_mode's numbers. They are part of the ABI and must not change.
var modes = [...]guard.Mode{
	0: guard.ModeExclusive,
	1: guard.ModeFair,
	2: guard.ModeFenced,
	3: guard.ModeRead,
	4: guard.ModeWrite,
	5: guard.ModeReadWrite,
}

// duration converts milliseconds and rejects a time above the operator's limit.
func duration(function string, ms uint64, bound string, longest time.Duration) time.Duration {
	if int64(ms) < 0 || int64(ms) > longest.Milliseconds() {
		panic(abort{breach("%s(%d): use a number from 0 to %d, which is Config.%s", function, int64(ms), longest.Milliseconds(), bound)})
	}
	return time.Duration(ms) * time.Millisecond
}
