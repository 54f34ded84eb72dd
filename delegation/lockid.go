package delegation

import (
	"crypto/sha256"
	"encoding/hex"
)

// LockID stands for the key of a lock in Redis. Tokens and logs have it in place of the key, which
// may have personal data in it.
type LockID [16]byte

// LockIDOf returns the ID of a lock's key: the first 16 bytes of its SHA-256.
func LockIDOf(key string) LockID {
	sum := sha256.Sum256([]byte(key))
	return LockID(sum[:])
}

// String returns the ID as 32 hexadecimal digits in lower case.
func (id LockID) String() string { return hex.EncodeToString(id[:]) }
