package idempotency

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"net/http"
	"net/url"
	"strings"
)

// name identifies what may run once: the key of somebody, on a route. The route is its pattern or else its path, and where
// it is mounted. The same key of another user, route or method is another name.
func name(r *http.Request, scope, key string) string {
	route := r.Pattern
	if route == "" {
		route = r.URL.Path
	}
	s := newSum("name")
	s.add(scope, r.Method, mount(r), route, key)
	return s.hex()
}

// lockName is the name of the lock and the record in Redis.
func lockName(name string) string { return "reqlock:idempotency:" + name }

// mount is what http.StripPrefix has taken away from the path, so that two routers with equal patterns can be mounted.
func mount(r *http.Request) string {
	if rest, ok := strings.CutPrefix(r.RequestURI, r.URL.Path); ok && (rest == "" || rest[0] == '?') {
		return "" // as most requests are
	}
	asked, err := url.ParseRequestURI(r.RequestURI)
	if err != nil {
		return "" // a request that did not come from a client
	}
	prefix, isPrefix := strings.CutSuffix(asked.Path, r.URL.Path)
	if !isPrefix {
		return "" // rewritten: then the path is what somebody wants it to be
	}
	return prefix
}

// A sum is a SHA-256 of parts. Each is preceded by its length: other parts are another sum.
type sum struct{ parts []byte }

func newSum(purpose string) *sum {
	s := &sum{make([]byte, 0, 512)}
	s.add(purpose)
	return s
}

func (s *sum) add(parts ...string) {
	for _, part := range parts {
		s.parts = append(binary.BigEndian.AppendUint64(s.parts, uint64(len(part))), part...)
	}
}

// maxPart is the length beyond which the hash of a part stands for it.
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
