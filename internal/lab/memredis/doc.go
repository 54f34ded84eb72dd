// Package memredis is a Redis in memory for model checking. Its content is a value that can be
// copied, compared and restored. It runs Lua scripts.
//
// A [DB] has the commands that lock scripts use. Time stands still until Advance moves it, so a
// script finds exactly the TTLs that the checker chose. [DB.Encode] turns a database into a string,
// equal for equal databases, and [Decode] turns it back.
//
// A [Runner] runs scripts with gopher-lua, the interpreter of miniredis, and converts arguments and
// replies as Redis 7 does. Tests compare both with a redis-server on random commands.
package memredis
