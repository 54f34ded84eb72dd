// Package wire builds the names that reqlock shares with other programs, above all Java Redisson:
// lock keys, pub/sub channels, owners, and the cluster slot of a key. All its functions are pure.
// Other processes see what they return, so it must not change.
package wire

import (
	"regexp"
	"strconv"
	"strings"
)

// Slots is the number of hash slots of a Redis Cluster.
const Slots = 16384

// Messages published by a release.
const (
	// Unlocked wakes one waiter in each client. Redisson: LockPubSub.UNLOCK_MESSAGE.
	Unlocked = "0"
	// Unblocked wakes all waiters in each client: a writer has left, and readers may enter
	// together. Redisson: LockPubSub.READ_UNLOCK_MESSAGE.
	Unblocked = "1"
)

// LockChannel returns the channel that announces the release of a plain lock.
func LockChannel(name string) string { return prefixed("redisson_lock__channel", name) }

// FairChannel returns the channel that wakes the first waiter of a fair lock. With an empty owner
// it returns the prefix of these channels.
func FairChannel(name, owner string) string { return LockChannel(name) + ":" + owner }

// ReadWriteChannel returns the channel that announces releases of both sides of a read/write lock.
func ReadWriteChannel(name string) string { return prefixed("redisson_rwlock", name) }

// Messages about the count of a latch. Waiters read the count, whatever the message says.
const (
	CountedDown = "0" // the count is 0 now
	CountSet    = "1" // there is a new count, or it was deleted
)

// LatchChannel returns the channel that announces changes of a latch's count. It is unlike all
// others: Redisson puts braces around any name, so in a cluster the channel of a name that has
// braces is in another slot than the name.
func LatchChannel(name string) string { return "redisson_countdownlatch__channel__{" + name + "}" }

// LatchMark returns the key of the mark that a call leaves while its outcome is uncertain, so that a
// try of it that arrives late changes nothing. Only reqlock has such marks.
func LatchMark(name, call string) string { return suffixed(name, "latch:"+call) }

// ClientChannel returns the channel of one client, where it hears that locks of its holders were
// taken by force. Only reqlock has such channels. They are plain in a cluster, too.
func ClientChannel(client string) string { return "reqlock:client:" + client }

// FairQueue returns the list of waiters for a fair lock.
func FairQueue(name string) string { return prefixed(fairQueue, name) }

// FairDeadlines returns the sorted set of the times at which waiters for a fair lock are presumed
// dead.
func FairDeadlines(name string) string { return prefixed("redisson_lock_timeout", name) }

// TokenCounter returns the counter of a lock's fencing tokens.
func TokenCounter(name string) string { return prefixed(tokenCounter, name) }

// PermitsTaken returns the sorted set of the permits that are taken of a semaphore. The name itself is
// the key of the number of free permits.
func PermitsTaken(name string) string { return suffixed(name, permitsTaken) }

// PermitsDeclared returns the key of how many permits a semaphore is declared to have. Only reqlock
// has such keys.
func PermitsDeclared(name string) string { return suffixed(name, permitsDeclared) }

// PermitFamily returns the sorted set of the owners that use the permits of one owner, by when their
// leases end. There is one only while guests use them. Only reqlock has such keys.
func PermitFamily(name, owner string) string { return suffixed(name, owner+":family") }

// PermitChannel returns the channel that announces free permits.
func PermitChannel(name string) string { return prefixed("redisson_sc", name) }

// PermitID returns the id of the n-th permit of an owner, from 1.
func PermitID(owner string, n int) string {
	if n == 1 {
		return owner
	}
	return owner + ":" + strconv.Itoa(n)
}

// ModeField is the field in a read/write lock's hash that names the side that is held.
const ModeField = "mode"

const writeSuffix = ":write"

// WriteField returns the field of an owner of the write side in a read/write lock's hash.
func WriteField(owner string) string { return owner + writeSuffix }

// IsWriteField reports whether a field of a read/write lock's hash belongs to the write side.
func IsWriteField(field string) bool { return strings.HasSuffix(field, writeSuffix) }

// OwnerOf returns the owner of a write-side field.
func OwnerOf(writeField string) string { return strings.TrimSuffix(writeField, writeSuffix) }

// ReadTimeout returns the key whose TTL is the lease of an owner's n-th read level. Its form is
// prefix + owner + suffix + n; see ReadTimeouts.
func ReadTimeout(name, owner string, n int) string {
	prefix, suffix := ReadTimeouts(name)
	return prefix + owner + suffix + strconv.Itoa(n)
}

// ReadTimeouts returns the parts of ReadTimeout before and after the owner.
func ReadTimeouts(name string) (prefix, suffix string) {
	return suffixed(name, ""), ":rwlock_timeout:"
}

// RecordKey returns the key of the record that a hold may store under its name. Only reqlock has
// such records.
func RecordKey(name string) string { return suffixed(name, record) }

// CountedKey returns the key of the names that count towards a quota. Only reqlock has such keys.
func CountedKey(quota string) string { return suffixed(quota, counted) }

// The parts of keys that do not depend on the name.
const (
	fairQueue    = "redisson_lock_queue"
	tokenCounter = "redisson_lock_token"
	record       = "record"
	counted      = "counted"

	permitsTaken    = "timeout"
	permitsDeclared = "permits"
)

// Owner returns the field in a lock's hash for one hold of one client. Redisson has a thread id
// where reqlock has the number of the hold. Neither parses it.
func Owner(client string, hold uint64) string {
	b := make([]byte, 0, 64)
	b = append(append(b, client...), ':')
	return string(strconv.AppendUint(b, hold, 10))
}

// The forms of owners: the name of a client of reqlock, its random part and a number; or the UUID of
// a Redisson and the id of a thread, which may be negative.
var owners = regexp.MustCompile(`^([A-Za-z0-9._-]{1,28}\.[a-z0-9]{8}):[0-9]{1,20}$` +
	`|^([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}):-?[0-9]{1,19}$`)

// OwnerOfPermit returns the owner of a permit, and which of the owner's permits it is, from 1. It
// reverses PermitID. ok is false if reqlock has not made the ID.
func OwnerOfPermit(id string) (owner string, n int, ok bool) {
	if isOwner(id) {
		return id, 1, true
	}
	i := strings.LastIndexByte(id, ':')
	if i < 0 || !isOwner(id[:i]) {
		return "", 0, false
	}
	n, _ = strconv.Atoi(id[i+1:])
	return id[:i], n, n > 1 && PermitID(id[:i], n) == id
}

func isOwner(id string) bool {
	_, ok := ClientOf(id)
	return ok && !IsWriteField(id)
}

// ClientOf returns the client part of an owner, or of an owner's write-side field. ok is false if
// the field has the form of no owner of reqlock or Redisson: another program has made it.
func ClientOf(field string) (client string, ok bool) {
	parts := owners.FindStringSubmatch(OwnerOf(field))
	if parts == nil {
		return "", false
	}
	return parts[1] + parts[2], true
}

// NameOf returns the name whose FairQueue, TokenCounter, RecordKey, PermitsTaken or PermitsDeclared
// the key is. A name in braces has the same keys as the name without them, which NameOf returns.
func NameOf(key string) (name string, ok bool) {
	for _, prefix := range []string{fairQueue, tokenCounter} {
		if rest, found := strings.CutPrefix(key, prefix+":"); found {
			return unbraced(rest)
		}
	}
	for _, suffix := range []string{record, permitsTaken, permitsDeclared} {
		if rest, found := strings.CutSuffix(key, ":"+suffix); found {
			return unbraced(rest)
		}
	}
	return "", false
}

// unbraced reverses what prefixed and suffixed do to a name.
func unbraced(s string) (name string, ok bool) {
	open := strings.IndexByte(s, '{')
	if open == 0 && strings.HasSuffix(s, "}") && !strings.Contains(s[1:], "{") {
		return s[1 : len(s)-1], len(s) > len("{}")
	}
	return s, open >= 0
}

// LockPattern returns a glob pattern for the lock hashes of all names with a prefix. It and the
// other patterns match other keys as well.
func LockPattern(prefix string) string { return globSpecial.Replace(prefix) + "*" }

// FairQueuePattern returns a glob pattern for the FairQueue of all names with a prefix.
func FairQueuePattern(prefix string) string { return fairQueue + ":*" + LockPattern(prefix) }

// TokenCounterPattern returns a glob pattern for the TokenCounter of all names with a prefix.
func TokenCounterPattern(prefix string) string { return tokenCounter + ":*" + LockPattern(prefix) }

// RecordPattern returns a glob pattern for the RecordKey of all names with a prefix.
func RecordPattern(prefix string) string { return suffixPattern(prefix, record) }

// PermitsTakenPattern returns a glob pattern for the PermitsTaken of all names with a prefix.
func PermitsTakenPattern(prefix string) string { return suffixPattern(prefix, permitsTaken) }

// PermitsDeclaredPattern returns a glob pattern for the PermitsDeclared of all names with a prefix.
func PermitsDeclaredPattern(prefix string) string { return suffixPattern(prefix, permitsDeclared) }

func suffixPattern(prefix, suffix string) string { return "*" + LockPattern(prefix) + ":" + suffix }

var globSpecial = strings.NewReplacer(`*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`, `\`, `\\`)

// prefixed puts a prefix before a name so that both are in the same cluster slot. Like Redisson, it
// leaves a name that contains an opening brace as it is, even if that makes no valid hash tag.
func prefixed(prefix, name string) string {
	if strings.Contains(name, "{") {
		return prefix + ":" + name
	}
	return prefix + ":{" + name + "}"
}

// suffixed puts a suffix after a name. The slot is as with prefixed.
func suffixed(name, suffix string) string {
	if strings.Contains(name, "{") {
		return name + ":" + suffix
	}
	return "{" + name + "}:" + suffix
}

// OneSlot reports whether all keys and channels of a name are in the cluster slot of the name
// itself. That is so if the name has a valid hash tag, or if it has no braces and is not empty. {}
// is no hash tag.
func OneSlot(name string) bool {
	before, after, found := strings.Cut(name, "{")
	if !found {
		return name != "" && !strings.Contains(before, "}")
	}
	return strings.IndexByte(after, '}') > 0
}

// Slot returns the cluster slot of a key: the CRC16 of its hash tag, or of the whole key if it has
// no valid one.
func Slot(key string) int {
	if open := strings.IndexByte(key, '{'); open >= 0 {
		if size := strings.IndexByte(key[open+1:], '}'); size > 0 {
			key = key[open+1 : open+1+size]
		}
	}
	return int(crc16(key)) % Slots
}

// crc16 returns the CRC-16/XMODEM that the cluster specification prescribes.
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
