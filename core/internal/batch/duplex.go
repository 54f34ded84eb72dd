package batch

import (
	"errors"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/reqlock/reqlock/core/internal/clock"
)

// A duplex is a connection that many flights share. Each is written as soon as it is there, whether
// the ones before it are answered or not, and Redis answers in the order of writing. There is no
// goroutine: of those who wait for an answer one writes for all, and the one whose answer is next
// reads for all.
//
//	flight: fresh -> unsent        the line takes no flights
//	flight: fresh -> in flight     it was put in line to be written
//	flight: in flight -> complete  its replies were read, or the connection failed
//
//	reader: none -> a flight       it is the only one in flight
//	reader: a flight -> the next   it is complete
//	reader: a flight -> none       it is complete, and was the last
//
// Only the reader's goroutine reads, and it hands on when its flight is complete. So there is one
// reader as long as a flight is not complete, and it is the oldest flight.
type duplex struct {
	*conn
	// hangUp closes the connection.
	hangUp func()
	// within is the time to answer a flight.
	within     time.Duration
	background func(func())
	look       func() // interrupt, which is allocated once

	// As the options of the Redis client say.
	idleTime time.Duration // how long the line may be silent; not above 0: for ever
	expires  time.Time     // zero: never

	peer    peer
	users   int         // flights that were given the line; guarded by the mutex of its lane
	retired atomic.Bool // takes no further flights, and ends when it has none; set with mu held

	mu sync.Mutex
	// flights are not complete.
	flights flights
	reader  *flight
	writer  *flight
	// out is what is written after what the writer writes.
	out    []byte
	spare  []byte
	failed error
	// readBy is the connection's read deadline. Zero: it has none.
	readBy time.Time
	// writeBy is the connection's write deadline. Zero: it has none.
	writeBy time.Time

	// in was received and not parsed. Only the reader uses it.
	in []byte
	// values were parsed and not handed out. Only the reader uses them.
	values []any
}

// mostRounds is how often one goroutine writes what others have left to it before it makes another
// goroutine do that.
const mostRounds = 4

// flush writes what there is to write, for f and for all that come meanwhile.
func (d *duplex) flush(f *flight) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for round := 0; len(d.out) > 0 && d.failed == nil; round++ {
		if round == mostRounds && f != nil {
			d.writer = new(flight)
			d.background(func() { d.flush(nil) })
			return
		}
		b := d.out
		d.out = d.spare[:0]
		if now := time.Now(); d.writeBy.Before(now.Add(d.within / 2)) {
			d.writeBy = now.Add(d.within)
			_ = d.conn.Conn.SetWriteDeadline(d.writeBy)
		}
		d.mu.Unlock()
		_, err := d.conn.Conn.Write(b)
		d.mu.Lock()
		if d.spare = b; cap(b) > mostKept {
			d.spare = nil
		}
		if err != nil {
			d.failLocked(err)
		}
	}
	d.writer = nil
}

// read reads replies until f, the reader, is complete, or its until is over.
func (d *duplex) read(f *flight) {
	for d.prepare(f) {
		n, err := d.conn.Conn.Read(d.in[len(d.in):cap(d.in)])
		d.in = d.in[:len(d.in)+n]
		if n > 0 {
			d.hear()
			d.handOut(f)
		}
		if err != nil {
			d.stumble(f, err)
		}
	}
}

// leastWrite is how long a goroutine whose caller has left may take to write. What is written in
// part cannot be taken back, so the connection ends then.
const leastWrite = 5 * time.Millisecond

// interrupt makes the reader and the writer look whether their until is over.
func (d *duplex) interrupt() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.reader != nil && d.reader.until.over() {
		d.readBy = time.Unix(1, 0)
		_ = d.conn.Conn.SetReadDeadline(d.readBy)
	}
	if d.writer != nil && d.writer.until.over() {
		d.writeBy = time.Now().Add(leastWrite)
		_ = d.conn.Conn.SetWriteDeadline(d.writeBy)
	}
}

// mostKept is how large a buffer may be that is kept for the next use.
const mostKept = 64 << 10

// prepare sets the read deadline and makes room to read. It returns false if f need not read any
// more.
func (d *duplex) prepare(f *flight) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if f.state == complete || f.until.over() { // the next reader has the buffer, if f is complete
		return false
	}
	if free := cap(d.in) - len(d.in); free < 512 {
		d.in = append(make([]byte, 0, max(4096, 2*cap(d.in))), d.in...)
	}
	by := f.due(d.within)
	// A deadline that is too early only makes the reader look once more.
	if now := time.Now(); d.readBy.After(by) || !d.readBy.After(now) {
		d.readBy = by
		_ = d.conn.Conn.SetReadDeadline(by)
	}
	return true
}

// stumble handles an error of a Read of f. A deadline may have been too early; see prepare.
func (d *duplex) stumble(f *flight, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if errors.Is(err, os.ErrDeadlineExceeded) {
		if f.state == complete || time.Now().Before(f.due(d.within)) {
			return
		}
		if f.idle != 0 {
			d.all.muted.Store(int64(f.idle))
		}
	}
	d.failLocked(err)
}

// parse takes the complete replies out of what was received.
func (d *duplex) parse() error {
	at := 0
	defer func() {
		if at > 0 {
			d.in = d.in[:copy(d.in, d.in[at:])]
		}
		if len(d.in) == 0 && cap(d.in) > mostKept {
			d.in = nil
		}
	}()
	for at < len(d.in) {
		value, n, push, err := parseReply(d.in[at:])
		if err != nil || n == 0 {
			return err
		}
		at += n
		if !push {
			d.values = append(d.values, value)
		}
	}
	return nil
}

// handOut gives the flights the replies that were received. If f, the reader, is complete then, the
// next flight is the reader.
func (d *duplex) handOut(f *flight) {
	failed := d.parse()
	d.mu.Lock()
	defer d.mu.Unlock()
	values := d.values
	for len(values) > 0 && d.flights.len() > 0 {
		first := d.flights.first()
		n := min(first.want, len(values))
		first.replies = append(first.replies, values[:n]...)
		first.idle = 0
		values = values[n:]
		if first.want -= n; first.want == 0 {
			d.flights.pop()
			first.state = complete
			if first != f {
				first.rouse()
			}
		}
	}
	if len(values) > 0 && failed == nil {
		failed = errProtocol // a reply that nothing was sent for
	}
	clear(d.values)
	d.values = d.values[:0]
	switch {
	case failed != nil:
		d.failLocked(failed)
	case f.state == complete:
		d.passOnLocked()
	}
}

// passOnLocked makes the oldest flight the reader.
func (d *duplex) passOnLocked() {
	d.reader = nil
	if d.flights.len() > 0 {
		d.reader = d.flights.first()
		d.reader.rouse()
	} else if d.retired.Load() {
		d.endLocked()
	}
}

// failLocked ends the line and everything in flight.
func (d *duplex) failLocked(err error) {
	if d.failed != nil {
		return
	}
	d.failed = err
	d.retired.Store(true)
	for d.flights.len() > 0 {
		f := d.flights.pop()
		f.err, f.state = err, complete
		f.rouse()
	}
	d.reader = nil
	d.endLocked()
}

// endLocked closes the connection, once. TLS says goodbye, which may take a while.
func (d *duplex) endLocked() {
	if hangUp := d.hangUp; hangUp != nil {
		d.hangUp = nil
		d.background(hangUp)
	}
}

// retire makes the line take no further flights. It ends when those in flight have ended.
func (d *duplex) retire() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.retired.Store(true)
	if d.flights.len() == 0 {
		d.endLocked()
	}
}

// usable reports whether the line takes flights. It retires one that is too old, and one that is not
// to be trusted: its oldest flight is slow, the server has hung up, or has shown on another connection
// that it is gone.
func (d *duplex) usable(now time.Time, slowAfter time.Duration) bool {
	if d.retired.Load() {
		return false
	}
	slow, ended := false, !d.expires.IsZero() && now.After(d.expires)
	if d.users > 0 {
		d.mu.Lock()
		slow = d.flights.len() > 0 && now.Sub(d.flights.first().sent) >= slowAfter
		d.mu.Unlock()
	} else if !ended {
		silent := clock.MomentOf(now).Since(clock.Moment(d.heard.Load()))
		ended = d.idleTime > 0 && silent > d.idleTime || d.peer.hasEnded()
	}
	if slow || ended || !d.trusted() {
		d.retire()
		return false
	}
	return true
}

// flights are those of a duplex that are not complete, oldest first.
type flights struct {
	list []*flight
	head int
}

func (q *flights) len() int       { return len(q.list) - q.head }
func (q *flights) first() *flight { return q.list[q.head] }

func (q *flights) push(f *flight) {
	if q.head > 0 && len(q.list) == cap(q.list) {
		n := copy(q.list, q.list[q.head:])
		clear(q.list[n:])
		q.list, q.head = q.list[:n], 0
	}
	q.list = append(q.list, f)
}

func (q *flights) pop() *flight {
	f := q.list[q.head]
	q.list[q.head] = nil
	if q.head++; q.head == len(q.list) {
		q.list, q.head = q.list[:0], 0
	}
	return f
}
