package batch

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/reqlock/reqlock/core/internal/lua"
)

// plain returns a call that takes a plain lock, or one that releases it.
func plain(key string, take bool) *Call {
	c := newCall(key)
	if take {
		c.Call = lua.Acquire(key, "owner", time.Second)
	} else {
		c.Call = lua.Release(key, "owner", lua.Announcement{Channel: "channel", Message: "0", Commands: []string{"PUBLISH"}})
	}
	return c
}

// crowd sends a few calls that go alone and n more behind them. All but every fifth of the n are of
// plain locks. It answers the few and returns the calls then in flight together.
func (fx *batchFixture) crowd(n int) (calls []*Call) {
	first := fx.calls(4)
	for i := range n {
		c := newCall(fmt.Sprint("other ", i))
		if i%5 > 0 {
			c = plain(fmt.Sprint("plain ", i), i%2 == 0)
		}
		calls = append(calls, c)
		fx.Send(c, time.Now())
	}
	for range first {
		fx.answer(nil)
	}
	fx.wantReplies(first)
	return calls
}

// A redisError is an error reply.
type redisError string

func (e redisError) Error() string { return string(e) }
func (e redisError) RedisError()   {}

// keysIn returns the keys of a command.
func keysIn(cmd redis.Cmder) []string {
	var keys []string
	for _, key := range cmd.Args()[3 : 3+cmd.Args()[2].(int)] {
		keys = append(keys, key.(string))
	}
	return keys
}

// answerEach answers the oldest flight, each command by a call of reply. The reply to a parcel is a
// list.
func (fx *batchFixture) answerEach(reply func(cmd redis.Cmder) (any, error)) {
	fx.server.mu.Lock()
	f := fx.flights[0]
	fx.flights = fx.flights[1:]
	fx.server.mu.Unlock()
	var first error
	for _, cmd := range f.cmds {
		if value, err := reply(cmd); err != nil {
			cmd.SetErr(err)
			first = errors.Join(first, err)
		} else {
			cmd.(onceCmd).SetVal(value)
		}
	}
	f.done <- first
	synctest.Wait()
}

// byKey answers with keys. Each call of a parcel gets its own list, as when its lock is held.
func byKey(cmd redis.Cmder) (any, error) {
	keys := keysIn(cmd)
	if len(keys) == 1 {
		return keys[0], nil
	}
	var all []any
	for _, key := range keys {
		all = append(all, []any{key})
	}
	return all, nil
}

// wantKeys fails the test unless each call is answered with its own key.
func (fx *batchFixture) wantKeys(calls []*Call) {
	fx.t.Helper()
	for _, c := range calls {
		r := <-c.Reply
		if list, ok := r.Value.([]any); ok && len(list) == 1 {
			r.Value = list[0]
		}
		if r.Err != nil || r.Value != c.Key() {
			fx.t.Errorf("%s: reply %v, %v", c.Key(), r.Value, r.Err)
		}
	}
}

// Calls of plain locks in a pipeline form parcels of bounded size, releases first. Other calls stay
// single commands.
func TestParcels(t *testing.T) {
	withFakeClock(t, func(fx *batchFixture) {
		calls := fx.crowd(120)
		fx.wantSizes("96 plain locks and 24 others", 2+24)
		for i, cmd := range fx.flights[0].cmds[:2] {
			if n, want := len(keysIn(cmd)), []int{64, 32}[i]; n != want {
				t.Errorf("parcel %d has %d keys, want %d", i, n, want)
			}
			many := lua.Many(nil).Script
			if args := cmd.Args(); args[0] != "EVALSHA" || args[1] != many.SHA {
				t.Errorf("parcel %d is %v", i, args[:3])
			}
		}
		var order []bool
		for _, cmd := range fx.flights[0].cmds[:2] {
			for _, key := range keysIn(cmd) {
				order = append(order, slices.IndexFunc(calls, func(c *Call) bool { return c.Key() == key && c.Takes() }) >= 0)
			}
		}
		if i := slices.Index(order, true); i != 48 || slices.Contains(order[i:], false) {
			t.Errorf("the first acquire is call %d, want all 48 releases before it", i)
		}
		fx.answerEach(byKey)
		fx.wantKeys(calls)

		calls = fx.crowd(2) // one of each kind
		fx.wantSizes("a single plain lock", 2)
		fx.answerEach(byKey)
		fx.wantKeys(calls)
	})
}

// An error with one lock reaches that lock's caller only.
func TestParcels_Errors(t *testing.T) {
	withFakeClock(t, func(fx *batchFixture) {
		calls := fx.crowd(20)
		fx.answerEach(func(cmd redis.Cmder) (any, error) {
			reply, _ := byKey(cmd)
			if list, ok := reply.([]any); ok {
				list[7] = "WRONGTYPE it is a list"
			}
			return reply, nil
		})
		wrong := 0
		for _, c := range calls {
			r := <-c.Reply
			switch {
			case r.Err == nil:
			case redis.HasErrorPrefix(r.Err, "WRONGTYPE") && r.Value == nil:
				wrong++
			default:
				t.Errorf("%s: reply %v, %v", c.Key(), r.Value, r.Err)
			}
		}
		if wrong != 1 {
			t.Errorf("%d callers got the error of one lock", wrong)
		}

		for name, reply := range map[string]struct {
			value any
			err   error
		}{
			"a broken connection": {nil, errors.New("broken pipe")},
			"a busy server":       {nil, redisError("BUSY a script is running")},
			"too few replies":     {[]any{int64(1)}, nil},
			"nonsense":            {"OK", nil},
			"nothing":             {nil, nil},
		} {
			calls := fx.crowd(20)
			fx.wantSizes(name, 1+4)
			fx.answerEach(func(redis.Cmder) (any, error) { return reply.value, reply.err })
			for _, c := range calls {
				r := <-c.Reply
				if plain := c.Frees() || c.Takes(); plain && (r.Err == nil || r.Value != nil) {
					t.Errorf("%s: %s got %v, %v", name, c.Key(), r.Value, r.Err)
				}
				if reply.err != nil && !errors.Is(r.Err, reply.err) {
					t.Errorf("%s: %s got %v", name, c.Key(), r.Err)
				}
			}
			fx.wantSizes(name + ", afterwards")
		}
	})
}

// A parcel whose script the server does not know is resent with the text; other commands are not.
func TestParcels_NoScript(t *testing.T) {
	withFakeClock(t, func(fx *batchFixture) {
		calls := fx.crowd(20)
		fx.answerEach(func(cmd redis.Cmder) (any, error) {
			if len(keysIn(cmd)) > 1 {
				return nil, redisError("NOSCRIPT No matching script.")
			}
			return byKey(cmd)
		})
		fx.wantSizes("once more", 1)
		if args := fx.flights[0].cmds[0].Args(); args[0] != "EVAL" || args[1] != lua.Many(nil).Script.Source {
			t.Errorf("sent %v, want the script", args[0])
		}
		fx.answerEach(byKey)
		fx.wantKeys(calls)
	})
}

// Commands that Redis executed are not resent with those whose script it did not know. That would
// release a lock twice.
func TestParcels_NoScriptOfSome(t *testing.T) {
	for name, unknown := range map[string]func(i int, keys []string) bool{
		"all but the parcels": func(_ int, keys []string) bool { return len(keys) == 1 },
		"the first parcel":    func(i int, _ []string) bool { return i == 0 },
		"the second parcel":   func(i int, _ []string) bool { return i == 1 },
	} {
		withFakeClock(t, func(fx *batchFixture) {
			calls := fx.crowd(100)
			executed := make(map[string]int)
			for len(fx.sizes()) > 0 {
				i := -1
				fx.answerEach(func(cmd redis.Cmder) (any, error) {
					keys := keysIn(cmd)
					if i++; cmd.Args()[0] == "EVALSHA" && unknown(i, keys) {
						return nil, redisError("NOSCRIPT No matching script.")
					}
					for _, key := range keys {
						executed[key]++
					}
					return byKey(cmd)
				})
			}
			fx.wantKeys(calls)
			for _, c := range calls {
				if n := executed[c.Key()]; n != 1 {
					t.Errorf("%s: %s was executed %d times", name, c.Key(), n)
				}
			}
		})
	}
}

// When Redis refuses keys of several locks in one command, each call is sent alone. No parcels
// follow for a minute, unless a permission was missing.
func TestParcels_Refused(t *testing.T) {
	for refusal, parcels := range map[redisError]int{ // and the number of parcels next time
		"CROSSSLOT Keys in request don't hash to the same slot": 0,
		"ERR 'EVALSHA' command keys must be in one slot":        0,
		"NOPERM No permissions to access a key":                 1,
	} {
		withFakeClock(t, func(fx *batchFixture) {
			calls := fx.crowd(20)
			fx.wantSizes("at first", 1+4)
			fx.answerEach(func(cmd redis.Cmder) (any, error) {
				if len(keysIn(cmd)) > 1 {
					return nil, refusal
				}
				return byKey(cmd)
			})
			fx.wantSizes("after "+string(refusal), 16)
			fx.answerEach(byKey)
			fx.wantKeys(calls)

			calls = fx.crowd(20)
			fx.wantSizes("the next time", parcels+16*(1-parcels)+4)
			fx.answerEach(byKey)
			fx.wantKeys(calls)

			sleep(noParcelsFor)
			calls = fx.crowd(20)
			fx.wantSizes("a minute later", 1+4)
			fx.answerEach(byKey)
			fx.wantKeys(calls)
		})
	}

	for name, unknown := range map[string]func(keys []string) bool{
		"knowing no script":             func([]string) bool { return true },
		"knowing but one call's script": func(keys []string) bool { return keys[0] != "other 0" },
		"knowing the parcel's script":   func(keys []string) bool { return len(keys) == 1 },
		"knowing the other scripts":     func(keys []string) bool { return len(keys) > 1 },
	} {
		withFakeClock(t, func(fx *batchFixture) { // the server must be sent the pipeline's scripts
			calls := fx.crowd(20)
			answered, executed := 0, make(map[string]int)
			for ; len(fx.sizes()) > 0; answered++ {
				fx.answerEach(func(cmd redis.Cmder) (any, error) {
					switch keys := keysIn(cmd); {
					case cmd.Args()[0] == "EVALSHA" && unknown(keys):
						return nil, redisError("NOSCRIPT No matching script.")
					case len(keys) > 1:
						return nil, redisError("CROSSSLOT Keys in request don't hash to the same slot")
					default:
						executed[keys[0]]++
					}
					return byKey(cmd)
				})
			}
			for key, n := range executed {
				if n > 1 {
					t.Errorf("%s: %s was executed %d times", name, key, n)
				}
			}
			if answered > 4 {
				t.Errorf("%s: sent in %d pipelines", name, answered)
			}
			fx.wantKeys(calls)

			calls = fx.crowd(20)
			fx.wantSizes(name+", the next time", 20)
			fx.answerEach(byKey)
			fx.wantKeys(calls)
		})
	}

	withFakeClock(t, func(fx *batchFixture) { // refused for another reason than being together
		calls := fx.crowd(20)
		full := redisError("ERR max number of clients reached")
		refuse := func(redis.Cmder) (any, error) { return nil, full }
		fx.answerEach(refuse)
		fx.wantSizes("apart", 16)
		fx.answerEach(refuse)
		for _, c := range calls {
			wantErr(t, c, full)
		}
		calls = fx.crowd(20)
		fx.wantSizes("the next time", 1+4)
		fx.answerEach(byKey)
		fx.wantKeys(calls)
	})

	withFakeClock(t, func(fx *batchFixture) { // only one lock is refused
		calls := fx.crowd(20)
		fx.answerEach(func(cmd redis.Cmder) (any, error) {
			reply, _ := byKey(cmd)
			if list, ok := reply.([]any); ok {
				list[0] = "ERR The user executing the script can't run this command or subcommand"
			}
			return reply, nil
		})
		fx.wantSizes("afterwards")
		failed := 0
		for _, c := range calls {
			if r := <-c.Reply; r.Err != nil {
				failed++
			}
		}
		if failed != 1 {
			t.Errorf("%d callers got the error of one lock", failed)
		}
	})
}

// A withdrawn call is in no parcel. A call in a parcel that passes its deadline is answered then.
func TestParcels_Deadlines(t *testing.T) {
	withFakeClock(t, func(fx *batchFixture) {
		first := fx.calls(4)
		var calls []*Call
		for i := range 6 {
			calls = append(calls, plain(fmt.Sprint("plain ", i), true))
			calls[i].Deadline = time.Now().Add(leastSlow / 2)
			fx.Send(calls[i], time.Now())
		}
		if !fx.Withdraw(calls[0]) {
			t.Fatal("a queued call could not be withdrawn")
		}
		for range first {
			fx.answer(nil)
		}
		fx.wantSizes("those that are left", 1)
		if keys := keysIn(fx.flights[0].cmds[0]); len(keys) != 5 {
			t.Errorf("in flight: %v", keys)
		}
		sleep(leastSlow / 2)
		for _, c := range calls[1:] {
			wantErr(t, c, ErrUnanswered)
		}
		fx.answerEach(byKey)
	})
}
