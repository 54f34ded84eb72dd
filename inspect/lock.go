package inspect

// A Lock is what Redis, and this process, know about one lock. Its JSON is what the page, the
// command and the admin endpoint of Caddy print. Durations are in milliseconds.
type Lock struct {
	Name      string   `json:"name"`
	Kind      string   `json:"kind"` // "lock", "fair", "fenced", "read", "write" or "once"
	TTL       int64    `json:"ttl_ms"`
	Listeners int64    `json:"listeners"` // clients that wait for the release message
	Holders   []Holder `json:"holders"`
	Queue     []Waiter `json:"queue,omitempty"`  // of a fair lock, first in line first
	Token     uint64   `json:"token,omitempty"`  // the last fencing token drawn
	Record    *Record  `json:"record,omitempty"` // what a Once left; no holders then
}

// A Holder is one owner that holds a lock.
type Holder struct {
	Owner  string `json:"owner"`            // the field in Redis
	Client string `json:"client"`           // the part of Owner that names the process
	Count  int64  `json:"count"`            // how often the owner has entered the lock
	TTL    int64  `json:"ttl_ms,omitempty"` // of a reader, which has a TTL of its own

	// What only the holder's process knows. Empty for the holds of others.
	Held      int64  `json:"held_ms,omitempty"`
	Route     string `json:"route,omitempty"`
	RequestID string `json:"request_id,omitempty"`
	TraceID   string `json:"trace_id,omitempty"`
}

// A Waiter is one place in the queue of a fair lock.
type Waiter struct {
	Owner    string `json:"owner"`
	Place    int    `json:"place"`       // from 1
	Deadline int64  `json:"deadline_ms"` // until the place expires, unless it is prolonged
}

// A Record is what a Once has left in place of its lock.
type Record struct {
	Size int64 `json:"size"` // bytes
	Age  int64 `json:"age_ms,omitempty"`
}
