package guest

import (
	"math"
	"time"
)

// A Lock receives the decision: at least one key, unless Skip, Deny or Refuse is called. Values
// that are not set are those of the host's Config. A refusal beats Skip, and Skip beats keys.
type Lock struct{}

// A Mode is a kind of lock.
type Mode int32

// The modes, with their numbers in the ABI.
const (
	ModeExclusive Mode = 0 // ModeExclusive runs one request at a time.
	ModeFair      Mode = 1 // ModeFair does so, too, first come, first served.
	ModeFenced    Mode = 2 // ModeFenced is ModeExclusive with a fencing token.
	ModeRead      Mode = 3 // ModeRead shares the lock with other readers.
	ModeWrite     Mode = 4 // ModeWrite excludes readers and writers.
	ModeReadWrite Mode = 5 // ModeReadWrite is ModeRead for GET and HEAD, and ModeWrite for the rest.
)

// AddKey adds a key of 1 to 4096 bytes of valid UTF-8. A request with several keys gets all of
// their locks or none.
func (Lock) AddKey(key string) { lock.keys = append(lock.keys, key) }

// SetWait sets how long the request waits for a held lock, up to the host's Config.MaxWait. 0 means
// 409 at once.
func (Lock) SetWait(d time.Duration) { lock.waitMS = milliseconds(d) }

// SetLease sets how long the lock is held at most, up to the host's Config.MaxLease. 0 means until
// the handler returns.
func (Lock) SetLease(d time.Duration) { lock.leaseMS = milliseconds(d) }

// SetMode sets the kind of lock.
func (Lock) SetMode(mode Mode) { lock.mode = int32(mode) }

// SetFenced gives the holder of the lock a fencing token. It goes with every mode, but readers get
// none, and needs a single key.
func (Lock) SetFenced() { lock.fenced = true }

// SetLimit lets up to that many requests with the same key in at a time, at least 2, in place of one
// under a lock. Beyond it they get 429. It does not go with a mode or a fencing token: the host answers
// 500 then. 0: a lock.
func (Lock) SetLimit(n int) { lock.limit, lock.limited = int32(min(max(n, -1), math.MaxInt32)), true }

// Skip lets the handler run without a lock.
func (Lock) Skip() { lock.skip = true }

// Deny answers the client with a status from 400 to 599 and up to 256 bytes of text. The handler
// does not run.
func (Lock) Deny(status int, text string) { lock.refuse(Refusal{Status: status, Detail: text}) }

// Refuse is Deny with more to say.
func (Lock) Refuse(r Refusal) { lock.refuse(r) }

// Field adds a name and a value to the host's log and metrics events about this request: up to 16,
// each up to 255 bytes. The name must not contain "=".
func (Lock) Field(name, value string) { lock.fields = append(lock.fields, name+"="+value) }

// A Refusal is what the client gets in place of the handler's answer.
type Refusal struct {
	// Status is from 400 to 599.
	Status int
	// Title has up to 80 bytes. If it is empty, the title is "Request refused".
	Title string
	// Detail has up to 256 bytes.
	Detail string
	// Problem is the end of the problem's type: 1 to 64 of a-z, 0-9 and "-". It may be empty.
	Problem string
	// Reason is the header Reqlock-Reason, with up to 128 characters of ASCII. If it is empty,
	// there is none.
	Reason string
	// RetryAfter is up to a day, rounded up to seconds. 0: there is none.
	RetryAfter time.Duration
}

// milliseconds rounds up, because 0 has another meaning. The host refuses a negative number below
// -1, which stands for the guard's time.
func milliseconds(d time.Duration) int64 {
	if d < 0 {
		return -2
	}
	return roundUp(d, time.Millisecond)
}

func roundUp(d, unit time.Duration) int64 {
	n := int64(d / unit)
	if d > time.Duration(n)*unit {
		n++
	}
	return n
}
