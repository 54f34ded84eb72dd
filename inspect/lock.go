package inspect

import "strings"

// A Listing is the locks of a Redis. Its JSON is what the page has at locks.json, and Caddy at its
// admin endpoint.
type Listing struct {
	Locks []Lock `json:"locks"` // never nil
	// Truncated is true if there are more than 1000 locks, which is how many are listed.
	Truncated bool `json:"truncated"`
}

// A Lock is what Redis, and this process, know about one lock. Its JSON is what the page, the
// command and the admin endpoint of Caddy print. Durations are in milliseconds.
type Lock struct {
	Name string `json:"name"` // as in Redis, so after a NameMapper
	// Kind is "lock", "fair", "fenced", "read", "write" or "once". Redis does not store it, so it is
	// deduced from the keys that exist: a fair lock without waiters, and a Once without a marker,
	// look like a "lock". "fenced" is a lock with a counter of tokens, which may be a fair lock without
	// waiters. Fair and read/write locks keep their kind if they have a counter, and have a Token.
	Kind string `json:"kind"`
	TTL  int64  `json:"ttl_ms"` // 0: not held; -1: held forever, which no lock should be
	// Listeners is how many clients wait for the release message. -1: Redis does not permit this
	// user to count them.
	Listeners int64    `json:"listeners"`
	Holders   []Holder `json:"holders"`         // never nil; empty if the lock is not held
	Queue     []Waiter `json:"queue,omitempty"` // of a fair lock, first in line first
	Token     uint64   `json:"token,omitempty"` // the last fencing token drawn
	Record    *Record  `json:"record,omitempty"`

	// MoreHolders and MoreQueue count the holders and waiters that were left out because there are
	// too many. The first is an estimate: it includes readers whose time is over.
	MoreHolders int64 `json:"more_holders,omitempty"`
	MoreQueue   int64 `json:"more_queue,omitempty"`
}

// Held reports whether any owner holds the lock.
func (l *Lock) Held() bool { return len(l.Holders) > 0 }

// A Holder is one owner that holds a lock.
type Holder struct {
	Owner  string `json:"owner"`            // the field in Redis; of a writer, it ends with ":write"
	Client string `json:"client"`           // the part of Owner that names the process
	Count  int64  `json:"count"`            // how often the owner has entered the lock
	TTL    int64  `json:"ttl_ms,omitempty"` // of a reader, which has a TTL of its own
	// Expired is true for a reader whose TTL is over. It holds the lock no longer, but its field
	// keeps writers out until the other readers have left.
	Expired bool `json:"expired,omitempty"`

	// What only the holder's process knows. Empty for the holds of others.
	Held      int64  `json:"held_ms,omitempty"`
	Route     string `json:"route,omitempty"`
	RequestID string `json:"request_id,omitempty"`
	TraceID   string `json:"trace_id,omitempty"`
}

// Writes reports whether the holder is the writer of a read/write lock.
func (h *Holder) Writes() bool { return strings.HasSuffix(h.Owner, ":write") }

// A Waiter is one place in the queue of a fair lock.
type Waiter struct {
	Owner    string `json:"owner"`
	Client   string `json:"client"`
	Place    int    `json:"place"`       // from 1
	Deadline int64  `json:"deadline_ms"` // until the place expires, unless it is prolonged
	// Absent is true if no client listens on the waiter's channel. The waiter may be dead.
	Absent bool `json:"absent,omitempty"`
}

// A Record is what a Once has stored at its release, or the marker that it stores while the lock is
// held.
type Record struct {
	Size int64 `json:"size"` // bytes
	Age  int64 `json:"age_ms,omitempty"`
	TTL  int64 `json:"ttl_ms"` // until it expires
	// Marker is true if a holder stored the record when it acquired the lock. If the lock is not
	// held, that holder has died or lost the lock.
	Marker bool `json:"marker,omitempty"`
}
