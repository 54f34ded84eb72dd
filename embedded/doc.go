// Package embedded runs Redis inside the process, for examples and for the
// tests of programs that use reqlock. It is not for production: a lock that
// lives in one process excludes nobody in another, and everything is gone when
// the process ends.
//
// [Start] opens a server on a free loopback port. It speaks the Redis protocol
// over TCP, so any client in any process of this machine can use it, Lua
// scripts and pub/sub included. [FromEnv] is what a program calls that should
// run anywhere: it uses the Redis that REDIS_URL names, and starts one in the
// process when the variable is empty.
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
// The data store is miniredis, whose time stands still unless it is told to
// move on. Here it moves before each command that arrives, by the time that has
// really passed, so that keys expire as they do in Redis:
//
//   - a key lives at least for its TTL, and is gone for the first command that
//     arrives after it;
//   - PTTL, TIME and PEXPIREAT agree with each other;
//   - a script and a MULTI block see one instant from their first command to
//     their last: no key expires in the middle.
//
// No goroutine is needed for it. But each command looks at every key there is: a
// thousand keys add a tenth of a millisecond to it, ten thousand add five.
//
// # What is missing
//
// What reqlock needs is there, and this package's tests say so command by
// command, next to a real Redis. Not there, among others: SPUBLISH and SSUBSCRIBE, CLIENT PAUSE,
// replicas (WAIT answers 0), persistence, access control. An error that
// redis.call raises inside a script comes with another text in front of it than
// in Redis: look for WRONGTYPE within the text, or use redis.pcall and return
// the error, which leaves it as it is.
package embedded
