package sim

import (
	"crypto/sha1"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"sync"

	lua "github.com/yuin/gopher-lua"
	"github.com/yuin/gopher-lua/parse"
)

// A scripter runs Lua scripts on a store, as Redis does: each in one step, at one point in time.
type scripter struct {
	store *store
	state *lua.LState

	// The state of the server.
	full     bool // no free memory
	replica  bool
	noPubSub bool // the user may not publish

	wrote bool // the current script has written
	sha   string
}

// A program is a compiled script. All simulations of a process share it.
type program struct {
	proto *lua.FunctionProto
	err   error
}

var programs sync.Map // source -> *program

func compile(source string) *program {
	if p, ok := programs.Load(source); ok {
		return p.(*program)
	}
	p := new(program)
	chunk, err := parse.Parse(strings.NewReader(source), "@user_script")
	if err == nil {
		p.proto, err = lua.Compile(chunk, "@user_script")
	}
	p.err = err
	programs.Store(source, p)
	return p
}

// digest returns the name of a script in EVALSHA.
func digest(source string) string {
	if sha, ok := digests.Load(source); ok {
		return sha.(string)
	}
	sum := sha1.Sum([]byte(source))
	sha := hex.EncodeToString(sum[:])
	digests.Store(source, sha)
	return sha
}

var digests sync.Map

func newScripter(s *store) *scripter {
	sc := &scripter{store: s, state: lua.NewState(lua.Options{SkipOpenLibs: true})}
	for _, lib := range []struct {
		name string
		open lua.LGFunction
	}{
		{lua.BaseLibName, lua.OpenBase},
		{lua.TabLibName, lua.OpenTable},
		{lua.StringLibName, lua.OpenString},
		{lua.MathLibName, lua.OpenMath},
	} {
		sc.state.Push(sc.state.NewFunction(lib.open))
		sc.state.Push(lua.LString(lib.name))
		sc.state.Call(1, 0)
	}
	redis := sc.state.NewTable()
	redis.RawSetString("call", sc.state.NewFunction(func(l *lua.LState) int { return sc.call(l, true) }))
	redis.RawSetString("pcall", sc.state.NewFunction(func(l *lua.LState) int { return sc.call(l, false) }))
	redis.RawSetString("error_reply", sc.state.NewFunction(func(l *lua.LState) int {
		l.Push(errorTable(l, l.CheckString(1)))
		return 1
	}))
	sc.state.SetGlobal("redis", redis)
	return sc
}

// run runs a script and returns its reply.
func (sc *scripter) run(source string, keys, args []string) any {
	p := compile(source)
	if p.err != nil {
		return errorReply("ERR Error compiling script: " + p.err.Error())
	}
	l := sc.state
	sc.wrote, sc.sha = false, digest(source)
	l.SetGlobal("KEYS", list(l, keys))
	l.SetGlobal("ARGV", list(l, args))
	l.Push(l.NewFunctionFromProto(p.proto))
	if err := l.PCall(0, 1, nil); err != nil {
		l.SetTop(0)
		if api, ok := err.(*lua.ApiError); ok {
			if table, ok := api.Object.(*lua.LTable); ok {
				return errorReply(lua.LVAsString(table.RawGetString("err")) + " script: " + sc.sha)
			}
		}
		return errorReply("ERR " + strings.ReplaceAll(err.Error(), "\n", " ") + " script: " + sc.sha)
	}
	reply := fromLua(l.Get(-1))
	l.SetTop(0)
	return reply
}

// call implements redis.call and redis.pcall.
func (sc *scripter) call(l *lua.LState, raise bool) int {
	args := make([]string, l.GetTop())
	for i := range args {
		switch v := l.Get(i + 1).(type) {
		case lua.LString:
			args[i] = string(v)
		case lua.LNumber:
			args[i] = formatNumber(float64(v))
		default:
			l.RaiseError("Lua redis lib command arguments must be strings or integers")
		}
	}
	reply := sc.do(strings.ToUpper(args[0]), args[1:])
	if text, failed := reply.(errorReply); failed && raise {
		l.Error(errorTable(l, string(text)), 1)
	}
	l.Push(toLua(l, reply))
	return 1
}

func (sc *scripter) do(name string, args []string) any {
	c := commands[name]
	switch {
	case c.write && sc.replica:
		return errorReply("READONLY You can't write against a read only replica.")
	case c.grows && sc.full && !sc.wrote:
		return errorReply("OOM command not allowed when used memory > 'maxmemory'.")
	case sc.noPubSub && (name == "PUBLISH" || name == "SPUBLISH"):
		return errorReply("ERR The user executing the script can't run this command or subcommand")
	}
	sc.wrote = sc.wrote || c.write
	return sc.store.do(name, args)
}

func formatNumber(f float64) string {
	if f == float64(int64(f)) {
		return strconv.FormatInt(int64(f), 10)
	}
	return strconv.FormatFloat(f, 'g', 17, 64)
}

func list(l *lua.LState, items []string) *lua.LTable {
	t := l.CreateTable(len(items), 0)
	for _, item := range items {
		t.Append(lua.LString(item))
	}
	return t
}

func errorTable(l *lua.LState, text string) *lua.LTable {
	t := l.CreateTable(0, 1)
	t.RawSetString("err", lua.LString(text))
	return t
}

func toLua(l *lua.LState, reply any) lua.LValue {
	switch r := reply.(type) {
	case int64:
		return lua.LNumber(r)
	case string:
		return lua.LString(r)
	case status:
		t := l.CreateTable(0, 1)
		t.RawSetString("ok", lua.LString(r))
		return t
	case errorReply:
		return errorTable(l, string(r))
	case []any:
		t := l.CreateTable(len(r), 0)
		for i, item := range r {
			t.RawSetInt(i+1, toLua(l, item))
		}
		return t
	case nil:
		return lua.LFalse
	}
	panic(fmt.Sprintf("sim: a reply of type %T", reply))
}

func fromLua(v lua.LValue) any {
	switch v := v.(type) {
	case lua.LNumber:
		return int64(v)
	case lua.LString:
		return string(v)
	case lua.LBool:
		if v {
			return int64(1)
		}
	case *lua.LTable:
		if text, ok := v.RawGetString("err").(lua.LString); ok {
			return errorReply(text)
		}
		if text, ok := v.RawGetString("ok").(lua.LString); ok {
			return status(text)
		}
		items := []any{}
		for i := 1; ; i++ {
			item := v.RawGetInt(i)
			if item == lua.LNil {
				return items
			}
			items = append(items, fromLua(item))
		}
	}
	return nil
}
