package schedule

import (
	"sync"
	"time"
)

// A Loop is a goroutine that calls a function when it starts, when a pause is over, and when
// nudged.
type Loop struct {
	nudge chan struct{} // buffered for one
	stop  chan struct{}
	ended chan struct{}
	once  sync.Once
}

// NewLoop starts a loop. work does everything due and returns how long to sleep after it; below 0:
// until nudged. It must not block.
func NewLoop(work func() (sleep time.Duration)) *Loop {
	l := &Loop{nudge: make(chan struct{}, 1), stop: make(chan struct{}), ended: make(chan struct{})}
	go l.run(work)
	return l
}

// Nudge wakes the loop: a call of work begins after this.
func (l *Loop) Nudge() {
	select {
	case l.nudge <- struct{}{}:
	default: // a call of work is about to begin
	}
}

// Close stops the loop and waits until work returns.
func (l *Loop) Close() {
	l.once.Do(func() { close(l.stop) })
	<-l.ended
}

func (l *Loop) run(work func() time.Duration) {
	defer close(l.ended)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-l.stop:
			return
		case <-l.nudge:
		case <-timer.C:
		}
		sleep := work()
		timer.Stop()
		if sleep >= 0 {
			timer.Reset(sleep)
		}
	}
}
