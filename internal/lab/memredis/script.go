package memredis

import (
	"crypto/sha1"
	"encoding/hex"
	"fmt"
	"math"
	"strings"
	"sync"

	lua "github.com/yuin/gopher-lua"
	"github.com/yuin/gopher-lua/parse"
)

// A Runner runs Lua scripts on databases. It is not safe for concurrent use.
type Runner struct {
	// Full, ReadOnly and NoPublish say that the server has no free memory, is a replica, or that its
	// user may not publish. It refuses commands of scripts then.
	Full, ReadOnly, NoPublish bool

	state   *lua.LState
	scripts map[string]script
	db      *DB
	args    []string
	wrote   bool // the current script has written
}

// A script is compiled. Runners share the prototype of its function.
type script struct {
	proto    *lua.FunctionProto
	function *lua.LFunction
	sha      string
}

// compiled has the scripts that any Runner has compiled, by source.
var compiled sync.Map

// NewRunner returns a Runner. The caller closes it.
func NewRunner() *Runner {
	r := &Runner{
		state:   lua.NewState(lua.Options{SkipOpenLibs: true}),
		scripts: make(map[string]script),
	}
	l := r.state
	for _, lib := range []struct {
		name string
		open lua.LGFunction
	}{
		{lua.BaseLibName, lua.OpenBase},
		{lua.TabLibName, lua.OpenTable},
		{lua.StringLibName, lua.OpenString},
		{lua.MathLibName, lua.OpenMath},
	} {
		l.Push(l.NewFunction(lib.open))
		l.Push(lua.LString(lib.name))
		l.Call(1, 0)
	}
	redis := l.NewTable()
	redis.RawSetString("call", l.NewFunction(func(l *lua.LState) int { return r.call(l, true) }))
	redis.RawSetString("pcall", l.NewFunction(func(l *lua.LState) int { return r.call(l, false) }))
	redis.RawSetString("error_reply", l.NewFunction(errorReply))
	l.G.Global.RawSetString("redis", redis)

	// Refuse unknown globals, as Redis does.
	refuse := l.NewTable()
	refuse.RawSetString("__index", l.NewFunction(func(l *lua.LState) int {
		l.RaiseError("Script attempted to access nonexistent global variable '%s'", l.Get(2).String())
		return 0
	}))
	refuse.RawSetString("__newindex", l.NewFunction(func(l *lua.LState) int {
		l.RaiseError("Attempt to modify a readonly table: global '%s'", l.Get(2).String())
		return 0
	}))
	l.G.Global.Metatable = refuse
	return r
}

// Close frees the interpreter.
func (r *Runner) Close() { r.state.Close() }

// Eval runs a script on a database. The replies are those of Do.
func (r *Runner) Eval(db *DB, source string, keys, args []string) any {
	s, err := r.compile(source)
	if err != nil {
		return Error("ERR Error compiling script: " + err.Error())
	}
	l := r.state
	r.db, r.wrote = db, false
	defer func() { r.db = nil }()
	l.G.Global.RawSetString("KEYS", table(l, keys))
	l.G.Global.RawSetString("ARGV", table(l, args))
	l.Push(s.function)
	if err := l.PCall(0, 1, nil); err != nil {
		return raised(err) + Error(" script: "+s.sha)
	}
	reply := toGo(l.Get(-1))
	l.Pop(1)
	return reply
}

func (r *Runner) compile(source string) (script, error) {
	if s, ok := r.scripts[source]; ok {
		return s, nil
	}
	shared, ok := compiled.Load(source)
	if !ok {
		chunk, err := parse.Parse(strings.NewReader(source), "user_script")
		if err != nil {
			return script{}, err
		}
		proto, err := lua.Compile(chunk, "user_script")
		if err != nil {
			return script{}, err
		}
		shared, _ = compiled.LoadOrStore(source, script{proto: proto, sha: SHA(source)})
	}
	s := shared.(script)
	s.function = r.state.NewFunctionFromProto(s.proto)
	r.scripts[source] = s
	return s, nil
}

// SHA returns the name of a script in EVALSHA.
func SHA(source string) string {
	sum := sha1.Sum([]byte(source))
	return hex.EncodeToString(sum[:])
}

// raised returns the error reply to a script that raised a value.
func raised(err error) Error {
	api, ok := err.(*lua.ApiError)
	if !ok {
		return Error("ERR " + err.Error())
	}
	if t, ok := api.Object.(*lua.LTable); ok {
		if text, ok := t.RawGetString("err").(lua.LString); ok {
			return Error(text)
		}
	}
	return Error("ERR " + strings.ReplaceAll(api.Object.String(), "\n", " "))
}

func table(l *lua.LState, items []string) *lua.LTable {
	t := l.CreateTable(len(items), 0)
	for i, item := range items {
		t.RawSetInt(i+1, lua.LString(item))
	}
	return t
}

// call is redis.call, or redis.pcall if raise is false.
func (r *Runner) call(l *lua.LState, raise bool) int {
	r.args = r.args[:0]
	for i := 1; i <= l.GetTop(); i++ {
		switch a := l.Get(i).(type) {
		case lua.LString:
			r.args = append(r.args, string(a))
		case lua.LNumber:
			r.args = append(r.args, formatFloat(float64(a)))
		default:
			l.RaiseError("Lua redis lib command arguments must be strings or integers")
		}
	}
	if len(r.args) == 0 {
		l.RaiseError("Please specify at least one argument for this redis lib call")
	}
	reply := r.do()
	if _, failed := reply.(Error); failed && raise {
		l.Error(toLua(l, reply), 0)
	}
	l.Push(toLua(l, reply))
	return 1
}

// do executes the command in args, unless the server refuses it to scripts now.
func (r *Runner) do() any {
	c, err := parseCall(r.args)
	switch name := r.args[0]; {
	case err != nil:
		return err
	case c.access >= writes && r.ReadOnly:
		return Error("READONLY You can't write against a read only replica.")
	case c.access == grows && r.Full && !r.wrote:
		return Error("OOM command not allowed when used memory > 'maxmemory'.")
	case r.NoPublish && (strings.EqualFold(name, "PUBLISH") || strings.EqualFold(name, "SPUBLISH")):
		return Error("ERR The user executing the script can't run this command or subcommand")
	}
	r.wrote = r.wrote || c.access >= writes
	return r.db.execute(c, r.args[1:])
}

func errorReply(l *lua.LState) int {
	text := l.CheckString(1)
	if !strings.Contains(text, " ") {
		text = "ERR " + text
	}
	l.Push(toLua(l, Error(strings.TrimPrefix(text, "-"))))
	return 1
}

func toLua(l *lua.LState, reply any) lua.LValue {
	switch v := reply.(type) {
	case nil:
		return lua.LFalse
	case int64:
		return lua.LNumber(v)
	case string:
		return lua.LString(v)
	case Status:
		t := l.CreateTable(0, 1)
		t.RawSetString("ok", lua.LString(v))
		return t
	case Error:
		t := l.CreateTable(0, 1)
		t.RawSetString("err", lua.LString(v))
		return t
	case []any:
		t := l.CreateTable(len(v), 0)
		for i, item := range v {
			t.RawSetInt(i+1, toLua(l, item))
		}
		return t
	}
	panic(fmt.Sprintf("memredis: a reply of type %T", reply))
}

func toGo(value lua.LValue) any {
	switch v := value.(type) {
	case lua.LBool:
		if v {
			return int64(1)
		}
		return nil
	case lua.LNumber:
		return int64(math.Trunc(float64(v)))
	case lua.LString:
		return string(v)
	case *lua.LTable:
		if text, ok := v.RawGetString("err").(lua.LString); ok {
			return Error(text)
		}
		if text, ok := v.RawGetString("ok").(lua.LString); ok {
			return Status(text)
		}
		items := []any{}
		for i := 1; ; i++ {
			item := v.RawGetInt(i)
			if item == lua.LNil {
				return items
			}
			items = append(items, toGo(item))
		}
	}
	return nil
}
