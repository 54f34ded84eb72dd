package batch

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/reqlock/reqlock/core/internal/clock"
)

// A flight is one or more commands that are written together.
type flight struct {
	// line is nil if the flight goes through the pool of the Redis client.
	line *duplex
	// until says when its goroutine leaves. It is changed with the mutex of the line held.
	until   Until
	request []byte
	cmd     [1]redis.Cmder // room for a flight of one command
	left    bool           // the caller of exchange has left; another goroutine must await the replies
	unwatch func() bool    // undoes watch
	wake    chan struct{}  // holds one token: look at the fields below

	// Guarded by the mutex of the line.
	state   state
	want    int // replies still to come
	replies []any
	err     error
	sent    time.Time
	// idle is the moment when the flight was sent on an idle line. It is 0 if the line was not
	// idle.
	idle clock.Moment
}

// A state is that of a flight.
type state uint8

const (
	fresh  state = iota
	unsent       // nothing was written, and nothing will be, because the line takes no flights
	inFlight
	complete
)

// Until says when a caller stops waiting for a reply: when its Context ends, or Closing is closed.
// The zero value never does.
type Until struct {
	Context context.Context
	Closing <-chan struct{}
}

func (u Until) over() bool {
	select {
	case <-u.Closing:
		return true
	default:
		return u.Context != nil && u.Context.Err() != nil
	}
}

// Done returns the channel that is closed when Context ends.
func (u Until) Done() <-chan struct{} {
	if u.Context == nil {
		return nil
	}
	return u.Context.Done()
}

var (
	// errLeft: the goroutine that waits for a flight has left; await continues.
	errLeft = fmt.Errorf("the caller has left: %w", context.Canceled)
	// errRetired: the line takes no flights any more. Nothing was sent.
	errRetired = errors.New("the connection takes no further commands")
)

// exchange sends commands and waits for their replies. errLeft means that another goroutine must
// await them, errRetired that nothing was sent.
func (f *flight) exchange(cmds []redis.Cmder) error {
	if f.left { // a hook of the Redis client tries again
		return errLeft
	}
	f.request = f.request[:0]
	for _, cmd := range cmds {
		f.request = appendCommand(f.request, cmd.Args())
	}
	writes, err := f.enlist(len(cmds))
	if err != nil {
		return err
	}
	if writes {
		f.watch()
		f.line.flush(f)
	}
	err = f.await(cmds)
	f.left = err == errLeft
	return err
}

// enlist adds a flight to those in flight. It reports whether the caller must write it, because no
// other goroutine is writing.
func (f *flight) enlist(commands int) (writes bool, err error) {
	d, now := f.line, time.Now()
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.retired.Load() {
		f.state = unsent
		return false, errRetired
	}
	f.want, f.replies, f.err, f.state = commands, f.replies[:0], nil, inFlight
	f.sent, f.idle = now, 0
	at := clock.MomentOf(now)
	if d.flights.len() == 0 {
		d.reader = f
		if at.Since(clock.Moment(d.heard.Load())) >= idleAfter {
			f.idle = at
		}
	}
	d.all.asked.Store(int64(at))
	d.flights.push(f)
	d.out = append(d.out, f.request...)
	if writes = d.writer == nil; writes {
		d.writer = f
	}
	return writes, nil
}

// await waits until the flight is complete, and gives the commands their replies. It returns errLeft
// if the flight's until is over first. Then another goroutine must stay and await it.
func (f *flight) await(cmds []redis.Cmder) error {
	err := f.wait()
	if f.unwatch != nil {
		f.unwatch()
		f.unwatch = nil
	}
	switch {
	case err != nil:
		return err
	case f.err != nil:
		for _, cmd := range cmds {
			cmd.SetErr(f.err)
		}
		return f.err
	}
	var first error
	for i, cmd := range cmds {
		err, _ := f.replies[i].(error)
		if f.replies[i] == nil {
			err = redis.Nil
		}
		cmd.SetErr(err) // the Redis client has set errLeft, if the caller left
		if err == nil {
			cmd.(onceCmd).SetVal(f.replies[i])
			continue
		}
		if first == nil {
			first = err
		}
	}
	return first
}

// stay makes the flight wait for its replies whatever happens, after its caller has left. It reports
// whether there will be any.
func (f *flight) stay() (sent bool) {
	f.line.mu.Lock()
	defer f.line.mu.Unlock()
	f.until = Until{}
	return f.state != unsent
}

// wait waits until the flight is complete, and reads while it is the oldest.
func (f *flight) wait() error {
	d := f.line
	for {
		d.mu.Lock()
		complete, reads := f.state == complete, d.reader == f
		d.mu.Unlock()
		switch {
		case complete:
			select {
			case <-f.wake:
			default:
			}
			return nil
		case f.until.over():
			return errLeft
		case reads:
			f.watch()
			d.read(f)
			continue
		}
		select {
		case <-f.wake:
		case <-f.until.Done():
		case <-f.until.Closing:
		}
	}
}

// watch makes the end of the caller's context interrupt reading and writing.
func (f *flight) watch() {
	if f.unwatch == nil && f.until.Done() != nil {
		f.unwatch = context.AfterFunc(f.until.Context, f.line.look)
	}
}

// due returns when a flight must be answered. If the line was idle before, it has a third of the
// time, so that time is left to try a new connection.
func (f *flight) due(within time.Duration) time.Time {
	if f.idle != 0 {
		within /= 3
	}
	return f.sent.Add(within)
}

// rouse makes the goroutine that waits for a flight look at it.
func (f *flight) rouse() {
	select {
	case f.wake <- struct{}{}:
	default:
	}
}
