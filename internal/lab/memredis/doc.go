// Package memredis is a Redis in memory, for programs that check locks. A program gives it a clock,
// and can copy, compare, print and restore its content. It runs Lua scripts.
//
// A [DB] has the commands that lock scripts use. Its clock stands still until the program moves it,
// so a script finds exactly the TTLs that the program chose. [DB.Encode] turns a database into a
// string, equal for equal databases, and [Decode] turns it back.
//
// A [Runner] runs scripts with gopher-lua, the interpreter of miniredis, and converts arguments and
// replies as Redis 7 does. [ParseCommands] and [AppendReply] are the protocol. Tests compare all of
// it with a redis-server on random commands.
package memredis
