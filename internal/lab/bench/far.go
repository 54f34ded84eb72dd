package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	far      = "Far"
	cycleP50 = "p50, ms"
	cycleP99 = "p99, ms"
)

// A grid is what Far measures: each number of callers on each line, by each contender. A caller
// acquires and releases a lock of its own.
type grid struct {
	lines      []line
	callers    []int
	contenders []string
	jitter     time.Duration
	window     time.Duration
}

// A line is the way to Redis.
type line struct {
	name string
	tls  bool
	trip time.Duration
}

var (
	loopback = line{name: "loopback"}
	secure   = line{name: "TLS", tls: true}
)

// awayBy is a line whose round trip takes this long.
func awayBy(trip time.Duration) line {
	return line{name: strconv.FormatFloat(millis(trip), 'g', -1, 64) + " ms", trip: trip}
}

var wholeGrid = grid{
	lines: []line{
		loopback, secure, awayBy(200 * time.Microsecond), awayBy(time.Millisecond), awayBy(5 * time.Millisecond), awayBy(20 * time.Millisecond),
	},
	callers:    []int{1, 2, 4, 8, 16, 64, 256, 1024, 4096},
	contenders: append([]string{pingFloor, rawPair, ours}, peers...),
	window:     400 * time.Millisecond,
}

// peers are the other libraries.
var peers = []string{redsyncName, redislockLn, rueidisLock}

// parseLines returns the lines of a flag, such as "loopback,TLS,0.2ms".
func parseLines(text string) (lines []line, err error) {
	for name := range strings.SplitSeq(text, ",") {
		switch name {
		case loopback.name:
			lines = append(lines, loopback)
		case secure.name:
			lines = append(lines, secure)
		default:
			trip, err := time.ParseDuration(name)
			if err != nil || trip <= 0 {
				return nil, fmt.Errorf("-lines %s: want %s, %s or the duration of a round trip, such as 0.2ms", text, loopback.name, secure.name)
			}
			lines = append(lines, awayBy(trip))
		}
	}
	return lines, nil
}

// parseCallers returns the numbers of a flag, such as "1,64".
func parseCallers(text string) (callers []int, err error) {
	for word := range strings.SplitSeq(text, ",") {
		n, err := strconv.Atoi(word)
		if err != nil || n < 1 {
			return nil, fmt.Errorf("-callers %s: want numbers from 1 on, such as 1,64", text)
		}
		callers = append(callers, n)
	}
	return callers, nil
}

// parseContenders returns the names of a flag, such as "reqlock,raw pair".
func parseContenders(text string) ([]string, error) {
	names := strings.Split(text, ",")
	for _, name := range names {
		if _, ok := contenders[name]; !ok {
			return nil, fmt.Errorf("-contenders %s: there is no %q", text, name)
		}
	}
	return names, nil
}

func callersOn(l line, callers int) string {
	return fmt.Sprintf("%s, %s", l.name, plural(callers, "caller"))
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// A reach is an open line: how clients reach a server, and what measures it.
type reach struct {
	addr  string
	tls   *tls.Config
	probe probe
	close func() error
}

// open starts what a line needs beside the bench's server.
func (b *bench) open(l line, jitter time.Duration) (reach, error) {
	switch {
	case l.tls:
		s, err := startTLS()
		if err != nil {
			return reach{}, err
		}
		rdb := redis.NewClient(&redis.Options{Addr: s.Addr()})
		return reach{s.secure, s.trust, probe{rdb}, func() error { return errors.Join(rdb.Close(), s.Close()) }}, nil
	case l.trip > 0:
		p, err := startExact(b.addr, distance{trip: l.trip, jitter: jitter})
		if err != nil {
			return reach{}, err
		}
		return reach{p.addr, nil, b.probe, p.Close}, nil
	}
	return reach{b.addr, nil, b.probe, func() error { return nil }}, nil
}

// distances measures the grid.
func (b *bench) distances() error {
	for _, l := range b.grid.lines {
		if err := b.through(l, func(r reach) error {
			for _, callers := range b.grid.callers {
				// reqlock has go-redis's defaults, and a peer a connection for each caller.
				err := b.cell(r, cell{far, callersOn(l, callers), callers, 0, callers})
				if err != nil {
					return err
				}
			}
			return nil
		}); err != nil {
			return err
		}
	}
	return nil
}

// through opens a line for a function.
func (b *bench) through(l line, do func(reach) error) error {
	r, err := b.open(l, b.grid.jitter)
	if err == nil {
		err = errors.Join(do(r), r.close())
	}
	if err != nil {
		return fmt.Errorf("%s: %w", l.name, err)
	}
	return nil
}

// A cell is one set of conditions under which contenders take turns.
type cell struct {
	scenario, variant string
	callers           int
	pool, peersPool   int // connections of reqlock, and of the peers on go-redis together
}

// cell measures a cell.
func (b *bench) cell(r reach, of cell) error {
	return b.facing(r, of, func(c named) error {
		u, err := r.probe.together(of.callers, b.pick(b.grid.window, 50*time.Millisecond), c.name, uncontendedCycles(c))
		if err != nil {
			return err
		}
		b.add(of.scenario, of.variant, c.name, throughput, u.rate())
		b.add(of.scenario, of.variant, c.name, cycleP50, millis(percentile(u.took, 0.5)))
		b.add(of.scenario, of.variant, c.name, cycleP99, millis(percentile(u.took, 0.99)))
		b.add(of.scenario, of.variant, c.name, clientMicros, u.per(micros(u.clientCPU)))
		b.add(of.scenario, of.variant, c.name, redisMicros, u.per(micros(u.redisCPU)))
		b.add(of.scenario, of.variant, c.name, commandsACycle, u.per(float64(u.commands)))
		return nil
	})
}

// facing lets the contenders take turns in rounds. All on go-redis but reqlock share a client,
// because one for each would hold too many connections.
func (b *bench) facing(r reach, of cell, turn func(named) error) (err error) {
	s := settings{lease: 30 * time.Second, tls: r.tls, pool: of.pool}
	if s.peers, err = dialled(r, of.peersPool); err != nil {
		return err
	}
	defer s.peers.Close()
	clients, closeAll, err := openAll(r.addr, s, b.grid.contenders...)
	if err != nil {
		return err
	}
	defer closeAll()
	title := of.scenario + ", " + of.variant
	return b.fewRounds(title, func() error {
		for _, c := range inTurn(b, clients) {
			if err := b.pardon(title, c.name, turn(c)); err != nil {
				return err
			}
		}
		return nil
	})
}

// dialled returns a client that has as many connections as its pool holds.
func dialled(r reach, pool int) (*redis.Client, error) {
	rdb := goRedis(r.addr, settings{tls: r.tls, pool: pool})
	conns := make([]*redis.Conn, pool)
	// The first connection learns what the server can. In go-redis 9.23 several at once race for it.
	if err := rdb.Ping(context.Background()).Err(); err != nil {
		return nil, errors.Join(err, rdb.Close())
	}
	err := inParallel(func(worker int) error {
		for i := worker; i < pool; i += atOnce {
			conns[i] = rdb.Conn()
			if err := conns[i].Ping(context.Background()).Err(); err != nil {
				return err
			}
		}
		return nil
	})
	for _, c := range conns {
		if c != nil {
			err = errors.Join(err, c.Close()) // back into the pool
		}
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("dial %d connections: %w", pool, err), rdb.Close())
	}
	return rdb, nil
}
