package idempotency

import (
	"bytes"
	"crypto/cipher"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
)

// A Codec seals records before they go to Redis, and opens them afterwards: access to Redis is then
// not enough to read or forge them. AEAD is one.
//
// name is the name of the record's lock, the same for Seal and Open. Bind records to their names,
// or one record can replace another. A Codec is safe for concurrent use, and neither keeps nor
// changes its arguments.
//
// A record that cannot be opened gets 503 record-unreadable, and logged; the handler does
// not run. A result that cannot be sealed is not stored, which is logged and observed as
// ErrNotStored: with OutcomeRerun a repeat runs again, with OutcomeRefuse it gets 409
// outcome-unknown.
type Codec interface {
	Seal(record []byte, name string) (sealed []byte, err error)
	Open(sealed []byte, name string) (record []byte, err error)
}

// AEAD returns a Codec that seals records with current, and opens those of current and of earlier
// ones. To rotate keys, give all processes the new key as an earlier one, then make it current, and
// drop the old one when its last record has expired.
//
//	block, err := aes.NewCipher(key) // of 32 bytes, for AES-256
//	…
//	gcm, err := cipher.NewGCMWithRandomNonce(block)
//	…
//	codec := idempotency.AEAD(gcm)
//
// An AEAD with a nonce gets a random one for each record. With nonces of 12 bytes, such as those of
// GCM, a key is good for 2^32 records. The name of the record is additional data. AEAD panics if an
// argument is nil.
func AEAD(current cipher.AEAD, earlier ...cipher.AEAD) Codec {
	keys := slices.Concat([]cipher.AEAD{current}, earlier)
	if i := slices.Index(keys, nil); i >= 0 {
		panic(fmt.Sprintf("reqlock: idempotency: AEAD: argument %d of %d is nil; want a cipher.AEAD, such as the one that cipher.NewGCMWithRandomNonce returns", i+1, len(keys)))
	}
	return aeads(keys)
}

// aeads are the keys of a Codec, the current one first. A sealed record begins with the magic, then
// a nonce.
type aeads []cipher.AEAD

const sealedMagic = "RQLS\x01" // the last byte is the version

var (
	errNotSealed = errors.New("reqlock: idempotency: the record is not sealed; it may have been written before there was a Codec")
	errNoKey     = errors.New("reqlock: idempotency: no key opens the record; it was sealed with another key, or tampered with")
)

func (keys aeads) Seal(record []byte, name string) ([]byte, error) {
	key := keys[0]
	out := make([]byte, len(sealedMagic)+key.NonceSize(), len(sealedMagic)+key.NonceSize()+len(record)+key.Overhead())
	copy(out, sealedMagic)
	nonce := out[len(sealedMagic):]
	if _, err := rand.Read(nonce); err != nil { // never
		return nil, err
	}
	return key.Seal(out, nonce, record, []byte(sealedMagic+name)), nil
}

func (keys aeads) Open(sealed []byte, name string) ([]byte, error) {
	rest, ok := bytes.CutPrefix(sealed, []byte(sealedMagic))
	if !ok {
		return nil, errNotSealed
	}
	for _, key := range keys {
		if len(rest) < key.NonceSize() {
			continue
		}
		nonce, text := rest[:key.NonceSize()], rest[key.NonceSize():]
		if record, err := key.Open(nil, nonce, text, []byte(sealedMagic+name)); err == nil {
			return record, nil
		}
	}
	return nil, errNoKey
}
