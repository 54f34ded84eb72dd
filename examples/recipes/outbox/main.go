// Outbox is a service that stores orders and announces each of them: one instance at a time sends
// the messages, in their order.
package main

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/http"
	"os"
	"time"

	_ "github.com/glebarez/sqlite"
	"github.com/redis/go-redis/v9"

	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/examples/internal/demo"
)

const schema = `
CREATE TABLE IF NOT EXISTS orders (id INTEGER PRIMARY KEY, item TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS outbox (id INTEGER PRIMARY KEY AUTOINCREMENT, message TEXT NOT NULL)`

func main() {
	s := &shop{added: make(chan struct{}, 1)}
	demo.Main(demo.Program{
		Name: "outbox", What: "A shop with an outbox", Run: "go run -C examples/recipes ./outbox",
		Open: s.open, Work: s.work,
		Invite: func(base string) string { return "curl -X POST " + base + "/orders/tea; curl " + base + "/messages" },
	})
}

type shop struct {
	db    *sql.DB
	rdb   *redis.Client
	locks *core.Client
	added chan struct{} // tells this instance that the outbox has something
}

func (s *shop) open(rdb *redis.Client) (_ *core.Client, _ http.Handler, err error) {
	file := cmp.Or(os.Getenv("DATABASE"), ":memory:") // all instances use the same
	if s.db, err = sql.Open("sqlite", file+"?_pragma=busy_timeout(5000)"); err != nil {
		return nil, nil, err
	}
	s.db.SetMaxOpenConns(1) // each connection to :memory: has a database of its own
	if _, err = s.db.Exec(schema); err != nil {
		return nil, nil, err
	}
	s.rdb = rdb
	s.locks, err = core.New(rdb, core.Options{})
	mux := http.NewServeMux()
	mux.HandleFunc("POST /orders/{item}", s.order)
	mux.HandleFunc("GET /messages", s.messages)
	return s.locks, mux, err
}

// order stores the order and its message in one transaction: there is never one without the other.
func (s *shop) order(w http.ResponseWriter, r *http.Request) {
	tx, err := s.db.BeginTx(r.Context(), nil)
	if err == nil {
		defer tx.Rollback() // does nothing after Commit
		_, err = tx.Exec("INSERT INTO orders (item) VALUES ($1)", r.PathValue("item"))
	}
	if err == nil {
		_, err = tx.Exec("INSERT INTO outbox (message) VALUES ($1)", "ordered "+r.PathValue("item"))
	}
	if err == nil {
		err = tx.Commit()
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	select {
	case s.added <- struct{}{}:
	default:
	}
	w.WriteHeader(http.StatusCreated)
}

// work runs in every instance. One of them sends.
func (s *shop) work(ctx context.Context) error {
	return core.RunWhileHeld(ctx, s.locks.Lock("outbox"), func(ctx context.Context) error {
		for {
			if err := s.send(ctx); err != nil && ctx.Err() == nil {
				fmt.Println("The outbox is tried again:", err)
			}
			select {
			case <-s.added:
			case <-time.After(time.Second): // other instances add, too
			case <-ctx.Done(): // the lock is lost, or the program ends
				return context.Cause(ctx)
			}
		}
	})
}

// send empties the outbox. A crash after RPush sends a message again: receivers know it by its id.
func (s *shop) send(ctx context.Context) error {
	for {
		var id int64
		var message string
		err := s.db.QueryRowContext(ctx, "SELECT id, message FROM outbox ORDER BY id LIMIT 1").Scan(&id, &message)
		switch {
		case errors.Is(err, sql.ErrNoRows):
			return nil
		case err != nil:
			return err
		}
		if err := s.rdb.RPush(ctx, "messages", fmt.Sprint(id, " ", message)).Err(); err != nil { // your broker
			return err
		}
		if _, err := s.db.ExecContext(ctx, "DELETE FROM outbox WHERE id = $1", id); err != nil {
			return err
		}
	}
}

func (s *shop) messages(w http.ResponseWriter, r *http.Request) {
	for _, line := range s.rdb.LRange(r.Context(), "messages", 0, -1).Val() {
		fmt.Fprintln(w, line)
	}
}
