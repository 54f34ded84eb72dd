package delegation

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"time"
)

const (
	// Header is the header that carries tokens. Several in one header are separated by ", ".
	Header = "Reqlock-Delegation"
	// MaxToken is the longest that a token may be, in bytes.
	MaxToken = 512
	// Skew is how much longer than its hold a token is good, because clocks differ. Redis decides
	// whether the hold is still there.
	Skew = 5 * time.Second
)

const (
	prefix         = "v1."
	mostSecrets    = 8
	shortestSecret = 32
)

// Keys is a ring of secrets. The first one signs, and all of them verify. Printing or logging Keys
// shows only how many there are. Keys is safe for concurrent use. Nil and zero Keys refuse
// everything.
//
// To replace a secret without refusing a token: put the new one last in all programs, then first in
// all, and leave out the old one when all have that and the last lease from before is over.
type Keys struct {
	// sign has a function for each secret, so that no printer that follows fields finds bytes of
	// one.
	sign []func(text string) []byte
}

// NewKeys returns a ring of 1 to 8 secrets of at least 32 bytes each, all different. It copies
// them. They should be random, such as by crypto/rand, and only those services should have them
// that trust each other to say who holds a lock: who can verify a token can sign one.
func NewKeys(secrets ...[]byte) (*Keys, error) {
	if len(secrets) < 1 || len(secrets) > mostSecrets {
		return nil, fmt.Errorf("reqlock: delegation: NewKeys: got %d secrets, want 1 to %d", len(secrets), mostSecrets)
	}
	k := &Keys{}
	seen := make(map[string]int)
	for i, secret := range secrets {
		if len(secret) < shortestSecret {
			return nil, fmt.Errorf("reqlock: delegation: NewKeys: secret %d has %d bytes, want at least %d", i+1, len(secret), shortestSecret)
		}
		own := string(secret)
		if first := seen[own]; first != 0 {
			return nil, fmt.Errorf("reqlock: delegation: NewKeys: secrets %d and %d are the same", first, i+1)
		}
		seen[own] = i + 1
		k.sign = append(k.sign, func(text string) []byte {
			mac := hmac.New(sha256.New, []byte(own))
			mac.Write([]byte(text))
			return mac.Sum(nil)
		})
	}
	return k, nil
}

// String says how many secrets there are, and nothing else of them.
func (k Keys) String() string { return fmt.Sprintf("delegation.Keys(%d)", len(k.sign)) }

// encoding refuses texts that decode to the same bytes as another one.
var encoding = base64.RawURLEncoding.Strict()

// Sign returns a token for g, signed with the first secret. Two tokens for one Grant differ. The
// error names the field of g that no token can have.
func (k *Keys) Sign(g Grant) (string, error) {
	if k == nil || len(k.sign) == 0 {
		return "", errors.New("reqlock: delegation: Sign: there is no secret; make Keys with NewKeys")
	}
	if err := g.check(); err != nil {
		return "", err
	}
	return k.seal(g.payload()), nil
}

func (k *Keys) seal(payload []byte) string {
	signed := prefix + encoding.EncodeToString(payload)
	return signed + "." + encoding.EncodeToString(k.sign[0](signed))
}

// Verify returns what a token says, if one of the secrets has signed it, it is for the audience,
// and it has not expired. Otherwise the error is ErrMalformed, ErrSignature, ErrAudience or
// ErrExpired, the first of them that holds. A token expires Skew after Grant.Expires.
//
// That the parent still holds its lock is not in the token: Redis knows.
func (k *Keys) Verify(token, audience string, now time.Time) (Grant, error) {
	payload, err := k.open(token)
	if err != nil {
		return Grant{}, err
	}
	g, ok := parse(payload)
	switch {
	case !ok:
		return Grant{}, ErrMalformed
	case g.Audience != audience:
		return Grant{}, ErrAudience
	case !now.Before(g.Expires.Add(Skew)):
		return Grant{}, ErrExpired
	}
	return g, nil
}

// open returns the payload of a token that one of the secrets has signed.
func (k *Keys) open(token string) ([]byte, error) {
	if len(token) > MaxToken {
		return nil, ErrMalformed
	}
	rest, ok := strings.CutPrefix(token, prefix)
	if !ok {
		return nil, ErrMalformed
	}
	text, signature, ok := strings.Cut(rest, ".")
	// The decoder would skip line breaks.
	if !ok || len(signature) != encoding.EncodedLen(sha256.Size) || strings.ContainsAny(rest, "\r\n") {
		return nil, ErrMalformed
	}
	payload, err := encoding.DecodeString(text)
	if err != nil {
		return nil, ErrMalformed
	}
	mac, err := encoding.DecodeString(signature)
	if err != nil {
		return nil, ErrMalformed
	}
	if !k.signed(prefix+text, mac) {
		return nil, ErrSignature
	}
	return payload, nil
}

// signed tries all secrets, so that the time it takes does not say which one has signed.
func (k *Keys) signed(text string, mac []byte) bool {
	if k == nil {
		return false
	}
	found := false
	for _, sign := range k.sign {
		if hmac.Equal(sign(text), mac) {
			found = true
		}
	}
	return found
}
