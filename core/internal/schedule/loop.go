package schedule

import (
	"sync"
	"time"
)

// A Loop is a goroutine that looks whether it is time for something: when it starts, when a pause is over, and when it is nudged.
type Loop struct {
	nudge chan struct{} // holds one
	stop  chan struct{}
	ended chan struct{}
	once  sync.Once
}

// NewLoop starts a loop. look does what is due, and says how long to sleep after it; below 0: until nudged. It must not block.
func NewLoop(look func() (sleep time.Duration)) *Loop {
	l := &Loop{nudge: make(chan struct{}, 1), stop: make(chan struct{}), ended: make(chan struct{})}
	go l.run(look)
	return l
}

// Nudge has it look soon: a look begins after this.
func (l *Loop) Nudge() {
	select {
	case l.nudge <- struct{}{}:
	default: // it is about to look
	}
}

// Close ends the loop, after a look that is under way.
func (l *Loop) Close() {
	l.once.Do(func() { close(l.stop) })
	<-l.ended
}

func (l *Loop) run(look func() time.Duration) {
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
		sleep := look()
		timer.Stop()
		if sleep >= 0 {
			timer.Reset(sleep)
		}
	}
}
