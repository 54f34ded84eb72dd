package core

import (
	"slices"
	"sync"
	"time"
)

// A Loss is a lock that was lost while it was held.
type Loss struct {
	Name  string        // the lock's name, as it was given to the client
	Key   string        // its name in Redis
	Kind  string        // one of Kinds
	Owner string        // wire owner
	At    time.Time     // when the loss was found
	Held  time.Duration // until then
	Cause string        // how it was lost
	Annotation
}

// mostLosses is how many losses a client remembers.
const mostLosses = 32

// losses are the latest losses, oldest first.
type losses struct {
	mu   sync.Mutex
	list []Loss
}

func (l *losses) add(loss Loss) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.list) == mostLosses {
		l.list = slices.Delete(l.list, 0, 1)
	}
	l.list = append(l.list, loss)
}

// latest returns the losses, newest first.
func (l *losses) latest() []Loss {
	l.mu.Lock()
	defer l.mu.Unlock()
	list := slices.Clone(l.list)
	slices.Reverse(list)
	return list
}
