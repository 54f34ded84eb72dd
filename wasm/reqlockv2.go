package wasm

import (
	"math"
	"time"
)

// reqlockV2 holds the functions for guests of ABI version 2, which get the request and leave their
// decision in memory: what they need beside that. They work in the start function, too.
var reqlockV2 = hostModule{
	{"config", types(i32, i32), types(i32), func(i *instance, mem memory, s []uint64) {
		s[0] = mem.fill(s[0], s[1], i.program.settings)
	}},
	{"log", types(i32, i32, i32), nil, guestLog},
	{"kv_get", types(i32, i32, i32, i32), types(i64), func(i *instance, mem memory, s []uint64) {
		length, ok := i.program.shared.get(mem.sharedKey(s[0], s[1]), mem.bytes(s[2], s[3]))
		s[0] = uint64(length)
		if !ok {
			s[0] = math.MaxUint64 // -1
		}
	}},
	{"kv_set", types(i32, i32, i32, i32, i64), types(i32), func(i *instance, mem memory, s []uint64) {
		s[0] = bit(i.program.shared.set(mem.sharedKey(s[0], s[1]), mem.bytes(s[2], s[3]), mem.ttl(s[4])))
	}},
	{"kv_incr", types(i32, i32, i64, i64), types(i64), func(i *instance, mem memory, s []uint64) {
		value, ok := i.program.shared.incr(mem.sharedKey(s[0], s[1]), int64(s[2]), mem.ttl(s[3]))
		if !ok {
			value = math.MinInt64
		}
		s[0] = uint64(value)
	}},
	{"kv_delete", types(i32, i32), nil, func(i *instance, mem memory, s []uint64) {
		i.program.shared.delete(mem.sharedKey(s[0], s[1]))
	}},
}

// sharedKey reads a key of the shared memory.
func (m memory) sharedKey(ptr, length uint64) []byte {
	if n := uint32(length); n == 0 || n > maxSharedKey {
		panic(abort{breach("%s: a key of %d bytes; use 1 to %d", m.function, n, maxSharedKey)})
	}
	return m.bytes(ptr, length)
}

// ttl reads how long an entry lives.
func (m memory) ttl(ms uint64) time.Duration {
	if int64(ms) < 1 || int64(ms) > maxSharedTTL.Milliseconds() {
		panic(abort{breach("%s: ttl_ms is %d; use a number from 1 to %d", m.function, int64(ms), maxSharedTTL.Milliseconds())})
	}
	return time.Duration(ms) * time.Millisecond
}
