// Package loglimit limits a log line that many requests would repeat to one a minute.
package loglimit

import (
	"sync"
	"time"
)

// Interval is the time between two lines with the same key.
const Interval = time.Minute

// A Limit allows one line per key and Interval. The zero value is ready to use. It is safe for
// concurrent use.
type Limit struct {
	mu   sync.Mutex
	last map[string]time.Time // when each key was last allowed, for the last Interval
}

// Allow reports whether a line with this key may be logged now.
func (l *Limit) Allow(key string) bool { return l.allow(key, time.Now()) }

func (l *Limit) allow(key string, now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for k, at := range l.last {
		if now.Sub(at) >= Interval {
			delete(l.last, k)
		}
	}
	if _, ok := l.last[key]; ok {
		return false
	}
	if l.last == nil {
		l.last = make(map[string]time.Time)
	}
	l.last[key] = now
	return true
}
