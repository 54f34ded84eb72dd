// Package sql tests the SQL of docs/guides/fencing.md on SQLite.
package sql

import (
	"context"
	"database/sql"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	_ "github.com/ncruces/go-sqlite3/driver"
	"github.com/reqlock/reqlock/internal/lab/redistest"
	"go.uber.org/goleak"

	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/embedded"
	"github.com/reqlock/reqlock/guard"
	"github.com/reqlock/reqlock/keyfuncs"
	httplock "github.com/reqlock/reqlock/middleware/nethttp"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(redistest.Settled(m)) }

func pay(db *sql.DB) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		lease, ok := httplock.LeaseFrom(r.Context())
		if !ok {
			http.Error(w, "the guard is missing", http.StatusInternalServerError)
			return
		}
		token, _ := lease.Token() // larger than that of every earlier holder
		result, err := db.ExecContext(r.Context(),
			"UPDATE orders SET state = 'paid', token = $1 WHERE id = $2 AND token < $1", int64(token), r.PathValue("id"))
		if err != nil {
			http.Error(w, "database", http.StatusInternalServerError)
			return
		}
		if n, err := result.RowsAffected(); err != nil || n == 0 {
			http.Error(w, "a later request has the order", http.StatusConflict)
		}
	}
}

// A request that loses its lock before it writes changes nothing: the one after it has written with
// a larger token.
func TestFencing(t *testing.T) {
	db, err := sql.Open("sqlite3", "file:"+filepath.Join(t.TempDir(), "orders.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	page, err := os.ReadFile("../../../../docs/guides/fencing.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, block := range regexp.MustCompile("(?s)```sql\n(.*?)```").FindAllSubmatch(page, -1) {
		if _, err := db.Exec(string(block[1])); err != nil {
			t.Fatalf("%v in %s", err, block[1])
		}
	}
	if _, err := db.Exec("INSERT INTO orders (id, state) VALUES ('42', 'open')"); err != nil {
		t.Fatal(err)
	}
	redis, err := embedded.Start()
	if err != nil {
		t.Fatal(err)
	}
	defer redis.Close()
	locks, err := core.New(redis.Client(), core.Options{})
	if err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	defer locks.Close(ctx)

	fenced := httplock.New(locks, httplock.Config{
		Key:      keyfuncs.Prefix("order:", keyfuncs.PathValue("id")),
		Mode:     guard.ModeFenced,
		WaitTime: 2 * time.Second,
	})
	mux := http.NewServeMux()
	mux.Handle("POST /orders/{id}/pay", fenced(pay(db)))

	slow := httplock.New(locks, httplock.Config{
		Key:       keyfuncs.Prefix("order:", keyfuncs.PathValue("id")),
		Mode:      guard.ModeFenced,
		LeaseTime: 3 * time.Second,
	})
	mux.Handle("POST /slow/{id}", slow(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		<-r.Context().Done() // its lease is over; another request has the order before it goes on
		if got := answer(mux, "/orders/42/pay"); got != "200 " {
			t.Errorf("the next request: %s", got)
		}
		// A handler that ignores its context.
		pay(db)(w, r.WithContext(context.WithoutCancel(r.Context())))
	})))
	if got := answer(mux, "/slow/42"); got != "409 a later request has the order\n" {
		t.Errorf("the late request: %s", got)
	}
	var token int
	if err := db.QueryRow("SELECT token FROM orders WHERE id = '42' AND state = 'paid'").Scan(&token); err != nil || token != 2 {
		t.Errorf("the order has token %d (%v), want 2", token, err)
	}
}

func answer(h http.Handler, path string) string {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest("POST", path, nil))
	return fmt.Sprint(w.Code, " ", w.Body)
}
