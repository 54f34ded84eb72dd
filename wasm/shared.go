package wasm

import (
	"container/heap"
	"math"
	"sync"
	"time"
)

// shared is the key-value memory of a plugin: one for all its instances and versions, bounded in
// entries and bytes. Every entry expires. Once it is full it refuses new entries until some have
// expired: evicting entries would let a client that causes many reset the counters of others.
type shared struct {
	maxEntries int
	maxBytes   int64
	clock      func() time.Time

	mu      sync.Mutex
	entries map[string]*sharedEntry
	expiry  sharedHeap // all entries, the next to expire first
	bytes   int64
}

type sharedEntry struct {
	key string
	// value has 8 bytes, little-endian, if it is a counter.
	value   []byte
	expires time.Time
	// place is the index in the heap.
	place int
}

const (
	maxSharedKey  = 256 // bytes
	maxSharedTTL  = 24 * time.Hour
	sharedEntryOf = 128 // bytes that an entry costs beside its key and value
)

func newShared(maxEntries int, maxBytes int64) *shared {
	return &shared{maxEntries: maxEntries, maxBytes: maxBytes, clock: time.Now, entries: make(map[string]*sharedEntry)}
}

// get copies a value to dst if it fits, and returns its length. ok is false if there is none.
func (s *shared) get(key []byte, dst []byte) (length int, ok bool) {
	now := s.clock()
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.findLocked(key, now)
	if e == nil {
		return 0, false
	}
	if len(e.value) <= len(dst) {
		copy(dst, e.value)
	}
	return len(e.value), true
}

// set stores a value. It returns false if there is no room.
func (s *shared) set(key, value []byte, ttl time.Duration) bool {
	now := s.clock()
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.findLocked(key, now); e != nil {
		s.removeLocked(e)
	}
	return s.addLocked(key, value, now.Add(ttl), now)
}

// incr adds to a counter, and returns its new value. A counter that does not exist starts at 0 and
// lives for ttl. ok is false if there is no room, or the entry is no counter.
func (s *shared) incr(key []byte, delta int64, ttl time.Duration) (value int64, ok bool) {
	now := s.clock()
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.findLocked(key, now)
	if e == nil {
		value = saturate(0, delta)
		var text [8]byte
		store64(text[:], 0, uint64(value))
		return value, s.addLocked(key, text[:], now.Add(ttl), now)
	}
	if len(e.value) != 8 {
		return 0, false
	}
	value = saturate(int64(load64(e.value, 0)), delta)
	store64(e.value, 0, uint64(value))
	return value, true
}

// saturate adds two numbers, and stays within the numbers that incr can return.
func saturate(a, b int64) int64 {
	sum := a + b
	switch {
	case a > 0 && b > 0 && sum < 0:
		return math.MaxInt64
	case a < 0 && b < 0 && sum >= 0, sum == math.MinInt64:
		return math.MinInt64 + 1
	}
	return sum
}

func (s *shared) delete(key []byte) {
	now := s.clock()
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.findLocked(key, now); e != nil {
		s.removeLocked(e)
	}
}

// size returns the entries and bytes in use. Expired entries count until their room is needed.
func (s *shared) size() (entries int, bytes int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.entries), s.bytes
}

func (s *shared) findLocked(key []byte, now time.Time) *sharedEntry {
	e := s.entries[string(key)]
	if e != nil && !e.expires.After(now) {
		s.removeLocked(e)
		return nil
	}
	return e
}

func (s *shared) addLocked(key, value []byte, expires, now time.Time) bool {
	cost := sharedEntryOf + int64(len(key)) + int64(len(value))
	for s.bytes+cost > s.maxBytes || len(s.entries) >= s.maxEntries {
		if len(s.expiry) == 0 || s.expiry[0].expires.After(now) {
			return false
		}
		s.removeLocked(s.expiry[0])
	}
	e := &sharedEntry{key: string(key), value: append([]byte(nil), value...), expires: expires}
	s.entries[e.key] = e
	heap.Push(&s.expiry, e)
	s.bytes += cost
	return true
}

func (s *shared) removeLocked(e *sharedEntry) {
	delete(s.entries, e.key)
	heap.Remove(&s.expiry, e.place)
	s.bytes -= sharedEntryOf + int64(len(e.key)) + int64(len(e.value))
}

// A sharedHeap is a heap.Interface.
type sharedHeap []*sharedEntry

func (h sharedHeap) Len() int           { return len(h) }
func (h sharedHeap) Less(i, j int) bool { return h[i].expires.Before(h[j].expires) }

func (h sharedHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].place, h[j].place = i, j
}

func (h *sharedHeap) Push(x any) {
	e := x.(*sharedEntry)
	e.place = len(*h)
	*h = append(*h, e)
}

func (h *sharedHeap) Pop() any {
	old := *h
	e := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	return e
}
