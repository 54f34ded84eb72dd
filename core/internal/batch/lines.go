package batch

import (
	"slices"
	"time"
)

// mostLines is how many lines a lane has if several calls at a time need them. With a line of its
// own, a call does not wait for one that is slow, and neither a goroutine for another one's reading.
// As many again may be retired and have calls in flight.
const mostLines = 4

// lineLocked returns the line for a flight that starts now: one that is free, or else the first, if
// there can be no further one. nil: the flight goes through the client's pool. So do a few while a
// further line is dialed, because they need not wait for others there. Far away that takes a while,
// and more would be held up by the pool.
func (l *lane) lineLocked(now time.Time) *duplex {
	for i := 0; i < len(l.lines); {
		switch d := l.lines[i]; {
		case !d.usable(now, l.slowAfterLocked()):
			l.lines = slices.Delete(l.lines, i, i+1)
			l.retired = append(l.retired, d)
		case d.users == 0:
			return d
		default:
			i++
		}
	}
	l.retired = slices.DeleteFunc(l.retired, func(d *duplex) bool { return d.users == 0 })
	if len(l.lines) < mostLines && len(l.lines)+len(l.retired) < 2*mostLines {
		l.dialLocked(now)
	}
	if len(l.lines) == 0 || l.dialing && l.throughPoolLocked() <= l.limits.most {
		return nil
	}
	return l.lines[0]
}

// throughPoolLocked returns how many flights are under way through the client's pool, with the one
// that is being loaded.
func (l *lane) throughPoolLocked() (n int) {
	for _, r := range l.busy {
		if r.line == nil && !r.abandoned {
			n++
		}
	}
	return n
}

// dialPause is the time between two attempts to dial a line.
const dialPause = time.Second

// dialLocked begins to dial a line. Until it is there, flights go through the client's pool.
func (l *lane) dialLocked(now time.Time) {
	if !l.shares || l.dialing || l.closed || now.Before(l.dialAt) {
		return
	}
	l.dialing, l.dialAt = true, now.Add(dialPause)
	l.b.wg.Go(func() {
		d, took, err := dialDuplex(l.b.ctx, l.node, l.b.cfg.Timeout*9/8, l.b.wg.Go)
		l.mu.Lock()
		defer l.mu.Unlock()
		l.dialing = false
		switch {
		case err != nil:
		case l.closed:
			d.retire()
		case len(l.lines) == 0:
			l.trip.reset(took, time.Now())
			fallthrough
		default:
			l.lines = append(l.lines, d)
			l.dialAt = time.Time{}
			l.dispatchLocked(time.Now())
		}
	})
}

// interrupt makes a caller that reads look whether it may leave.
func (l *lane) interrupt() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, d := range l.lines {
		d.interrupt()
	}
	for _, d := range l.retired {
		d.interrupt()
	}
}
