package lua

import _ "embed"

var (
	//go:embed many.lua
	manySource string

	many = script("many", function(release)+function(acquire)+manySource)
)

// function is a script as a Lua function of its name, for scripts that stand below it.
func function(s *Script) string {
	return "local function " + s.Name + "(KEYS, ARGV)\n" + s.Source + "end\n\n"
}

// How the releases in a Many tell of themselves, all alike.
const message, publish = "0", "PUBLISH"

// Frees reports whether the call may be part of a Many, as one that frees a plain lock.
func (c Call) Frees() bool { return c.Script == release && c.args == nil }

// Takes reports whether the call may be part of a Many, as one that takes a plain lock.
func (c Call) Takes() bool { return c.Script == acquire && c.args == nil }

// Many does what several calls do, first those that free a lock, then those that take one; see many.lua. Its reply is read by
// ReadMany. The keys may be of different slots, which no cluster takes.
func Many(calls []Call) Call {
	m := call(many, len(calls), 3+2*len(calls))
	frees := 0
	for _, c := range calls {
		m.args = append(m.args, c.plain.key)
		if c.Script == release {
			frees++
		}
	}
	m.add(frees, message, publish)
	for _, c := range calls {
		if m.args = append(m.args, c.plain.owner); c.Script == release {
			m.args = append(m.args, c.plain.channel)
		} else {
			m.args = append(m.args, c.plain.lease)
		}
	}
	return m
}

// ReadMany reads the reply of a Many of n calls: for each the reply of its script, or the error that Redis gave for it.
func ReadMany(reply any, n int) ([]any, error) {
	list, ok := reply.([]any)
	if !ok || len(list) != n {
		return nil, unexpected(many, reply)
	}
	for i, item := range list {
		if text, ok := item.(string); ok {
			list[i] = replyError(text)
		}
	}
	return list, nil
}

// A replyError is an error that Redis gave for a part of a call; go-redis knows it as one of Redis.
type replyError string

func (e replyError) Error() string { return string(e) }

func (e replyError) RedisError() {}
