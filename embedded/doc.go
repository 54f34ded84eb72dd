// Package embedded runs Redis inside the process, for examples and for tests of programs that use
// reqlock. It is not for production: its locks exclude no other process, and all data is lost when
// the process ends.
//
// [Start] opens a server on a free loopback port. It speaks the Redis protocol over TCP, so any
// client in any process of the machine can use it, including Lua scripts and pub/sub. [FromEnv] is
// for programs that should run anywhere: it uses the Redis that REDIS_URL names, or starts one in
// the process if the variable is empty.
//
//	srv, err := embedded.FromEnv()
//	if err != nil {
//		log.Fatal(err)
//	}
//	defer srv.Close()
//	rdb := srv.Client()
//
// # Time
//
// The data store is miniredis, whose time moves only when it is advanced. This package advances it
// before each arriving command by the time that has really passed, so that keys expire as in Redis:
//
//   - A key lives at least for its TTL, and is gone for the first command that arrives after it.
//   - PTTL, TIME and PEXPIREAT agree with each other.
//   - A script and a MULTI block see one instant from their first command to their last: no key
//     expires in between.
//
// That needs no goroutine, but each command checks every key: a thousand keys add a tenth of a
// millisecond, ten thousand add five.
//
// # Limits
//
// This package's tests compare every command that reqlock needs with a real Redis. Missing are,
// among others, SPUBLISH and SSUBSCRIBE, CLIENT PAUSE, replicas (WAIT returns 0), persistence, and
// access control. An error from redis.call inside a script has a prefix that Redis does not add:
// search for WRONGTYPE within the text, or use redis.pcall and return the error unchanged. On a
// 32-bit platform, integers have 32 bits: no TTL is longer than 24 days.
package embedded
