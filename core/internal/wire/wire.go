// Package wire builds the names that reqlock shares with other programs, Java Redisson above all: lock keys,
// pub/sub channels, owners, and the cluster slot of a key. Everything in it is a pure function; what it returns is
// seen by other processes and must not change.
package wire

import (
	"strconv"
	"strings"
)

// Slots is the number of hash slots of a Redis Cluster.
const Slots = 16384

// Messages that a release publishes.
const (
	// Unlocked wakes one waiter in each client. Redisson: LockPubSub.UNLOCK_MESSAGE.
	Unlocked = "0"
	// Unblocked wakes all waiters in each client: a writer has left, and readers may come in together. Redisson:
	// LockPubSub.READ_UNLOCK_MESSAGE.
	Unblocked = "1"
)

// LockChannel is the channel on which the release of a plain lock is announced.
func LockChannel(name string) string { return prefixed("redisson_lock__channel", name) }

// FairChannel is the channel on which a waiter for a fair lock is told that it is first; without an owner, what precedes that.
func FairChannel(name, owner string) string { return LockChannel(name) + ":" + owner }

// ReadWriteChannel is the channel on which releases of both sides of a read/write lock are announced.
func ReadWriteChannel(name string) string { return prefixed("redisson_rwlock", name) }

// FairQueue is the list of those who wait for a fair lock.
func FairQueue(name string) string { return prefixed("redisson_lock_queue", name) }

// FairDeadlines is the sorted set of the times at which those who wait for a fair lock are taken for dead.
func FairDeadlines(name string) string { return prefixed("redisson_lock_timeout", name) }

// TokenCounter is the counter of a lock's fencing tokens.
func TokenCounter(name string) string { return prefixed("redisson_lock_token", name) }

// ModeField is the field of a read/write lock's hash that says which side is held.
const ModeField = "mode"

const writeSuffix = ":write"

// WriteField is the field of an owner in the hash of a read/write lock, for its write side.
func WriteField(owner string) string { return owner + writeSuffix }

// IsWriteField reports whether a field of a read/write lock's hash is one of the write side.
func IsWriteField(field string) bool { return strings.HasSuffix(field, writeSuffix) }

// OwnerOf is the owner that has a field of the write side.
func OwnerOf(writeField string) string { return strings.TrimSuffix(writeField, writeSuffix) }

// ReadTimeout is the key whose time to live is the lease of an owner's n-th read level. Prefix and suffix are what
// stands before and after the owner, for keys of any owner: prefix + owner + suffix + n.
func ReadTimeout(name, owner string, n int) string {
	prefix, suffix := ReadTimeouts(name)
	return prefix + owner + suffix + strconv.Itoa(n)
}

// ReadTimeouts is what stands before and after the owner in ReadTimeout.
func ReadTimeouts(name string) (prefix, suffix string) {
	return suffixed(name, ""), ":rwlock_timeout:"
}

// RecordKey is the key of the record that a hold may leave under its name. Only reqlock has such records.
func RecordKey(name string) string { return suffixed(name, "record") }

// Owner is the field of a lock hash that stands for one hold of one client. Redisson puts a thread id where reqlock
// puts the number of the hold; nobody parses it.
func Owner(client string, hold uint64) string {
	b := make([]byte, 0, 64)
	b = append(append(b, client...), ':')
	return string(strconv.AppendUint(b, hold, 10))
}

// prefixed puts a prefix before a name so that both fall into one cluster slot. As in Redisson, a name with an opening
// brace anywhere is taken as it is, even where the braces make no valid hash tag.
func prefixed(prefix, name string) string {
	if strings.Contains(name, "{") {
		return prefix + ":" + name
	}
	return prefix + ":{" + name + "}"
}

// suffixed puts a suffix behind a name; the same is true of its slot.
func suffixed(name, suffix string) string {
	if strings.Contains(name, "{") {
		return name + ":" + suffix
	}
	return "{" + name + "}:" + suffix
}

// OneSlot reports whether all keys and channels of a name fall into the cluster slot of the name itself: it has a valid hash
// tag, or no braces at all.
func OneSlot(name string) bool {
	before, after, found := strings.Cut(name, "{")
	if !found {
		return !strings.Contains(before, "}")
	}
	return strings.IndexByte(after, '}') > 0
}

// Slot is the cluster slot of a key: CRC16 of its hash tag, or of the whole key where it has no valid one.
func Slot(key string) int {
	if open := strings.IndexByte(key, '{'); open >= 0 {
		if size := strings.IndexByte(key[open+1:], '}'); size > 0 {
			key = key[open+1 : open+1+size]
		}
	}
	return int(crc16(key)) % Slots
}

// crc16 is CRC-16/XMODEM, which the cluster specification prescribes.
func crc16(s string) (sum uint16) {
	for i := 0; i < len(s); i++ {
		sum ^= uint16(s[i]) << 8
		for range 8 {
			if sum&0x8000 != 0 {
				sum = sum<<1 ^ 0x1021
			} else {
				sum <<= 1
			}
		}
	}
	return sum
}
