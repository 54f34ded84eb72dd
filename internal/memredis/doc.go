// Package memredis is a Redis in memory for model checking: its whole content is a value that can be
// copied, compared and restored, and it runs Lua scripts.
//
// A [DB] has the commands that lock scripts use. Time stands still in it until Advance moves it, so a
// script always finds the TTLs that the checker wants it to find. [DB.Encode] turns a database into
// a string, equal for equal databases, and [Decode] turns it back.
//
// A [Runner] runs scripts with gopher-lua, the interpreter of miniredis, and converts arguments and
// replies as Redis 7 does. Tests compare both with a redis-server on random commands.
package memredis
