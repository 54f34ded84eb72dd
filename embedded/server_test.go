package embedded

import (
	"errors"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

func TestStart(t *testing.T) {
	t.Parallel()
	srv := start(t)

	host, port, err := net.SplitHostPort(srv.Addr())
	if err != nil || !net.ParseIP(host).IsLoopback() || port == "0" {
		t.Errorf("Addr() = %q, want a port of the loopback interface", srv.Addr())
	}
	if want := "redis://" + srv.Addr(); srv.URL() != want {
		t.Errorf("URL() = %q, want %q", srv.URL(), want)
	}
	if !srv.Embedded() {
		t.Error("Embedded() = false")
	}

	opts, err := redis.ParseURL(srv.URL())
	if err != nil {
		t.Fatal(err)
	}
	foreign := redis.NewClient(opts)
	defer foreign.Close()
	if err := foreign.Set(t.Context(), "k", "v", 0).Err(); err != nil {
		t.Fatalf("a client built from URL(): %v", err)
	}
	if got, err := srv.Client().Get(t.Context(), "k").Result(); got != "v" || err != nil {
		t.Errorf("Client() reads %q, %v; want what the other client wrote", got, err)
	}
}

func TestServersShareNothing(t *testing.T) {
	t.Parallel()
	one, two := start(t), start(t)
	if one.Addr() == two.Addr() {
		t.Fatalf("both listen on %s", one.Addr())
	}
	if err := one.Client().Set(t.Context(), "k", "v", 0).Err(); err != nil {
		t.Fatal(err)
	}
	if n, err := two.Client().Exists(t.Context(), "k").Result(); n != 0 || err != nil {
		t.Errorf("EXISTS in the other server = %d, %v; want 0", n, err)
	}
}

func TestClientsAreIndependent(t *testing.T) {
	t.Parallel()
	srv := start(t)
	one, two := srv.Client(), srv.Client()
	if one == two {
		t.Fatal("the same client twice: closing one would close both")
	}
	if err := one.Close(); err != nil {
		t.Fatal(err)
	}
	if err := two.Ping(t.Context()).Err(); err != nil {
		t.Errorf("PING of the second client after the first was closed: %v", err)
	}
	if err := srv.Close(); err != nil {
		t.Errorf("Close of a server one of whose clients is closed: %v", err)
	}
}

func TestClose(t *testing.T) {
	t.Parallel()
	srv := start(t)
	rdb := srv.Client()

	// Clients may be idle, subscribed or blocked when the server closes.
	if err := rdb.Ping(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	sub := rdb.Subscribe(t.Context(), "c")
	if _, err := sub.Receive(t.Context()); err != nil {
		t.Fatal(err)
	}
	foreign := redis.NewClient(&redis.Options{Addr: srv.Addr(), MaxRetries: -1})
	defer foreign.Close()
	blocked := make(chan error, 1)
	go func() { blocked <- foreign.BLPop(t.Context(), 0, "list").Err() }()
	idle, err := net.Dial("tcp", srv.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer idle.Close()

	var callers sync.WaitGroup
	for range 8 {
		callers.Go(func() {
			if err := srv.Close(); err != nil {
				t.Errorf("Close: %v", err)
			}
			_ = idle.SetReadDeadline(time.Now().Add(10 * time.Second))
			if _, err := idle.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("reading from a connection after Close: %v, want it to be closed", err)
			}
		})
	}
	callers.Wait()

	if err := <-blocked; err == nil {
		t.Error("a blocked command succeeded although its server was closed")
	}
	if err := rdb.Ping(t.Context()).Err(); !errors.Is(err, redis.ErrClosed) {
		t.Errorf("a client after Close answers %v, want redis.ErrClosed", err)
	}
	if err := srv.Client().Ping(t.Context()).Err(); !errors.Is(err, redis.ErrClosed) {
		t.Errorf("a client taken after Close answers %v, want redis.ErrClosed", err)
	}
	if srv.Addr() == "" || srv.URL() != "redis://"+srv.Addr() {
		t.Errorf("after Close Addr() = %q and URL() = %q, want both unchanged", srv.Addr(), srv.URL())
	}
	sub.Close()
}

// A subscriber that does not read holds up the whole server once the buffers
// between them are full. Close must end that, too.
func TestCloseWithStuckSubscriber(t *testing.T) {
	t.Parallel()
	srv := start(t)
	subscriber, err := net.Dial("tcp", srv.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer subscriber.Close()
	if _, err := subscriber.Write([]byte("*2\r\n$9\r\nSUBSCRIBE\r\n$1\r\nc\r\n")); err != nil {
		t.Fatal(err)
	}
	if _, err := subscriber.Read(make([]byte, 100)); err != nil {
		t.Fatal(err)
	}

	publisher := redis.NewClient(&redis.Options{Addr: srv.Addr(), MaxRetries: -1, ReadTimeout: time.Second})
	defer publisher.Close()
	message := strings.Repeat("m", 1<<20)
	for i := 0; err == nil; i++ {
		if i > 1000 {
			t.Fatal("a gigabyte of messages fits in the buffers: this shows nothing")
		}
		err = publisher.Publish(t.Context(), "c", message).Err()
	}

	closed := make(chan error)
	go func() { closed <- srv.Close() }()
	select {
	case err := <-closed:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(30 * time.Second):
		subscriber.Close()
		<-closed
		t.Error("Close waits for a subscriber that does not read")
	}
}

func TestClientWhileClosing(t *testing.T) {
	t.Parallel()
	srv := start(t)
	var clients sync.WaitGroup
	for range 16 {
		clients.Go(func() {
			// The client may be open or closed, but it must be closed in the end, or goleak finds
			// its goroutines.
			_ = srv.Client().Ping(t.Context()).Err()
		})
	}
	if err := srv.Close(); err != nil {
		t.Error(err)
	}
	clients.Wait()
}
