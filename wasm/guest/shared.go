package guest

import "time"

// The shared memory holds values by key for all instances of the plugin, and for its later
// versions, until they expire. It belongs to one server process. It also works in an init function.

// Get returns a value of the shared memory. ok is false if there is none.
func Get(key string) (value []byte, ok bool) {
	buf := buffer[:]
	n := kvGet(key, buf)
	if n > int64(len(buf)) {
		buf = make([]byte, n)
		n = kvGet(key, buf)
	}
	if n < 0 || n > int64(len(buf)) { // another instance may change it meanwhile
		return nil, false
	}
	return append([]byte{}, buf[:n]...), true
}

// Set stores a value in the shared memory for at least a millisecond and at most a day. The key has
// 1 to 256 bytes. It returns false if the memory is full.
func Set(key string, value []byte, ttl time.Duration) bool {
	return kvSet(key, value, milliseconds(ttl)) != 0
}

// Incr adds to a counter in the shared memory, and returns its new value. A counter that does not
// exist starts at 0 and lives for ttl, which later calls do not extend. ok is false if the memory
// is full, or the key has a value of Set.
func Incr(key string, delta int64, ttl time.Duration) (value int64, ok bool) {
	value = kvIncr(key, delta, milliseconds(ttl))
	return value, value != -1<<63
}

// Delete removes a value or counter from the shared memory.
func Delete(key string) { kvDelete(key) }
