// Package loglimit limits a log line that a fault or many requests would repeat to one a minute.
package loglimit

import (
	"sync"
	"time"
)

// Interval is the time between two lines with the same key.
const Interval = time.Minute

// mostKeys is how many keys a Limit knows. Further keys share one line: requests may choose keys.
const mostKeys = 100

// A Limit allows one line per key and Interval. The zero value is ready to use. It is safe for
// concurrent use.
type Limit struct {
	// Burst is how many lines per key are allowed in an Interval. 0: 1.
	Burst int

	mu   sync.Mutex
	keys map[string]*lines
}

// lines are the lines with one key.
type lines struct {
	// since is when the first of the current Interval was allowed.
	since time.Time
	// allowed counts the lines since then.
	allowed int
	// last is when the latest event was, and began when the first of its series was.
	last, began time.Time
	// missed counts events without a line, since the last one that was allowed.
	missed int
}

// Allow reports whether a line with this key may be logged now.
func (l *Limit) Allow(key string) bool {
	_, ok := l.Count(key, 1)
	return ok
}

// Count is Allow for a line about n events. total also counts the events since the last line that
// was allowed.
func (l *Limit) Count(key string, n int) (total int, ok bool) {
	total, _, ok = l.count(key, n, 0, time.Now())
	return total, ok
}

// Series is Count for one event, without a line before the series of the event has lasted for a time.
// began is when it began. In a series each event follows the one before within two Intervals.
func (l *Limit) Series(key string, lasted time.Duration) (total int, began time.Time, ok bool) {
	return l.count(key, 1, lasted, time.Now())
}

func (l *Limit) count(key string, n int, lasted time.Duration, now time.Time) (total int, began time.Time, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	k := l.linesLocked(key, now)
	if now.Sub(k.last) >= 2*Interval {
		if k.began = now; lasted > 0 {
			k.missed = 0 // of a series that ended before
		}
	}
	k.last = now
	k.missed += n
	if now.Sub(k.began) < lasted {
		return 0, k.began, false
	}
	if now.Sub(k.since) >= Interval {
		k.since, k.allowed = now, 0
	}
	if k.allowed >= max(l.Burst, 1) {
		return 0, k.began, false
	}
	k.allowed++
	total, k.missed = k.missed, 0
	return total, k.began, true
}

// linesLocked returns the lines of a key, and forgets keys that have not been used for long.
func (l *Limit) linesLocked(key string, now time.Time) *lines {
	if k := l.keys[key]; k != nil {
		return k
	}
	for old, k := range l.keys {
		if now.Sub(k.last) >= 2*Interval {
			delete(l.keys, old)
		}
	}
	if len(l.keys) >= mostKeys {
		key = ""
	}
	if l.keys == nil {
		l.keys = make(map[string]*lines)
	}
	k := l.keys[key]
	if k == nil {
		k = new(lines)
		l.keys[key] = k
	}
	return k
}
