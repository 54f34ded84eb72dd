package inspect

import (
	"cmp"
	"strconv"
	"strings"
)

// A Listing is the locks of a Redis. Its JSON is what the page has at locks.json, Caddy at its admin
// endpoint, and reqlock ls --json prints.
type Listing struct {
	Locks []Lock `json:"locks"` // never nil
	// Truncated is true if there are more locks than are listed: 1000, or --limit of reqlock ls.
	Truncated bool `json:"truncated"`
}

// A Lock is what Redis, and this process, know about one lock or semaphore. Its JSON is what the
// page, the command and the admin endpoint of Caddy print. Durations are in milliseconds.
type Lock struct {
	// Name is the name in Redis, so after a NameMapper.
	Name string `json:"name"`
	// Kind is one of core.Kinds. Redis does not store it, so it is deduced from the keys that exist:
	// a fair lock without waiters, and a Once without a marker, look like a "lock". "fenced" is a lock
	// with a counter of tokens, which may be a fair lock without waiters. Fair and read/write locks
	// keep their kind if they have a counter, and have a Token.
	Kind string `json:"kind"`
	// TTL is 0 if the lock is not held. -1: it is held forever, which no lock should be. Of a
	// semaphore it is the longest TTL of a holder.
	TTL int64 `json:"ttl_ms"`
	// Listeners is how many clients wait for the release message. -1: Redis does not permit this
	// user to count them.
	Listeners int64 `json:"listeners"`
	// Holders is never nil. It is empty if the lock is not held.
	Holders []Holder `json:"holders"`
	// Queue has the waiters for a fair lock, first in line first.
	Queue []Waiter `json:"queue,omitempty"`
	// Stalled is true for a fair lock that is free while the first in its queue does not take it: its
	// process is suspended or stalled, or has gone, if Queue[0] is absent.
	Stalled bool `json:"stalled,omitempty"`
	// Token is the last fencing token drawn.
	Token  uint64  `json:"token,omitempty"`
	Record *Record `json:"record,omitempty"`
	// Semaphore is nil for a lock. Its fields stand beside the others in the JSON.
	*Semaphore

	// MoreHolders and MoreQueue count the holders and waiters that were left out because there are
	// too many. The first is an estimate: it includes readers whose time is over, and of a semaphore
	// it counts permits.
	MoreHolders int64 `json:"more_holders,omitempty"`
	MoreQueue   int64 `json:"more_queue,omitempty"`
}

// Held reports whether any owner holds the lock.
func (l *Lock) Held() bool { return len(l.Holders) > 0 }

// A Holder is one owner that holds a lock.
type Holder struct {
	// Owner is the field in Redis. It ends with ":write" for a writer. Redisson's ID of a permit is
	// shown in hex digits.
	Owner string `json:"owner"`
	// Client is the part of Owner that names the process. It is empty if Redisson has the permit: its
	// ID does not tell.
	Client string `json:"client"`
	// Count is how often the owner has entered the lock, or how many permits of a semaphore it has.
	Count int64 `json:"count"`
	// TTL is the time left for a reader, and for an owner of permits, where -1 is forever. Other
	// holders have the TTL of the lock.
	TTL int64 `json:"ttl_ms,omitempty"`
	// Expired is true for a reader whose TTL is over. It holds the lock no longer, but its field
	// keeps writers out until the other readers have left.
	Expired bool `json:"expired,omitempty"`

	// What only the holder's process knows. Empty for the holds of others.
	Held      int64  `json:"held_ms,omitempty"`
	Route     string `json:"route,omitempty"`
	RequestID string `json:"request_id,omitempty"`
	TraceID   string `json:"trace_id,omitempty"`
	Host      string `json:"host,omitempty"` // owner of the hold that it entered as a guest

	// lease is how long the TTL is after a renewal, as far as the page knows.
	lease int64
}

// compare orders holders by client, then by the number of the owner, which grows: 9 is before 10.
func (h Holder) compare(other Holder) int {
	number := func(h Holder) int64 {
		digits, _, _ := strings.Cut(strings.TrimPrefix(h.Owner, h.Client+":"), ":")
		n, _ := strconv.ParseInt(digits, 10, 64) // 0: it has no number
		return n
	}
	return cmp.Or(strings.Compare(h.Client, other.Client), cmp.Compare(number(h), number(other)), strings.Compare(h.Owner, other.Owner))
}

// Writes reports whether the holder is the writer of a read/write lock.
func (h *Holder) Writes() bool { return strings.HasSuffix(h.Owner, ":write") }

// A Waiter is one place in the queue of a fair lock.
type Waiter struct {
	Owner  string `json:"owner"`
	Client string `json:"client"`
	// Place counts from 1.
	Place int `json:"place"`
	// Deadline is how long the place lasts, unless it is prolonged.
	Deadline int64 `json:"deadline_ms"`
	// Absent is true if no client listens on the waiter's channel. The waiter may be dead.
	Absent bool `json:"absent,omitempty"`
}

// A Record is what a Once has stored at its release, or the marker that it stores while the lock is
// held.
type Record struct {
	// Size is in bytes.
	Size int64 `json:"size"`
	Age  int64 `json:"age_ms,omitempty"`
	// TTL is how long the record lasts.
	TTL int64 `json:"ttl_ms"`
	// Marker is true if a holder stored the record when it acquired the lock. If the lock is not
	// held, that holder has died or lost the lock.
	Marker bool `json:"marker,omitempty"`
}
