// Package kinds describes the kinds of locks. The engine of core is the same for all of them: what
// differs is in a [Kind], which says how Redis stores a hold and which scripts change it. All
// functions are pure.
//
// A kind is one file here and its scripts in core/internal/lua. Whatever lists kinds asks [All].
package kinds

import (
	"slices"
	"time"

	"github.com/reqlock/reqlock/core/internal/claim"
	"github.com/reqlock/reqlock/core/internal/lua"
	"github.com/reqlock/reqlock/core/internal/wire"
)

// A Kind describes one kind of lock.
type Kind struct {
	// Name is for users. A fenced kind has the name of the kind without tokens, but for the plain
	// lock, whose fenced form is a kind in Redisson.
	Name string
	// Unfenced is the kind without tokens that a fenced kind extends. It is nil for a kind whose
	// holds have no tokens.
	Unfenced *Kind
	// Downgraded is the kind of a hold that has only shared levels left; nil: it keeps its kind.
	Downgraded *Kind
	// Rank orders locks of one name in a MultiLock, which acquires lower ranks first.
	Rank int
	// Shared says that it is the side of readers: any number of owners may hold the lock at once, all
	// waiters at the front try together, and only holds that are not shared keep them out.
	Shared bool
	// ReadWrite marks the two sides of a read/write lock. Both sides of an owner are one hold.
	ReadWrite bool
	// RedisQueue says that Redis keeps the queue, so that every waiter tries by itself.
	RedisQueue bool
	// Counted says that owners take permits, of which there is a number. Nothing is entered twice, and
	// a grant says nothing of other holds. Names of counted kinds are names of their own.
	Counted bool

	// Channel returns the channel that a waiter listens on. Only a kind with a queue in Redis has
	// one for each wire owner.
	Channel func(key, owner string) string
	Acquire func(s Settings, t Try) lua.Call
	// HandOver moves the lock to another wire owner; nil: the kind has no hand-over.
	HandOver func(s Settings, c Hold, to string, lease time.Duration) lua.Call
	Update   func(s Settings, c Hold, lease time.Duration) lua.Call
	Release  func(s Settings, c Hold) lua.Call
	// Unmark is a release that also removes marks of the grant; nil: the kind has none.
	Unmark func(s Settings, c Hold, r lua.Removal) lua.Call
	Renew  func(c Hold) lua.Renewable
	Force  func(s Settings, key string, fields []string) lua.Call

	// Field returns the field of a wire owner in the lock's hash.
	Field func(owner string) string
	// Held returns the fields of holds of this kind among all fields of the lock's hash.
	Held func(fields []string) []string
	// Locked reports whether any owner holds the lock as this kind.
	Locked func(lua.State) bool
	// Commands are those that its scripts run besides the commands of a plain lock.
	Commands []Commands

	// Holders asks for the owners, and Present for some of them.
	Holders func(key string) lua.Call
	Present func(key string, fields []string) lua.Call

	// Look and Record are those of a Once, and nil for other kinds.
	Look   func(t *Terms, key string) lua.Call
	Record func(s Settings, c Hold, r lua.Record) lua.Call
	// Terms are what a Once, a Semaphore or a guest demands. They are zero for other kinds.
	Terms
}

// Terms are what one handle demands of its name.
type Terms struct {
	OnceTerms
	PermitTerms
	GuestTerms
}

// Settings are what all locks of a client have in common on their way to Redis.
type Settings struct {
	Publish []string // the commands that announce a release
	Cluster bool
	// FairBudget is how long a waiter for a fair lock may be silent.
	FairBudget time.Duration
	// FairGrace is how long it may be absent, or leave the free lock alone.
	FairGrace time.Duration
	// FairAbsentPause is the least time between two checks of an absent waiter.
	FairAbsentPause time.Duration
	// CountsListeners says that the server knows all clients that listen on a channel.
	CountsListeners bool
	// Age is how old the client is, and with it what it declares of semaphores.
	Age time.Duration
}

// announce returns what a release publishes on a channel.
func (s Settings) announce(channel string) lua.Announcement {
	return lua.Announcement{Channel: channel, Message: wire.Unlocked, Commands: s.Publish}
}

// A Try is one attempt to acquire.
type Try struct {
	Terms     *Terms
	Key, Wire string
	Lease     time.Duration
	// NotAfter is the last moment to enter a queue in Redis, by the server's clock in ms. 0: do not
	// enter it.
	NotAfter int64
}

// A Hold is a hold as scripts need it: its names, and how often it is entered, in Redis or as it
// should be there. Without levels, Redis has no hold.
type Hold struct {
	Terms     *Terms // those of the kind
	Key, Wire string
	claim.Counts
	Deepest int32 // the highest number of shared levels that it has ever had
	// Invites says that the hold may have guests.
	Invites bool
	// Need is the TTL that the leases need, if one is shared; else 0. A stray may have shortened the
	// time-out keys of the shared levels, so each change of the levels sets them anew.
	Need time.Duration
}

// Reenters reports whether an owner that has a hold of another kind may enter it as this kind. The
// sides of a read/write lock have fields and scripts of their own, and only a fenced hold has a
// token. A hold of the read side has none either, but it refuses all writers, with ErrUpgrade.
func (k *Kind) Reenters(held *Kind) bool {
	return k.ReadWrite == held.ReadWrite && k.Counted == held.Counted && (!k.Fenced() || held.Fenced() || held.Shared)
}

// Succeeds reports whether a hold of another kind can be handed over to a waiter of this one.
func (k *Kind) Succeeds(held *Kind) bool {
	return k == held || k.Counted && held.Counted && k.Takes == held.Takes
}

// Fenced reports whether holds of the kind have fencing tokens.
func (k *Kind) Fenced() bool { return k.Unfenced != nil }

// WithTokens returns the kind that gives fencing tokens to holds of k; nil: there is none.
func (k *Kind) WithTokens() *Kind {
	for _, f := range All() {
		if f.Fenced() && (f == k || f.Unfenced == k) {
			return f
		}
	}
	return nil
}

// Class returns the class of its waiters.
func (k *Kind) Class() claim.Class {
	switch {
	case k.Shared:
		return claim.Shared
	case k.RedisQueue:
		return claim.RedisQueue
	case k.Counted:
		return claim.Counted
	}
	return claim.Exclusive
}

// Free returns the call that frees a hold and removes marks of its grant.
func (k *Kind) Free(s Settings, c Hold, r lua.Removal) lua.Call {
	switch {
	case k.Unmark != nil:
		return k.Unmark(s, c, r)
	case k.Record != nil && r.Pause > 0:
		return Marked(s, c, r)
	}
	return k.Release(s, c)
}

// Fits reports whether the lock's hash may be that of a lock of this kind, by its fields.
func (k *Kind) Fits(fields []string) bool {
	return len(fields) == 0 || k.ReadWrite == slices.Contains(fields, wire.ModeField)
}

// Whole adds the fields that owners lose together with theirs: a writer loses its read levels, too.
func (k *Kind) Whole(fields []string) []string {
	whole := slices.Clone(fields)
	if k.ReadWrite && !k.Shared {
		for _, f := range fields {
			whole = append(whole, wire.OwnerOf(f))
		}
	}
	return whole
}

// All returns all kinds. Those of one name follow each other.
func All() []*Kind {
	return []*Kind{Plain, Fair, FencedFair, Fenced, Read, Write, FencedWrite, &Once, &Semaphore}
}

// Names returns the names of all kinds.
func Names() []string {
	var names []string
	for _, k := range All() {
		names = append(names, k.Name)
	}
	return slices.Compact(names)
}

// Named returns the kind without tokens of a name, if there is one, or else the fenced kind; nil:
// no kind has the name.
func Named(name string) *Kind {
	for _, k := range All() {
		if k.Name == name {
			return k
		}
	}
	return nil
}

// Commands are the commands that scripts run for one feature, besides those of a plain lock. KEY is
// the lock, and the other words in capitals after the command are its further keys.
type Commands struct {
	For    string   // what needs them, for users
	Reads  []string // they change nothing
	Writes []string
}
