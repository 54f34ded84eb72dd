package lua

import _ "embed"

var (
	//go:embed many.lua
	manySource string

	many = script("many", function(release)+function(acquire)+manySource, 0)
)

// function returns a script as a Lua function with its name, for use by the scripts below it.
func function(s *Script) string {
	return "local function " + s.Name + "(KEYS, ARGV)\n" + s.Source + "end\n\n"
}

// The announcement of every release in a Many.
const message, publish = "0", "PUBLISH"

// Frees reports whether the call frees a plain lock and may be part of a Many.
func (c Call) Frees() bool { return c.Script == release && c.args == nil }

// Takes reports whether the call takes a plain lock and may be part of a Many.
func (c Call) Takes() bool { return c.Script == acquire && c.args == nil }

// Many runs several calls as one script: first those that free a lock, then those that take one;
// see many.lua. ReadMany reads its reply. The keys may be in different slots, so it does not work
// in a cluster.
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

// ReadMany reads the reply of a Many of n calls. It returns for each call the reply of its script,
// or the error that Redis gave for it.
func ReadMany(reply any, n int) ([]any, error) {
	list, ok := reply.([]any)
	if !ok || len(list) != n {
		return nil, unexpected(many, reply)
	}
	for i, item := range list {
		if text, ok := item.(string); ok {
			list[i] = replyError(Plain(text))
		}
	}
	return list, nil
}

// A replyError is an error that Redis gave for a part of a call. go-redis treats it as an error
// reply.
type replyError string

func (e replyError) Error() string { return string(e) }

func (e replyError) RedisError() {}
