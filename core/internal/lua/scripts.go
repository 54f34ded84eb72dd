// Package lua holds the scripts of the lock engine, one .lua file each. It is the only Go code that
// knows the order of their KEYS and ARGV and the form of their replies.
//
// Every script can be repeated. It names the wire owner of one hold, which is never used again. It
// sets counts and never adds to them. It never shortens the lease of a hold. KEYS are data keys
// only: a channel among them would make a slot in migration answer TRYAGAIN, so that a lock could
// not be released. Scripts pass strings to Redis where they can, because Redis 7.0 needs half the
// time of a command to convert a number to a string. They run on Redis 6.2 and newer, so PEXPIRE
// has no option and PEXPIRETIME is not there.
package lua

import (
	"cmp"
	"crypto/sha1"
	_ "embed"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/reqlock/reqlock/core/internal/wire"
)

// A Script is one .lua file, behind those whose functions it calls: Lua has no imports.
type Script struct {
	Name   string
	Source string
	SHA    string
	// sha is SHA as a ready argument.
	sha    any
	traits traits
}

// traits are what a script does besides changing one lock.
type traits uint8

const (
	acquires traits = 1 << iota // It is an attempt to acquire.
	fenced                      // It draws a fencing token with each grant, by fenced_draw.lua.
	queued                      // It changes a queue in Redis, by fair_queue.lua.
	counted                     // It counts permits, by permit_clock.lua.
)

func (s *Script) has(t traits) bool { return s.traits&t != 0 }

// known has the digest of each script.
var known = make(map[string]bool)

// Known reports whether a digest is that of a script of this package.
func Known(sha []byte) bool { return known[string(sha)] }

// script returns a script with the functions that its traits need.
func script(name, source string, has traits) *Script {
	if has&queued != 0 {
		source = fairQueue + source
	}
	if has&fenced != 0 {
		source = fencedDraw + source
	}
	if has&counted != 0 {
		source = permitClock + source
	}
	sum := sha1.Sum([]byte(source))
	sha := hex.EncodeToString(sum[:])
	known[sha] = true
	return &Script{Name: name, Source: source, SHA: sha, sha: sha, traits: has}
}

var (
	//go:embed acquire.lua
	acquireSource string
	//go:embed read_acquire.lua
	readAcquireSource string
	//go:embed write_acquire.lua
	writeAcquireSource string
	//go:embed fair_acquire.lua
	fairAcquireSource string
	//go:embed update.lua
	updateSource string
	//go:embed read_write_update.lua
	readWriteUpdateSource string
	//go:embed pass.lua
	passSource string
	//go:embed fair_pass.lua
	fairPassSource string
	//go:embed release.lua
	releaseSource string
	//go:embed fair_release.lua
	fairReleaseSource string
	//go:embed force_release.lua
	forceReleaseSource string
	//go:embed fair_force_release.lua
	fairForceReleaseSource string
	//go:embed holders.lua
	holdersSource string
	//go:embed present.lua
	presentSource string
	//go:embed renew.lua
	renewSource string
	//go:embed inspect.lua
	inspectSource string
	//go:embed fair_queue.lua
	fairQueue string
	//go:embed fenced_draw.lua
	fencedDraw string
	//go:embed force_take.lua
	forceTake string
	//go:embed force_tell.lua
	forceTell string

	acquire           = script("acquire", acquireSource, acquires)
	fencedAcquire     = script("fenced_acquire", acquireSource, acquires|fenced)
	readAcquire       = script("read_acquire", readAcquireSource, acquires)
	writeAcquire      = script("write_acquire", writeAcquireSource, acquires)
	fencedWrite       = script("fenced_write_acquire", writeAcquireSource, acquires|fenced)
	fairAcquire       = script("fair_acquire", fairAcquireSource, acquires|queued)
	fencedFairAcquire = script("fenced_fair_acquire", fairAcquireSource, acquires|fenced|queued)
	update            = script("update", updateSource, 0)
	readWriteUpdate   = script("read_write_update", readWriteUpdateSource, 0)
	pass              = script("pass", passSource, 0)
	fencedPass        = script("fenced_pass", passSource, fenced)
	fairPass          = script("fair_pass", fairPassSource, queued)
	fencedFairPass    = script("fenced_fair_pass", fairPassSource, fenced|queued)
	release           = script("release", releaseSource, 0)
	fairRelease       = script("fair_release", fairReleaseSource, queued)
	forceRelease      = script("force_release", forceTell+forceTake+forceReleaseSource, 0)
	fairForceRelease  = script("fair_force_release", forceTell+forceTake+fairForceReleaseSource, queued)
	holders           = script("holders", holdersSource, 0)
	present           = script("present", presentSource, 0)
	renew             = script("renew", renewSource, 0)
	inspect           = script("inspect", inspectSource, 0)
)

// A Call is a script with its keys and arguments, ready to send.
type Call struct {
	Script *Script
	args   []any // EVALSHA <sha> <number of keys> <keys> <arguments>; nil: plain

	// Most calls that take or free a plain lock become part of a Many. Their arguments are built
	// only there, or when they are sent alone.
	plain plainCall
}

// A plainCall is an Acquire, or a Release with the usual announcement.
type plainCall struct {
	key, owner string
	// lease is what an Acquire asks for, in ms.
	lease int64
	// channel is where a Release publishes.
	channel string
}

func (p *plainCall) args(s *Script) []any {
	if s == release {
		return []any{"EVALSHA", s.sha, 1, p.key, p.owner, p.channel, message, publish}
	}
	return []any{"EVALSHA", s.sha, 1, p.key, p.owner, p.lease}
}

// EvalSHA returns the command that runs the script by its digest.
func (c Call) EvalSHA() []any {
	if c.args == nil {
		return c.plain.args(c.Script)
	}
	return c.args
}

// Eval returns the command that carries the script's text, for a server that does not know the
// digest.
func (c Call) Eval() []any {
	args := append([]any(nil), c.EvalSHA()...)
	args[0], args[1] = "EVAL", c.Script.Source
	return args
}

// Key returns the first key.
func (c Call) Key() string {
	if c.args == nil {
		return c.plain.key
	}
	return c.args[firstKey].(string)
}

// firstKey is the index of the first key in args.
const firstKey = 3

// Size returns the approximate size of the call on the wire, in bytes.
func (c Call) Size() int {
	if c.args == nil {
		return 16*8 + len(c.plain.key) + len(c.plain.owner) + len(c.plain.channel)
	}
	n := 0
	for _, arg := range c.args {
		n += 16
		if s, ok := arg.(string); ok {
			n += len(s)
		}
	}
	return n
}

func call(s *Script, keys, room int) Call {
	args := make([]any, 0, firstKey+keys+room)
	return Call{Script: s, args: append(args, "EVALSHA", s.sha, keys)}
}

func (c *Call) add(args ...any) { c.args = append(c.args, args...) }

// An Announcement is what a release publishes: a message on a channel, with one or more commands.
type Announcement struct {
	Channel  string
	Message  string
	Commands []string // PUBLISH, SPUBLISH
}

func (a Announcement) addTo(c *Call) {
	if a.usual() {
		c.add(a.Channel, message, publish) // constants, which are ready arguments
		return
	}
	c.add(a.Channel, a.Message)
	for _, command := range a.Commands {
		c.add(command)
	}
}

// usual reports whether a is the announcement of a plain lock outside clusters.
func (a Announcement) usual() bool {
	return a.Message == message && len(a.Commands) == 1 && a.Commands[0] == publish
}

// Acquire takes a plain lock; see acquire.lua. ReadAcquire reads its reply.
func Acquire(key, owner string, lease time.Duration) Call {
	return Call{Script: acquire, plain: plainCall{key: key, owner: owner, lease: lease.Milliseconds()}}
}

// AcquireFenced takes a fenced lock and draws a token; see acquire.lua. ReadAcquire reads its reply.
func AcquireFenced(key, counter, owner string, lease time.Duration) Call {
	c := call(fencedAcquire, 2, 2)
	c.add(key, counter, owner, lease.Milliseconds())
	return c
}

// AcquireRead takes the read side of a read/write lock; see read_acquire.lua. ReadAcquire reads its
// reply.
func AcquireRead(key, timeout, owner string, lease time.Duration) Call {
	c := call(readAcquire, 2, 2)
	c.add(key, timeout, owner, lease.Milliseconds())
	return c
}

// AcquireWrite takes the write side of a read/write lock; see write_acquire.lua. ReadAcquire reads
// its reply.
func AcquireWrite(key, field string, lease time.Duration) Call {
	c := call(writeAcquire, 1, 2)
	c.add(key, field, lease.Milliseconds())
	return c
}

// AcquireFencedWrite is AcquireWrite that also draws a token. ReadAcquire reads its reply.
func AcquireFencedWrite(key, counter, field string, lease time.Duration) Call {
	c := call(fencedWrite, 2, 2)
	c.add(key, counter, field, lease.Milliseconds())
	return c
}

// A Fair is a fair lock with the arguments that all its scripts need; see fair_queue.lua.
type Fair struct {
	Lock, Queue, Deadlines string
	// Budget is how long a waiter may be silent before it is dropped.
	Budget time.Duration
	// Grace is how long a waiter may have no listener, or leave the free lock alone after it was
	// told that its turn has come, before it is dropped.
	Grace time.Duration
	// Counts says that the server knows all listeners. Otherwise none of them counts as missing.
	Counts bool
	// Counter is the key of fencing tokens, for the calls of fenced handles only.
	Counter string
	// The Channel of the Announcement is the prefix of the waiters' channels. The wire owner
	// follows it.
	Announcement
}

func (f *Fair) call(s *Script, room int) Call {
	keys := 3
	if s.has(fenced) {
		keys++
	}
	c := call(s, keys, 7+room)
	commands := [2]string{}
	copy(commands[:], f.Commands)
	c.add(f.Lock, f.Queue, f.Deadlines)
	if s.has(fenced) {
		c.add(f.Counter)
	}
	c.add(f.Budget.Milliseconds(), f.Grace.Milliseconds(), f.Channel, f.Message, commands[0], commands[1])
	if f.Counts {
		c.add(1)
	} else {
		c.add(0)
	}
	return c
}

// AcquireFair takes a fair lock, or else queues up for it if the server's clock is not past
// notAfter, in ms; see fair_acquire.lua. soon is the longest TTL to reply if the first in the queue
// may be dead. ReadAcquire reads its reply.
func AcquireFair(f *Fair, owner string, lease time.Duration, notAfter int64, soon time.Duration) Call {
	return f.acquire(fairAcquire, owner, lease, notAfter, soon)
}

// AcquireFencedFair is AcquireFair that also draws a token, if it is granted. ReadAcquire reads its
// reply.
func AcquireFencedFair(f *Fair, owner string, lease time.Duration, notAfter int64, soon time.Duration) Call {
	return f.acquire(fencedFairAcquire, owner, lease, notAfter, soon)
}

func (f *Fair) acquire(s *Script, owner string, lease time.Duration, notAfter int64, soon time.Duration) Call {
	c := f.call(s, 4)
	c.add(owner, lease.Milliseconds(), notAfter, soon.Milliseconds())
	return c
}

// Update sets the count of a hold and prolongs its lease; see update.lua. ReadUpdate reads its
// reply.
func Update(key, owner string, count int, lease time.Duration) Call {
	c := call(update, 1, 4)
	c.add(key, owner, count, lease.Milliseconds())
	return c
}

// A ReadWriteHold is the state of a hold that UpdateReadWrite sets. Without levels it is released.
type ReadWriteHold struct {
	Key string
	// Timeouts are the keys of all read levels that the owner has ever had.
	Timeouts      []string
	Owner         string
	Reads, Writes int
	// Prefix is what all time-out keys of the lock begin with.
	Prefix string
	Suffix string
	// Certain is true if all keys of the lock are on this server.
	Certain bool
	// WriteMessage is the message of a write release. The Announcement has that of a read release.
	WriteMessage string
}

// UpdateReadWrite sets the counts of a hold on both sides; see read_write_update.lua. ReadUpdate
// reads its reply, or ReadRelease if no level is left.
func UpdateReadWrite(h ReadWriteHold, lease time.Duration, a Announcement) Call {
	c := call(readWriteUpdate, 1+len(h.Timeouts), 12)
	c.add(h.Key)
	for _, key := range h.Timeouts {
		c.add(key)
	}
	certain := 0
	if h.Certain {
		certain = 1
	}
	c.add(h.Owner, h.Reads, h.Writes, lease.Milliseconds(), h.Prefix, h.Suffix, certain)
	c.add(a.Channel, a.Message, h.WriteMessage)
	for _, command := range a.Commands {
		c.add(command)
	}
	return c
}

// Pass hands a lock over from one field of its hash to another; see pass.lua. ReadPass reads its
// reply.
func Pass(key, from, to string, lease time.Duration) Call {
	c := call(pass, 1, 3)
	c.add(key, from, to, lease.Milliseconds())
	return c
}

// PassFenced is Pass with a token, for a fenced plain lock or write side; see pass.lua.
// ReadPass reads its reply.
func PassFenced(key, counter, from, to string, lease time.Duration) Call {
	c := call(fencedPass, 2, 3)
	c.add(key, counter, from, to, lease.Milliseconds())
	return c
}

// PassFair hands a fair lock over to a waiter if it is the first in the queue, or else frees it;
// see fair_pass.lua. ReadPass reads its reply.
func PassFair(f *Fair, from, to string, lease time.Duration) Call {
	return f.pass(fairPass, from, to, lease)
}

// PassFencedFair is PassFair that also draws a token, if it hands over. ReadPass reads its reply.
func PassFencedFair(f *Fair, from, to string, lease time.Duration) Call {
	return f.pass(fencedFairPass, from, to, lease)
}

func (f *Fair) pass(s *Script, from, to string, lease time.Duration) Call {
	c := f.call(s, 3)
	c.add(from, lease.Milliseconds(), to)
	return c
}

// Release frees a hold; see release.lua. ReadRelease reads its reply.
func Release(key, owner string, a Announcement) Call {
	if a.usual() {
		return Call{Script: release, plain: plainCall{key: key, owner: owner, channel: a.Channel}}
	}
	c := call(release, 1, 3+len(a.Commands))
	c.add(key, owner)
	a.addTo(&c)
	return c
}

// ReleaseFair frees a hold of a fair lock, or removes its owner from the queue; see
// fair_release.lua. ReadRelease reads its reply.
func ReleaseFair(f *Fair, owner string) Call {
	c := f.call(fairRelease, 1)
	c.add(owner)
	return c
}

// fairOwners is the index of the first wire owner among the arguments of a ReleaseFair.
const fairOwners = firstKey + 3 + 7

// MostJoined is how many calls Join may join. A script looks through the queue once for all of them.
const MostJoined = 500

// Joins reports whether c and other, which each are made for one owner, can become one call: both
// are a ReleaseFair of one lock.
func (c Call) Joins(other Call) bool {
	return c.Script == fairRelease && other.Script == fairRelease && c.Key() == other.Key()
}

// Join returns one call for several that can be joined. ReadFlag then says whether one of them
// freed a hold.
func Join(calls []Call) Call {
	joined := calls[0]
	joined.args = append([]any(nil), joined.args...)
	for _, c := range calls[1:] {
		joined.args = append(joined.args, c.args[fairOwners:]...)
	}
	return joined
}

// HashAlone returns a call that frees the hold using only the lock's hash, for a release that
// needs more keys. It notifies no waiter that is found through another key. The original call must
// be sent later for the rest; it then replies that the hold is gone. ok is false for a call that
// cannot be split without loss.
func (c Call) HashAlone() (_ Call, ok bool) {
	if c.args == nil {
		return Call{}, false
	}
	keys := c.args[firstKey-1].(int)
	args := c.args[firstKey+keys:]
	switch {
	case c.Script == fairRelease && len(c.args) == fairOwners+1:
		return Release(c.Key(), c.args[fairOwners].(string), Announcement{}), true
	case c.Script == readWriteUpdate && keys > 1 && args[1] == 0 && args[2] == 0:
		rest := call(readWriteUpdate, 1, len(args))
		rest.add(c.Key())
		rest.add(args...)
		return rest, true
	}
	return Call{}, false
}

// Holders returns the fields of a lock's hash: its wire owners, and 'mode' for a read/write lock;
// see holders.lua. ReadHolders reads its reply.
func Holders(key string) Call {
	c := call(holders, 1, 0)
	c.add(key)
	return c
}

// MostPresent is how many fields one Present call may look for.
const MostPresent = 200

// Present looks for fields of a lock; see present.lua. ReadPresent reads its reply.
func Present(key string, fields []string) Call {
	c := call(present, 1, len(fields))
	c.add(key)
	for _, field := range fields {
		c.add(field)
	}
	return c
}

// ForceRelease takes a lock from those of the owners that still hold it, and tells their clients;
// see force_release.lua. ReadTaken reads its reply.
func ForceRelease(key string, owners []string, a Announcement) Call {
	c := call(forceRelease, 1, 6+len(owners))
	c.add(key)
	c.addOwners(owners)
	a.addTo(&c)
	return c
}

// ForceReleaseFair is ForceRelease for a fair lock; see fair_force_release.lua. ReadTaken reads its
// reply.
func ForceReleaseFair(f *Fair, owners []string) Call {
	c := f.call(fairForceRelease, 2+len(owners))
	c.addOwners(owners)
	return c
}

// addOwners adds the holders to take a lock from, and how to tell them.
func (c *Call) addOwners(owners []string) {
	c.add(len(owners))
	for _, owner := range owners {
		c.add(owner)
	}
	c.add(clientChannels)
}

// clientChannels is the prefix of the channels of all clients.
var clientChannels = wire.ClientChannel("")

// A Renewable is a hold to renew.
type Renewable struct {
	Key   string
	Field string
	// Timeouts are the keys of its read levels. The script restores missing ones.
	Timeouts []string
	// Permits is how many permits it has, if Key is their sorted set; else 0.
	Permits int
	// Family is the key of a Family whose guest the hold is; then Field is Family.Field. "": it is none.
	Family string
	// Lease is 0 if Renew's holds.
	Lease time.Duration
	// Seen is the Expiry of an earlier Renewal. If the hash still expires then, its TTL is shortened
	// to the lease. 0: it is not.
	Seen int64
}

// usual reports whether the arguments that all holds share are enough for h.
func (h Renewable) usual(lease time.Duration) bool {
	return len(h.Timeouts) == 0 && h.Permits == 0 && (h.Lease == 0 || h.Lease == lease) && h.Seen == 0
}

// Renew renews many holds; see renew.lua. ReadRenew reads its reply.
func Renew(holds []Renewable, lease time.Duration) Call {
	further, special := 0, 0
	for _, h := range holds {
		further += len(h.Timeouts)
		if h.Family != "" {
			further++
		}
		if !h.usual(lease) {
			special++
		}
	}
	c := call(renew, len(holds)+further, 2+len(holds)+4*special)
	for _, h := range holds {
		c.add(h.Key)
	}
	for _, h := range holds {
		for _, key := range h.Timeouts {
			c.add(key)
		}
		if h.Family != "" {
			c.add(h.Family)
		}
	}
	c.add(lease.Milliseconds(), len(holds))
	for _, h := range holds {
		c.add(h.Field)
	}
	for i, h := range holds {
		if !h.usual(lease) {
			c.add(i+1, len(h.Timeouts)-h.Permits, cmp.Or(h.Lease, lease).Milliseconds(), h.Seen)
		}
	}
	return c
}

// Inspect returns the state of a lock and the hold count of owner; see inspect.lua. ReadInspect
// reads its reply.
func Inspect(key, owner string) Call {
	c := call(inspect, 1, 2)
	c.add(key, owner)
	return c
}

// An Answer is the reply to an acquire or a hand-over.
type Answer struct {
	Granted bool
	// Token is drawn for a fenced handle that is granted the lock.
	Token uint64
	// If refused: the TTL of the holder's key. -1ms: it never expires, or only in centuries.
	TTL time.Duration
	// Free is how many permits are free after a grant of some.
	Free int
	// Now is the server's clock in ms, if a fair lock is refused.
	Now int64
	// Freed is true if a fair lock or permits were freed instead of handed over.
	Freed bool
	// Renews is true if a Once was granted beside a stale record.
	Renews bool
	// Bound is true if the name of a Once is bound to something else, so it is refused.
	Bound bool
	// TooFew is true if a semaphore has fewer permits than the call wants, taken ones included.
	TooFew bool
	// Place is the owner's place in the queue of a fair lock that refused it, from 1. It is exact
	// among the first 100. 0: the owner is not in the queue.
	Place int
}

// ReadAcquire reads the reply of an acquire script.
func (c Call) ReadAcquire(reply any) (Answer, error) {
	if token, ok := readToken(reply); ok && c.Script.has(fenced) {
		return Answer{Granted: true, Token: token}, nil
	}
	switch r := reply.(type) {
	case int64:
		switch {
		case r >= 1 && c.Script.has(counted):
			return Answer{Granted: true, Free: int(r - 1)}, nil
		case r == 1 && !c.Script.has(fenced):
			return Answer{Granted: true}, nil
		case r == 2 && c.Script == onceAcquire:
			return Answer{Granted: true, Renews: true}, nil
		}
	case []any:
		if c.Script == fairAcquire || c.Script == fencedFairAcquire {
			if answer, ok := readQueued(r); ok {
				return answer, nil
			}
		} else if n, ok := integers(r); ok && len(n) == 1 {
			return Answer{TTL: timeToLive(n[0])}, nil
		} else if ok && len(n) == 2 && c.ofOnce() {
			return Answer{TTL: timeToLive(n[0]), Bound: n[1] == 1}, nil
		} else if ok && len(n) == 2 && c.Script == permitAcquire {
			return Answer{TTL: timeToLive(n[0]), TooFew: n[1] == 1}, nil
		}
	}
	return Answer{}, unexpected(c.Script, reply)
}

// ReadPass reads the reply of a hand-over script. If the answer is neither Granted nor Freed, the
// old hold was gone.
func (c Call) ReadPass(reply any) (Answer, error) {
	if token, ok := readToken(reply); ok && c.Script.has(fenced) {
		return Answer{Granted: true, Token: token}, nil
	}
	n, ok := reply.(int64)
	switch {
	case ok && n == 0:
		return Answer{}, nil
	case ok && n == 1 && !c.Script.has(fenced):
		return Answer{Granted: true}, nil
	case ok && n == -1 && c.Script.has(queued|counted):
		return Answer{Freed: true}, nil
	}
	return Answer{}, unexpected(c.Script, reply)
}

// exact is the first number that Lua may round; see fenced_draw.lua.
const exact = 1 << 53

// readToken reads a fencing token.
func readToken(reply any) (token uint64, ok bool) {
	switch r := reply.(type) {
	case int64:
		return uint64(r), 0 < r && r < exact
	case string:
		token, err := strconv.ParseUint(r, 10, 63)
		return token, err == nil && token >= exact
	}
	return 0, false
}

// readQueued reads a refusal of a fair lock.
func readQueued(list []any) (a Answer, ok bool) {
	if len(list) != 3 {
		return a, false
	}
	now, ok := list[1].(string)
	n, integer := integers([]any{list[0], list[2]})
	if !ok || !integer || n[1] < 0 {
		return a, false
	}
	var err error
	a.TTL, a.Place = timeToLive(n[0]), int(n[1])
	a.Now, err = strconv.ParseInt(now, 10, 64)
	return a, err == nil
}

func integers(list []any) ([]int64, bool) {
	n := make([]int64, len(list))
	for i, item := range list {
		var ok bool
		if n[i], ok = item.(int64); !ok {
			return nil, false
		}
	}
	return n, true
}

// noEnd is the TTL in ms that Redis reports for a key that never expires.
const noEnd = -1

// timeToLive converts a TTL in ms. A Duration ends at 292 years. A longer TTL counts as none.
func timeToLive(ms int64) time.Duration {
	if ms > math.MaxInt64/int64(time.Millisecond) {
		ms = noEnd
	}
	return time.Duration(ms) * time.Millisecond
}

// ReadUpdate reads the reply of an update. It reports false if the hold was gone.
func (c Call) ReadUpdate(reply any) (updated bool, err error) {
	updated, _, err = c.ReadRelease(reply)
	return updated, err
}

// ReadRelease reads the reply of a release. It reports false if the hold was gone, and returns how
// many clients received the message, which only Release, UpdateReadWrite and ReleasePermits count.
func (c Call) ReadRelease(reply any) (freed bool, receivers int, err error) {
	n, ok := reply.(int64)
	switch {
	case !ok, n < 0, n > 1 && c.Script != release && c.Script != readWriteUpdate && c.Script != permitRelease && c.Script != permitLeave:
		return false, 0, unexpected(c.Script, reply)
	case n == 0:
		return false, 0, nil
	}
	return true, int(n - 1), nil
}

// ReadTaken reads the reply of a ForceRelease, ForceReleaseFair or ForceReleasePermits of n owners:
// which of them held the lock, and how many others hold it still.
func (c Call) ReadTaken(reply any, n int) (taken []bool, left int, err error) {
	list, ok := reply.([]any)
	if !ok || len(list) != n+1 {
		return nil, 0, unexpected(c.Script, reply)
	}
	counts, ok := integers(list)
	if !ok {
		return nil, 0, unexpected(c.Script, reply)
	}
	taken = make([]bool, n)
	for i, count := range counts[1:] {
		taken[i] = count == 1
	}
	return taken, int(counts[0]), nil
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

// Probe looks for a hold that does not exist, to see whether Redis answers.
func Probe(key string) Call { return Present(key, []string{"probe"}) }

// ReadPresent reads the reply of a Present call for n fields.
func ReadPresent(reply any, n int) ([]bool, error) {
	list, ok := reply.([]any)
	if !ok || len(list) != n {
		return nil, unexpected(present, reply)
	}
	counts, ok := integers(list)
	if !ok {
		return nil, unexpected(present, reply)
	}
	there := make([]bool, n)
	for i, count := range counts {
		there[i] = count == 1
	}
	return there, nil
}

// A State is the state of a lock.
type State struct {
	// Fields is how many the hash has. 0: there is no hash.
	Fields int
	// TTL is 0 if the lock is not held. -1ms: it never expires, or in centuries.
	TTL time.Duration
	// Count is the value of the inspected field.
	Count int
	// Mode is read or write, in a read/write lock.
	Mode string
}

// ReadInspect reads the reply of an Inspect call.
func ReadInspect(reply any) (s State, err error) {
	list, ok := reply.([]any)
	if !ok || len(list) != 4 {
		return s, unexpected(inspect, reply)
	}
	n, ok := integers(list[:3])
	mode, isText := list[3].(string)
	if !ok || !isText {
		return s, unexpected(inspect, reply)
	}
	s = State{Fields: int(n[0]), Count: int(n[2]), Mode: mode}
	if s.Fields > 0 {
		s.TTL = timeToLive(n[1])
	}
	return s, nil
}

// A Renewal is the result of a Renew call for one hold.
type Renewal struct {
	Renewed bool
	// Err is the error of this hold's keys. If it is nil and Renewed is false, the hold is gone.
	Err error

	// If the hash lives for much longer than the lease, and no other owner shares it: its TTL, and
	// when it expires, in ms of the server's clock. Otherwise 0.
	TTL    time.Duration
	Expiry int64
}

// ReadRenew reads the reply of a Renew call for n holds.
func ReadRenew(reply any, n int) ([]Renewal, error) {
	list, ok := reply.([]any)
	if !ok || len(list) != n+1 {
		return nil, unexpected(renew, reply)
	}
	now, ok := list[n].(int64)
	if !ok {
		return nil, unexpected(renew, reply)
	}
	results := make([]Renewal, n)
	for i, item := range list[:n] {
		switch r := item.(type) {
		case int64:
			if r < 0 || r > 1 && now == 0 {
				return nil, unexpected(renew, reply)
			}
			results[i].Renewed = r >= 1
			if r > 1 {
				results[i].TTL, results[i].Expiry = timeToLive(r), now+r
			}
		case string:
			results[i].Err = fmt.Errorf("renew: %w", replyError(Plain(r)))
		default:
			return nil, unexpected(renew, reply)
		}
	}
	return results, nil
}

// ErrUnexpected means that the script never gives such a reply.
var ErrUnexpected = errors.New("unexpected reply")

func unexpected(s *Script, reply any) error {
	return fmt.Errorf("script %s: %w %T %v", s.Name, ErrUnexpected, reply, reply)
}

// Acquires reports whether the call is an attempt to acquire.
func (c Call) Acquires() bool { return c.Script.has(acquires) }

// Granted reports whether the reply to an attempt to acquire grants the lock.
func (c Call) Granted(reply any) bool {
	answer, err := c.ReadAcquire(reply)
	return err == nil && answer.Granted
}
