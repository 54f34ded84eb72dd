package core

import "github.com/reqlock/reqlock/core/internal/wire"

// Keys has the names of what Redis stores about one lock, and of its channels. They are for tools
// that look at locks from outside, such as package inspect. All but Record and Declared are those of
// Redisson.
type Keys struct {
	// Lock is a hash: one field for each owner; the field "mode" tells a read/write lock. Of a
	// semaphore it is a string: how many permits are free.
	Lock      string
	Queue     string // a fair lock's queue: a list of owners
	Deadlines string // a sorted set of owners by when they count as dead, in ms since 1970
	Tokens    string // the counter of fenced locks: the last token
	Record    string // what a Once has left: a hash; the field "record" has the record, "ttl" its whole life in ms
	Taken     string // a semaphore's permits that are taken: a sorted set of IDs by when they expire, in ms since 1970
	Declared  string // how many permits a semaphore has, a space, and since when

	Channel          string // announces releases; see also FairChannel
	ReadWriteChannel string // announces releases of a read/write lock
	PermitChannel    string // announces how many permits of a semaphore are free
}

// KeysOf returns the keys of the lock with this name, after NameMapper.
func KeysOf(name string) Keys {
	return Keys{
		Lock:             name,
		Queue:            wire.FairQueue(name),
		Deadlines:        wire.FairDeadlines(name),
		Tokens:           wire.TokenCounter(name),
		Record:           wire.RecordKey(name),
		Taken:            wire.PermitsTaken(name),
		Declared:         wire.PermitsDeclared(name),
		Channel:          wire.LockChannel(name),
		ReadWriteChannel: wire.ReadWriteChannel(name),
		PermitChannel:    wire.PermitChannel(name),
	}
}

// FairChannel returns the channel on which a waiter for the fair lock listens.
func (k Keys) FairChannel(owner string) string { return wire.FairChannel(k.Lock, owner) }

// ReadTimeout returns the key whose TTL is the lease of one read level of an owner. Levels count
// from 1.
func (k Keys) ReadTimeout(owner string, level int) string {
	return wire.ReadTimeout(k.Lock, owner, level)
}

// KeyPatterns are glob patterns for SCAN. Each matches all keys of its kind whose names have a
// prefix, and perhaps others.
type KeyPatterns struct{ Lock, Queue, Tokens, Record, Taken, Declared string }

// KeyPatternsOf returns the patterns for names with the prefix.
func KeyPatternsOf(prefix string) KeyPatterns {
	return KeyPatterns{
		Lock:     wire.LockPattern(prefix),
		Queue:    wire.FairQueuePattern(prefix),
		Tokens:   wire.TokenCounterPattern(prefix),
		Record:   wire.RecordPattern(prefix),
		Taken:    wire.PermitsTakenPattern(prefix),
		Declared: wire.PermitsDeclaredPattern(prefix),
	}
}

// NameOf returns the name of the lock or semaphore to which a key belongs: a Queue, Tokens, Record,
// Taken or Declared of Keys. A name and the same name in braces share these keys; NameOf returns the
// name without braces. ok is false for all other keys.
func NameOf(key string) (name string, ok bool) { return wire.NameOf(key) }

// ClientOf returns the client in an owner, which is a field of Keys.Lock. A client of this package
// is the name of the process and a random part; one of Redisson is a UUID. ok is false if the field
// has the form of neither.
func ClientOf(field string) (client string, ok bool) { return wire.ClientOf(field) }

// OwnerOfPermit returns the owner of a permit, and which of the owner's permits it is, from 1. The
// permit is a member of Keys.Taken. The first has the owner as its ID, and the others have :2, :3 and
// so on after it. ok is false if reqlock has not made the ID.
func OwnerOfPermit(id string) (owner string, n int, ok bool) { return wire.OwnerOfPermit(id) }
