package core

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/reqlock/reqlock/core/internal/redisop"
	"github.com/reqlock/reqlock/core/internal/wire"
)

// How a lock was lost. Each cause matches ErrLockLost.
var (
	// errGone: Redis answered that it does not have the hold.
	errGone = fmt.Errorf("%w: Redis does not have it any more: freed by force, evicted, or gone with the data of Redis", ErrLockLost)
	// errGranted: Redis has granted the lock to another owner of this client.
	errGranted = fmt.Errorf("%w: Redis has granted it to another owner: freed by force, evicted, or gone with the data of Redis", ErrLockLost)
	// errOverwritten: another program has replaced the key. No later reply of Redis can be that the
	// lock is still held.
	errOverwritten = fmt.Errorf("%w: its key in Redis has another type now: %w", ErrLockLost, ErrWrongKind)
	// errForced: ForceUnlock freed the lock, and did not say who called it.
	errForced = fmt.Errorf("%w: freed by force", ErrLockLost)
	// errLeaseOver: the LeaseTime was shorter than the work.
	errLeaseOver = fmt.Errorf("%w: its LeaseTime was over", ErrLockLost)
	// errUnrenewed: no renewal failed in time to say why.
	errUnrenewed = fmt.Errorf("%w: it expired before a renewal succeeded", ErrLockLost)
)

// unrenewed returns the cause of a loss after a renewal that failed.
func unrenewed(renewal error) error {
	if renewal == nil {
		return errUnrenewed
	}
	return fmt.Errorf("%w; the last one failed: %s", errUnrenewed, bare(redisop.Explain(renewal)))
}

// expiredLocked returns the cause of the loss of a lease whose deadline has passed.
func (l *level) expiredLocked() error {
	if !l.watched {
		return errLeaseOver
	}
	return unrenewed(l.hold.err)
}

// A forcing says who frees a lock by force, and why. Its JSON travels between clients.
type forcing struct {
	Key    string `json:"key"`
	By     string `json:"by"`
	Reason string `json:"reason"`
}

type forcingKey struct{}

// WithReason returns a context for ForceUnlock and ForceUnlockOwners that says who frees a lock, and
// why. The holder's log has it, and the cause of its context, if its client can be told; see
// ForceUnlock. Each text is cut after 500 bytes.
func WithReason(ctx context.Context, by, reason string) context.Context {
	return context.WithValue(ctx, forcingKey{}, forcing{By: cutText(by), Reason: cutText(reason)})
}

// longestText bounds each text of a forcing, in bytes.
const longestText = 500

func cutText(s string) string { return strings.ToValidUTF8(s[:min(len(s), longestText)], "") }

// forcingOf returns what WithReason has put into ctx; zero: nothing.
func forcingOf(ctx context.Context) forcing {
	f, _ := ctx.Value(forcingKey{}).(forcing)
	return f
}

// cause returns the cause of the loss.
func (f forcing) cause() error {
	if f.By == "" && f.Reason == "" {
		return errForced
	}
	return fmt.Errorf("%w by %s: %s", errForced, f.By, f.Reason)
}

// forcingMark begins a message about a forcing. No other message begins with it: a lock's key of
// this form would have to contain the JSON.
const forcingMark = "\x00force "

// announceForcing tells the clients of the owners who takes the lock from them, and why. It comes
// before the message of the script, and is only for logs: an error changes nothing.
func (eng *engine) announceForcing(ctx context.Context, key string, fields []string) {
	f := forcingOf(ctx)
	if f == (forcing{}) {
		return
	}
	f.Key = key
	text, err := json.Marshal(f)
	if err != nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, eng.opts.CommandTimeout)
	defer cancel()
	told := make(map[string]bool)
	for _, field := range fields {
		if client, ok := ClientOf(field); ok && !told[client] {
			told[client] = true
			_ = eng.redis.Publish(ctx, wire.ClientChannel(client), forcingMark+string(text)).Err()
		}
	}
}

// readForcing reads a message of announceForcing. ok is false if the message is another one.
func readForcing(message string) (f forcing, ok bool) {
	text, ok := strings.CutPrefix(message, forcingMark)
	if !ok || json.Unmarshal([]byte(text), &f) != nil {
		return forcing{}, false
	}
	f.By, f.Reason = cutText(f.By), cutText(f.Reason)
	return f, true
}

// forcings are the latest that a client has heard of.
type forcings struct {
	list []heardForcing
}

type heardForcing struct {
	forcing
	at time.Time
}

// How many forcings a client remembers, and for how long: the message of the script follows at once.
const (
	mostForcings   = 100
	forcingsLinger = 10 * time.Second
)

func (f *forcings) add(heard forcing, now time.Time) {
	if len(f.list) == mostForcings {
		f.list = f.list[1:]
	}
	f.list = append(f.list, heardForcing{heard, now})
}

// cause returns why a key was freed by force, or without if the client has not heard of it.
func (f *forcings) cause(key string, now time.Time, without error) error {
	for i := len(f.list) - 1; i >= 0; i-- {
		if h := f.list[i]; h.Key == key && now.Sub(h.at) < forcingsLinger {
			return h.cause()
		}
	}
	return without
}

// lossText returns the cause for the log and for Losses, which say already that the lock was lost.
func lossText(cause error) string { return strings.TrimPrefix(bare(cause), "lock lost: ") }

// kindOfLoss returns the sentinel of a cause, by which lines of the log are counted.
func kindOfLoss(cause error) error {
	for _, known := range []error{errGone, errGranted, errOverwritten, errForced, errLeaseOver, errUnrenewed} {
		if errors.Is(cause, known) {
			return known
		}
	}
	return cause
}
