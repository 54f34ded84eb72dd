package main

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strconv"
	"sync"
	"time"
)

const (
	arrivals   = "Arrivals"
	cycleP999  = "p99.9, ms"
	inFlight   = 256 // connections of the peers
	pacerAhead = 50 * time.Millisecond
)

var (
	arrivalRates = []int{1000, 4000, 8000}
	arrivalsLine = awayBy(time.Millisecond)
)

func arrivalsAt(rate int) string {
	return fmt.Sprintf("%s, %d arrivals a second", arrivalsLine.name, rate)
}

// arrive measures an open loop: requests arrive at a fixed rate, whether earlier ones have ended or
// not. Each acquires and releases a lock of its own.
func (b *bench) arrive() error {
	return b.through(arrivalsLine, func(r reach) error {
		for _, rate := range arrivalRates {
			of := cell{scenario: arrivals, variant: arrivalsAt(rate), peersPool: inFlight}
			if err := b.facing(r, of, func(c named) error { return b.arriveAt(of.variant, rate, c) }); err != nil {
				return err
			}
		}
		return nil
	})
}

func (b *bench) arriveAt(variant string, rate int, c named) error {
	n := int(float64(rate) * b.pick(2*time.Second, 100*time.Millisecond).Seconds())
	took := make([]time.Duration, n)
	errs := make([]error, n)
	// A crowd runs first, so that no arrival waits for a client that dials.
	if err := crowd(context.Background(), c); err != nil {
		return err
	}
	var wg sync.WaitGroup
	before, errCPU := clientCPU()
	err := paced(rate, n, func(i int, due time.Time) {
		wg.Go(func() {
			errs[i] = cycle(context.Background(), c.session(fmt.Sprint("bench:arrival:", i)))
			took[i] = time.Since(due)
		})
	})
	if err := errors.Join(err, ended(&wg)); err != nil {
		return err
	}
	after, errAfter := clientCPU()
	if err := errors.Join(append(errs, errCPU, errAfter)...); err != nil {
		return err
	}
	b.add(arrivals, variant, c.name, cycleP50, millis(percentile(took, 0.5)))
	b.add(arrivals, variant, c.name, cycleP99, millis(percentile(took, 0.99)))
	b.add(arrivals, variant, c.name, cycleP999, millis(percentile(took, 0.999)))
	b.add(arrivals, variant, c.name, clientMicros, micros(after-before)/float64(n))
	return nil
}

// paced starts n calls at a rate, and returns when the last has begun. A child says when: a pipe
// wakes this process at once, as a request from the network does, where a timer would be late.
func paced(rate, n int, start func(i int, due time.Time)) error {
	c, err := newChild("pace", strconv.Itoa(rate), strconv.Itoa(n))
	if err != nil {
		return err
	}
	c.cmd.Stdout = nil
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := c.cmd.Start(); err != nil {
		return err
	}
	return errors.Join(follow(out, rate, n, start), c.cmd.Wait())
}

// follow reads the pace: the time of the first call, and a byte for each.
func follow(in io.Reader, rate, n int, start func(i int, due time.Time)) error {
	var nanos int64
	if err := binary.Read(in, binary.LittleEndian, &nanos); err != nil {
		return fmt.Errorf("the pace: %w", err)
	}
	first := time.Unix(0, nanos)
	buffer := make([]byte, 1024)
	for i := 0; i < n; {
		got, err := in.Read(buffer)
		if err != nil {
			return fmt.Errorf("the pace after %d of %d: %w", i, n, err)
		}
		for range got {
			start(i, first.Add(interval(i, rate)))
			i++
		}
	}
	return nil
}

// interval is the time from the first call to another.
func interval(i, rate int) time.Duration {
	return time.Duration(float64(i) / float64(rate) * float64(time.Second))
}

// paceFor is the child's work.
func paceFor(rate, n int, w io.Writer) error {
	if err := exactThread(); err != nil {
		return err
	}
	out := bufio.NewWriter(w)
	first := time.Now().Add(pacerAhead)
	if err := binary.Write(out, binary.LittleEndian, first.UnixNano()); err != nil {
		return err
	}
	for i := range n {
		if left := time.Until(first.Add(interval(i, rate))); left > 0 {
			if err := errors.Join(out.Flush(), sleepExactly(left)); err != nil {
				return err
			}
		}
		if err := out.WriteByte(0); err != nil {
			return err
		}
	}
	return out.Flush()
}
