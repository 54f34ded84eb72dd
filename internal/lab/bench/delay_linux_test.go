package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"testing"
	"time"
)

// startDelayer runs a delayer before a server that serves each connection, until the test ends.
func startDelayer(t *testing.T, d distance, serve func(net.Conn)) (addr string) {
	t.Helper()
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer conn.Close()
				serve(conn)
			})
		}
	})
	p, err := newDelayer(listener.Addr().String(), d)
	if err != nil {
		t.Fatal(err)
	}
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	ran := make(chan error)
	go func() { ran <- p.run(read) }()
	t.Cleanup(func() {
		if err := errors.Join(write.Close(), <-ran, read.Close(), listener.Close()); err != nil {
			t.Error(err)
		}
		wg.Wait()
	})
	return p.addr.String()
}

func dial(t *testing.T, addr string) *net.TCPConn {
	t.Helper()
	conn, err := net.Dial("tcp4", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	return conn.(*net.TCPConn)
}

// sendBack sends all bytes back, and then the end.
func sendBack(conn net.Conn) { _, _ = io.Copy(conn, conn) }

// Each chunk takes a round trip, also those that are sent while others are on their way: they do
// not wait for each other.
func TestDelayer_DelaysEachChunkAlike(t *testing.T) {
	t.Parallel()
	const trip, chunks = 300 * time.Millisecond, 20
	proxy := startDelayer(t, distance{trip: trip}, sendBack)
	began := time.Now() // the delay of the handshake begins with the dial
	conn := dial(t, proxy)
	var sent [chunks]time.Time
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := range sent {
			sent[i] = time.Now()
			if _, err := conn.Write([]byte{byte(i)}); err != nil {
				t.Error(err)
			}
			time.Sleep(2 * time.Millisecond) // a chunk of its own
		}
	})
	for i := range chunks {
		var got [1]byte
		if _, err := io.ReadFull(conn, got[:]); err != nil || got[0] != byte(i) {
			t.Fatalf("chunk %d: got %v, %v", i, got, err)
		}
		arrived := time.Now()
		// What is sent during the handshake takes one round trip more.
		if took := arrived.Sub(sent[i]); took < trip {
			t.Errorf("chunk %d took %v, less than %v", i, took, trip)
		}
	}
	wg.Wait()
	// One after the other they would take 6 s.
	if took := time.Since(began); took < 2*trip || took > 10*trip {
		t.Errorf("all took %v", took)
	}
}

// The delays leave out what the proxy itself takes, which is half of the distance at most.
func TestStartExact(t *testing.T) {
	t.Parallel()
	server := redisServer(t)
	const trip = 20 * time.Millisecond
	p, err := startExact(server, distance{trip: trip})
	if err != nil {
		t.Fatal(err)
	}
	trips, err := pings(p.addr)
	if err := errors.Join(err, p.Close()); err != nil {
		t.Fatal(err)
	}
	if least := percentile(trips, 0); least < trip/2 || least > 10*trip {
		t.Errorf("the least round trip is %v, want %v or a little more", least, trip)
	}
}

// Many connections carry many bytes both ways at once, each in its order, even if the delays vary
// and receivers are slow.
func TestDelayer_KeepsOrder(t *testing.T) {
	t.Parallel()
	addr := startDelayer(t, distance{trip: time.Millisecond, jitter: 5 * time.Millisecond}, func(conn net.Conn) {
		time.Sleep(50 * time.Millisecond) // meanwhile the buffers fill up
		sendBack(conn)
	})
	var wg sync.WaitGroup
	for i := range 16 {
		conn := dial(t, addr)
		data := make([]byte, 4<<20)
		source := rand.NewChaCha8([32]byte{byte(i)})
		_, _ = source.Read(data)
		wg.Go(func() {
			for rest := data; len(rest) > 0; {
				n := min(len(rest), 1+int(binary.LittleEndian.Uint16(rest)))
				if _, err := conn.Write(rest[:n]); err != nil {
					t.Error(err)
					return
				}
				rest = rest[n:]
			}
			if err := conn.CloseWrite(); err != nil {
				t.Error(err)
			}
		})
		wg.Go(func() {
			got, err := io.ReadAll(conn)
			if err != nil || sha256.Sum256(got) != sha256.Sum256(data) {
				t.Errorf("connection %d: %d bytes came back of %d, equal: %t, %v", i, len(got), len(data), bytes.Equal(got, data), err)
			}
		})
	}
	wg.Wait()
}

// The end of a connection arrives after its last bytes, from both sides.
func TestDelayer_ForwardsTheEnd(t *testing.T) {
	t.Parallel()
	bye := startDelayer(t, distance{trip: 20 * time.Millisecond}, func(conn net.Conn) { _, _ = conn.Write([]byte("bye")) })
	if got, err := io.ReadAll(dial(t, bye)); string(got) != "bye" || err != nil {
		t.Errorf("the server ends: %q, %v", got, err)
	}
	left := make(chan error, 1)
	leave := startDelayer(t, distance{trip: 20 * time.Millisecond}, func(conn net.Conn) {
		got, err := io.ReadAll(conn)
		if string(got) != "hello" {
			err = errors.Join(err, errors.New("got "+string(got)))
		}
		left <- err
	})
	conn := dial(t, leave)
	if _, err := conn.Write([]byte("hello")); err != nil {
		t.Fatal(err)
	}
	if err := conn.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-left; err != nil {
		t.Errorf("the client ends: %v", err)
	}
}

// A server that is down looks as it does without the proxy: the connection ends.
func TestDelayer_NoServer(t *testing.T) {
	t.Parallel()
	p, err := startProxy("127.0.0.1:1", distance{trip: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if n, err := dial(t, p.addr).Read(make([]byte, 1)); n != 0 || err == nil {
			t.Errorf("%d bytes, %v", n, err)
		}
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
}
