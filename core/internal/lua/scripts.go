// Package lua holds the scripts of the lock engine, one .lua file each, and the only Go code that knows the order of
// their KEYS and ARGV and the form of their replies.
//
// Every script can be repeated: it names the wire owner of one hold, which is never used again, sets counts and never
// adds to them, and never shortens a time to live. KEYS are data keys only; a channel among them would make a slot in
// migration answer TRYAGAIN, and a lock could not be released.
package lua

import (
	"crypto/sha1"
	_ "embed"
	"encoding/hex"
	"fmt"
	"time"
)

// A Script is one .lua file.
type Script struct {
	Name   string
	Source string
	SHA    string
}

func script(name, source string) *Script {
	sum := sha1.Sum([]byte(source))
	return &Script{Name: name, Source: source, SHA: hex.EncodeToString(sum[:])}
}

var (
	//go:embed acquire.lua
	acquireSource string
	//go:embed update.lua
	updateSource string
	//go:embed release.lua
	releaseSource string
	//go:embed force_release.lua
	forceReleaseSource string
	//go:embed holders.lua
	holdersSource string
	//go:embed renew.lua
	renewSource string
	//go:embed inspect.lua
	inspectSource string

	acquire      = script("acquire", acquireSource)
	update       = script("update", updateSource)
	release      = script("release", releaseSource)
	forceRelease = script("force_release", forceReleaseSource)
	holders      = script("holders", holdersSource)
	renew        = script("renew", renewSource)
	inspect      = script("inspect", inspectSource)
)

// A Call is one script with its keys and arguments, ready to be sent.
type Call struct {
	Script *Script
	args   []any // EVALSHA <sha> <number of keys> <keys> <arguments>
}

// EvalSHA returns the command that runs the script by its digest.
func (c Call) EvalSHA() []any { return c.args }

// Eval returns the command that carries the script's text, for a server that does not know the digest.
func (c Call) Eval() []any {
	args := append([]any(nil), c.args...)
	args[0], args[1] = "EVAL", c.Script.Source
	return args
}

func call(s *Script, keys, room int) Call {
	args := make([]any, 0, 3+keys+room)
	return Call{Script: s, args: append(args, "EVALSHA", s.SHA, keys)}
}

func (c *Call) add(args ...any) { c.args = append(c.args, args...) }

// An Announcement is what a release publishes: a message on a channel, by one command or by several.
type Announcement struct {
	Channel  string
	Message  string
	Commands []string // PUBLISH, SPUBLISH
}

func (a Announcement) addTo(c *Call) {
	c.add(a.Channel, a.Message)
	for _, command := range a.Commands {
		c.add(command)
	}
}

// Acquire takes a plain lock; see acquire.lua. Its reply is read by ReadAcquire.
func Acquire(key, owner string, lease time.Duration) Call {
	c := call(acquire, 1, 3)
	c.add(key, owner, lease.Milliseconds())
	return c
}

// Update sets a hold's count and prolongs its lease; see update.lua. Its reply is read by ReadFlag.
func Update(key, owner string, count int, lease time.Duration) Call {
	c := call(update, 1, 4)
	c.add(key, owner, count, lease.Milliseconds())
	return c
}

// Release frees a hold; see release.lua. Its reply is read by ReadFlag.
func Release(key, owner string, a Announcement) Call {
	c := call(release, 1, 6)
	c.add(key, owner)
	a.addTo(&c)
	return c
}

// Holders tells who holds a lock; see holders.lua. Its reply is read by ReadHolders.
func Holders(key string) Call {
	c := call(holders, 1, 0)
	c.add(key)
	return c
}

// ForceRelease frees a lock that one of the owners still holds; see force_release.lua. Its reply is read by ReadFlag.
func ForceRelease(key string, owners []string, a Announcement) Call {
	c := call(forceRelease, 1, 5+len(owners))
	c.add(key, len(owners))
	for _, owner := range owners {
		c.add(owner)
	}
	a.addTo(&c)
	return c
}

// Renew prolongs many holds; owners[i] holds keys[i]. See renew.lua. Its reply is read by ReadRenew.
func Renew(keys, owners []string, lease time.Duration) Call {
	c := call(renew, len(keys), 1+len(owners)+len(keys))
	for _, key := range keys {
		c.add(key)
	}
	c.add(lease.Milliseconds())
	for _, owner := range owners {
		c.add(owner)
	}
	return c
}

// Inspect tells how a lock stands, and for how many leases owner holds it; see inspect.lua. Its reply is read by ReadInspect.
func Inspect(key, owner string) Call {
	c := call(inspect, 1, 2)
	c.add(key, owner)
	return c
}

// ReadAcquire reads the reply of an acquire script. A refusal carries what the holder's key has left: -1ms where it has no end.
func ReadAcquire(reply any) (granted bool, ttl time.Duration, err error) {
	switch r := reply.(type) {
	case int64:
		if r > 0 {
			return true, 0, nil
		}
	case []any:
		if len(r) == 1 {
			if ms, ok := r[0].(int64); ok {
				return false, time.Duration(ms) * time.Millisecond, nil
			}
		}
	}
	return false, 0, unexpected(acquire, reply)
}

// ReadFlag reads the reply of update, release and force_release: done, or gone.
func (c Call) ReadFlag(reply any) (bool, error) {
	switch reply {
	case int64(1):
		return true, nil
	case int64(0):
		return false, nil
	}
	return false, unexpected(c.Script, reply)
}

// ReadHolders reads the reply of a Holders call.
func ReadHolders(reply any) ([]string, error) {
	list, ok := reply.([]any)
	if !ok {
		return nil, unexpected(holders, reply)
	}
	owners := make([]string, len(list))
	for i, item := range list {
		if owners[i], ok = item.(string); !ok {
			return nil, unexpected(holders, reply)
		}
	}
	return owners, nil
}

// A State is how a lock stands.
type State struct {
	Locked bool
	TTL    time.Duration // 0: not locked; -1ms: no end
	Count  int           // the owner's
}

// ReadInspect reads the reply of an Inspect call.
func ReadInspect(reply any) (s State, err error) {
	list, ok := reply.([]any)
	if !ok || len(list) != 3 {
		return s, unexpected(inspect, reply)
	}
	var n [3]int64
	for i, item := range list {
		if n[i], ok = item.(int64); !ok {
			return s, unexpected(inspect, reply)
		}
	}
	s = State{Locked: n[0] > 0, Count: int(n[2])}
	if s.Locked {
		s.TTL = time.Duration(n[1]) * time.Millisecond
	}
	return s, nil
}

// Renewal is what became of one key of a Renew call.
type Renewal struct {
	Renewed bool
	Err     error // an error that Redis gave for this key; nil with Renewed false: the hold is gone
}

// ReadRenew reads the reply of a Renew call of n keys.
func ReadRenew(reply any, n int) ([]Renewal, error) {
	list, ok := reply.([]any)
	if !ok || len(list) != n {
		return nil, unexpected(renew, reply)
	}
	results := make([]Renewal, n)
	for i, item := range list {
		switch r := item.(type) {
		case int64:
			if r != 0 && r != 1 {
				return nil, unexpected(renew, reply)
			}
			results[i].Renewed = r == 1
		case string:
			results[i].Err = fmt.Errorf("renew: %s", r)
		default:
			return nil, unexpected(renew, reply)
		}
	}
	return results, nil
}

func unexpected(s *Script, reply any) error {
	return fmt.Errorf("script %s: unexpected reply %T %v", s.Name, reply, reply)
}
