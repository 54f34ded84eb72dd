package idempotency

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"net/http"
	"strconv"
)

// name identifies a run by its scope, method, route and key.
func (c *Config) name(r *http.Request, scope, key string) string {
	route := c.Route
	if route == "" {
		route = routeOf(r)
	}
	s := newSum("name")
	s.add(scope, r.Method, route, key)
	return s.hex()
}

// lockName is the name of the lock and the record in Redis.
func lockName(name string) string { return "reqlock:idempotency:" + name }

// scopeName is the name of the quota of a scope in Redis.
func scopeName(scope string) string {
	s := newSum("scope")
	s.add(scope)
	return "reqlock:idempotency:" + s.hex()
}

// A sum is a SHA-256 of parts. The length precedes each part, so different parts have different
// sums.
type sum struct {
	// parts are in room as long as they fit.
	parts []byte
	room  [512]byte
}

func newSum(purpose string) *sum {
	s := new(sum)
	s.parts = s.room[:0]
	s.add(purpose)
	return s
}

func (s *sum) add(parts ...string) {
	for _, part := range parts {
		s.parts = append(binary.BigEndian.AppendUint64(s.parts, uint64(len(part))), part...)
	}
}

// addValues adds the values of one header.
func (s *sum) addValues(values []string) {
	s.add(strconv.Itoa(len(values)))
	s.add(values...)
}

// maxPart is the longest part, in bytes; a longer one is replaced by its hash.
const maxPart = 4096

func (s *sum) addBytes(part []byte) {
	s.parts = binary.BigEndian.AppendUint64(s.parts, uint64(len(part)))
	if len(part) > maxPart {
		hash := sha256.Sum256(part)
		part = hash[:]
	}
	s.parts = append(s.parts, part...)
}

func (s *sum) sum() [sha256.Size]byte { return sha256.Sum256(s.parts) }

func (s *sum) hex() string {
	sum := s.sum()
	return hex.EncodeToString(sum[:])
}
