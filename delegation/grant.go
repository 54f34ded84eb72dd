package delegation

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

// Grant is what a token says of one hold of a lock, the parent of those that enter with the token.
type Grant struct {
	// Lock is the ID of the lock's key in Redis.
	Lock LockID
	// Kind is the kind of the parent's hold: "lock", "fair", "fenced", "read", "write" or
	// "semaphore".
	Kind string
	// Owner is the wire owner of the parent, as in the lock's hash: 1 to 128 bytes of visible
	// ASCII. That of a semaphore has no '/'.
	Owner string
	// Permits is how many permits of a semaphore the parent uses. 0: Kind is not "semaphore".
	Permits int
	// Permit is the wire owner that took the permits, if the parent is a guest itself. With Owner it has
	// at most 127 bytes. "": Owner took them.
	Permit string
	// Fence is the parent's fencing token. 0: it has none.
	Fence uint64
	// Expires is when the parent's lease ends at the latest, after 1970. Tokens have whole
	// milliseconds: Sign leaves out what is beyond.
	Expires time.Time
	// Audience is the service that may use the token: 1 to 64 bytes of visible ASCII without ','.
	Audience string
}

// kinds has the kinds of holds. The place of a kind is its number in the payload, from 1.
var kinds = []string{"lock", "fair", "fenced", "read", "write", semaphore}

const semaphore = "semaphore"

// Places and bounds in the payload. The table is in doc.go.
const (
	lockAt     = 8
	fenceAt    = 24
	expiresAt  = 32
	kindAt     = 40
	ownerLenAt = 41
	audLenAt   = 42
	ownerAt    = 43

	longestOwner    = 128
	longestAudience = 64
)

// check says why no token can have the grant.
func (g Grant) check() error {
	owner := g.ownerText()
	switch {
	case !slices.Contains(kinds, g.Kind):
		return fmt.Errorf("reqlock: delegation: Grant.Kind %q: want one of %s", g.Kind, strings.Join(kinds, ", "))
	case len(owner) > longestOwner:
		return fmt.Errorf("reqlock: delegation: Grant.Owner, with Grant.Permit, has %d bytes, want at most %d", len(owner), longestOwner)
	case !visible(g.Owner) || !visible(owner):
		return errors.New("reqlock: delegation: Grant.Owner: want visible ASCII, at least one byte, as of Grant.Permit")
	case g.Expires.UnixMilli() <= 0:
		return errors.New("reqlock: delegation: Grant.Expires: want a time after 1970")
	}
	if reason := g.refusePermits(); reason != "" {
		return errors.New("reqlock: delegation: " + reason)
	}
	if reason := refuseAudience(g.Audience); reason != "" {
		return errors.New("reqlock: delegation: Grant.Audience " + reason)
	}
	return nil
}

// refusePermits returns why no parent has such permits, or an empty string.
func (g Grant) refusePermits() string {
	switch {
	case g.Kind != semaphore && (g.Permits != 0 || g.Permit != ""):
		return fmt.Sprintf("Grant.Permits %d and Grant.Permit %q: want none for the kind %q", g.Permits, g.Permit, g.Kind)
	case g.Kind != semaphore:
		return ""
	case g.Permits < 1 || g.Permits > math.MaxInt32:
		return fmt.Sprintf("Grant.Permits %d: want 1 to 2^31-1 for a semaphore", g.Permits)
	case g.Fence != 0:
		return fmt.Sprintf("Grant.Fence %d: want 0, because permits have no fencing tokens", g.Fence)
	case strings.Contains(g.Owner+g.Permit, "/"):
		return fmt.Sprintf("Grant.Owner %q and Grant.Permit %q: want no '/' for a semaphore", g.Owner, g.Permit)
	}
	return ""
}

// ownerText is the owner as the payload has it.
func (g Grant) ownerText() string {
	if g.Permit == "" {
		return g.Owner
	}
	return g.Permit + "/" + g.Owner
}

// refuseAudience returns why no token can be for an audience, or an empty string.
func refuseAudience(audience string) string {
	switch {
	case audience == "":
		return "is empty: want the name of a service"
	case len(audience) > longestAudience:
		return fmt.Sprintf("has %d bytes, want at most %d", len(audience), longestAudience)
	case !visible(audience) || strings.Contains(audience, ","):
		return fmt.Sprintf("%q: want visible ASCII without ','", audience)
	}
	return ""
}

// visible reports whether s is visible ASCII and not empty.
func visible(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r > '~' })
}

// payload returns the payload of a new token for a grant that check accepts.
func (g Grant) payload() []byte {
	owner := g.ownerText()
	b := make([]byte, ownerAt, ownerAt+len(owner)+len(g.Audience))
	_, _ = rand.Read(b[:lockAt]) // it never fails
	copy(b[lockAt:], g.Lock[:])
	binary.BigEndian.PutUint64(b[fenceAt:], g.Fence+uint64(g.Permits))
	binary.BigEndian.PutUint64(b[expiresAt:], uint64(g.Expires.UnixMilli()))
	b[kindAt] = byte(slices.Index(kinds, g.Kind) + 1)
	b[ownerLenAt], b[audLenAt] = byte(len(owner)), byte(len(g.Audience))
	return append(append(b, owner...), g.Audience...)
}

// parse returns the grant that a payload says.
func parse(b []byte) (g Grant, ok bool) {
	if len(b) < ownerAt {
		return Grant{}, false
	}
	kind, audienceAt := int(b[kindAt])-1, ownerAt+int(b[ownerLenAt])
	if kind < 0 || kind >= len(kinds) || len(b) != audienceAt+int(b[audLenAt]) {
		return Grant{}, false
	}
	g = Grant{
		Lock:     LockID(b[lockAt:fenceAt]),
		Kind:     kinds[kind],
		Owner:    string(b[ownerAt:audienceAt]),
		Fence:    binary.BigEndian.Uint64(b[fenceAt:]),
		Expires:  time.UnixMilli(int64(binary.BigEndian.Uint64(b[expiresAt:]))).UTC(),
		Audience: string(b[audienceAt:]),
	}
	if g.Kind == semaphore {
		if g.Fence > math.MaxInt32 {
			return Grant{}, false
		}
		g.Permits, g.Fence = int(g.Fence), 0
		if permit, owner, found := strings.Cut(g.Owner, "/"); found {
			g.Permit, g.Owner = permit, owner
		}
	}
	if g.check() != nil || string(b[ownerAt:audienceAt]) != g.ownerText() {
		return Grant{}, false
	}
	return g, true
}
