package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// A distance is that of a network. Each direction takes half of it.
type distance struct {
	trip   time.Duration // of a round
	jitter time.Duration // up to this much more, at random
	own    time.Duration // what the proxy itself takes for a round, which the delays leave out
}

// startExact starts a proxy whose round trip is as much longer than that of the server as the
// distance says. It measures first what the proxy itself takes, which wakes up four times a round.
// Other work on the machine adds to that, so that it takes the quick ones, and leaves out half of
// the distance at most.
func startExact(server string, d distance) (*proxy, error) {
	p, err := startProxy(server, distance{trip: d.trip})
	if err != nil {
		return nil, err
	}
	near, errNear := pings(server)
	there, errThere := pings(p.addr)
	if err := errors.Join(errNear, errThere, p.Close()); err != nil {
		return nil, err
	}
	own := percentile(there, 0.25) - percentile(near, 0.25) - d.trip
	d.own = min(max(0, own), d.trip/2)
	return startProxy(server, d)
}

// pings returns round trips over one connection.
func pings(addr string) (trips []time.Duration, err error) {
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	defer rdb.Close()
	ctx := context.Background()
	if err := rdb.Ping(ctx).Err(); err != nil { // dials
		return nil, err
	}
	for end := time.Now().Add(300 * time.Millisecond); len(trips) < 16 || time.Now().Before(end); {
		began := time.Now()
		if err := rdb.Ping(ctx).Err(); err != nil {
			return nil, err
		}
		trips = append(trips, time.Since(began))
	}
	return trips, nil
}

// A proxy is a child that forwards connections to a server at a distance, until it is closed.
type proxy struct {
	*child
	addr string
	end  io.Closer
}

func startProxy(server string, d distance) (*proxy, error) {
	c, err := newChild("delay", server, d.trip.String(), d.jitter.String(), d.own.String())
	if err != nil {
		return nil, err
	}
	c.cmd.Stdout = nil
	end, errIn := c.cmd.StdinPipe()
	out, errOut := c.cmd.StdoutPipe()
	if err := errors.Join(errIn, errOut, c.cmd.Start()); err != nil {
		return nil, err
	}
	p := &proxy{child: c, end: end}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		return nil, errors.Join(fmt.Errorf("the delaying proxy printed %q, want its address: %w", line, err), p.Close())
	}
	p.addr = strings.TrimSpace(line)
	return p, nil
}

// Close ends the proxy and all connections through it.
func (p *proxy) Close() error { return errors.Join(p.end.Close(), p.cmd.Wait()) }

// delayFor is the child's work.
func delayFor(server, trip, jitter, own string) error {
	var d distance
	var errTrip, errJitter, errOwn error
	d.trip, errTrip = time.ParseDuration(trip)
	d.jitter, errJitter = time.ParseDuration(jitter)
	d.own, errOwn = time.ParseDuration(own)
	if err := errors.Join(errTrip, errJitter, errOwn); err != nil {
		return err
	}
	p, err := newDelayer(server, d)
	if err != nil {
		return err
	}
	if _, err := fmt.Println(p.addr); err != nil {
		return err
	}
	return p.run(os.Stdin)
}
