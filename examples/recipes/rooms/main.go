// Rooms is a service of rooms in which one host speaks and everyone listens, over WebSocket. Host
// and listeners may be connected to different instances.
package main

import (
	"context"
	"net/http"
	"time"

	"github.com/coder/websocket"
	"github.com/redis/go-redis/v9"

	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/examples/internal/demo"
	"github.com/reqlock/reqlock/keyfuncs"
	httplock "github.com/reqlock/reqlock/middleware/nethttp"
)

func main() {
	s := &rooms{stopping: make(chan struct{})}
	demo.Main(demo.Program{
		Name: "rooms", What: "Rooms with one host", Run: "go run -C examples/recipes ./rooms",
		Open: s.open, Work: s.untilStop,
		Invite: func(base string) string { return "websocat ws" + base[4:] + "/rooms/blue/host" },
	})
}

type rooms struct {
	rdb      *redis.Client
	stopping chan struct{} // is closed when the program stops
}

func (s *rooms) open(rdb *redis.Client) (*core.Client, http.Handler, error) {
	locks, err := core.New(rdb, core.Options{WatchdogTimeout: 10 * time.Second}) // a crashed host's room is free then
	if err != nil {
		return nil, nil, err
	}
	oneHost := httplock.New(locks, httplock.Config{Key: keyfuncs.Prefix("room:", keyfuncs.PathValue("id"))})
	s.rdb = rdb
	mux := http.NewServeMux()
	mux.Handle("GET /rooms/{id}/host", oneHost(http.HandlerFunc(s.host))) // 409 if the room has a host
	mux.HandleFunc("GET /rooms/{id}", s.listen)
	return locks, mux, nil
}

// host holds the room for as long as its handler runs. Its context ends if the lock is lost.
func (s *rooms) host(w http.ResponseWriter, r *http.Request) {
	conn, err := websocket.Accept(w, r, nil)
	if err != nil {
		return // Accept has answered
	}
	defer conn.CloseNow()
	ended := make(chan struct{})
	defer close(ended)
	go func() { // Read returns when the connection is closed
		select {
		case <-r.Context().Done():
			_ = conn.Close(websocket.StatusTryAgainLater, "the room may have another host")
		case <-s.stopping:
			_ = conn.Close(websocket.StatusGoingAway, "the server stops")
		case <-ended:
		}
	}()
	for {
		_, text, err := conn.Read(context.WithoutCancel(r.Context()))
		if err != nil {
			return // the guard releases the lock
		}
		if err := s.rdb.Publish(r.Context(), channel(r), text).Err(); err != nil {
			_ = conn.Close(websocket.StatusInternalError, "Redis cannot be reached")
		}
	}
}

func (s *rooms) listen(w http.ResponseWriter, r *http.Request) {
	messages := s.rdb.Subscribe(r.Context(), channel(r))
	defer messages.Close()
	if _, err := messages.Receive(r.Context()); err != nil { // subscribed
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	conn, err := websocket.Accept(w, r, nil)
	if err != nil {
		return
	}
	defer conn.CloseNow()
	ctx := conn.CloseRead(r.Context()) // ends when the listener leaves
	for {
		select {
		case m := <-messages.Channel():
			if conn.Write(ctx, websocket.MessageText, []byte(m.Payload)) != nil {
				return
			}
		case <-s.stopping:
			_ = conn.Close(websocket.StatusGoingAway, "the server stops")
			return
		case <-ctx.Done():
			return
		}
	}
}

func channel(r *http.Request) string { return "room:" + r.PathValue("id") }

// untilStop ends the connections: Shutdown would not, and Close waits for the hosts' locks.
func (s *rooms) untilStop(ctx context.Context) error {
	<-ctx.Done()
	close(s.stopping)
	return nil
}
