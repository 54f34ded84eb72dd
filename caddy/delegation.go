package caddylock

import (
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/reqlock/reqlock/delegation"
)

// Delegation says who this Caddy is to services that delegate their locks, and has the secrets that
// they share.
type Delegation struct {
	// The audience of tokens for this Caddy: 1 to 64 bytes of visible ASCII without ','. All
	// instances with the same sites have one name. It may contain placeholders.
	Name string `json:"name"`
	// The secrets, 1 to 8, each of 32 bytes or more. The first one signs, and all verify. A secret
	// is text, or base64 behind `base64:`. It may contain placeholders, such as
	// `{env.DELEGATION_KEY}` or `{file./run/secrets/delegation}`.
	Keys []string `json:"keys"`
}

// resolve returns a copy without placeholders. No error shows a secret.
func (d *Delegation) resolve(placeholders *caddy.Replacer) (*Delegation, error) {
	if d == nil {
		return nil, nil
	}
	name, err := placeholders.ReplaceOrErr(d.Name, true, true)
	if err != nil {
		return nil, fmt.Errorf("reqlock: caddy: delegation: the name: %w", err)
	}
	r := &Delegation{Name: name, Keys: slices.Clone(d.Keys)}
	for i, key := range r.Keys {
		if r.Keys[i], err = placeholders.ReplaceOrErr(key, true, true); err != nil {
			if key[0] != '{' || strings.IndexByte(key, '}') != len(key)-1 { // The error would show a part of the secret.
				err = errors.New(`a placeholder in it has no value (not shown, it may be a secret); write \{ for a brace`)
			}
			return nil, fmt.Errorf("reqlock: caddy: delegation: key %d: %w", i+1, err)
		}
	}
	return r, nil
}

// service returns the keys with the name. No error shows a secret. nil: delegation is off.
func (d *Delegation) service() (s delegation.Service, err error) {
	switch {
	case d == nil:
		return s, nil
	case len(d.Keys) == 0:
		return s, errors.New("delegation has no key; add a line such as key {env.DELEGATION_KEY}")
	}
	secrets := make([][]byte, len(d.Keys))
	for i, key := range d.Keys {
		secrets[i] = []byte(key)
		if text, ok := strings.CutPrefix(key, "base64:"); ok {
			text = strings.NewReplacer("-", "+", "_", "/").Replace(strings.TrimRight(text, "="))
			if secrets[i], err = base64.RawStdEncoding.DecodeString(text); err != nil {
				return s, fmt.Errorf("delegation: key %d has no base64 behind base64: (not shown, it is a secret)", i+1)
			}
		}
	}
	if s.Keys, err = delegation.NewKeys(secrets...); err != nil {
		return delegation.Service{}, err
	}
	s.Name = d.Name
	return s, s.Check()
}

// check reports what can never work. What has placeholders is checked when they have values.
func (d *Delegation) check() error {
	if d != nil && (hasPlaceholder(d.Name) || slices.ContainsFunc(d.Keys, hasPlaceholder)) {
		return nil
	}
	_, err := d.service()
	return err
}
