// Pgx is a service with Echo and pgx that sells from a stock. Postgres refuses the write of a
// request that has lost its lock without noticing.
package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/labstack/echo/v4"
	"github.com/redis/go-redis/v9"

	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/examples/internal/demo"
	"github.com/reqlock/reqlock/guard"
	"github.com/reqlock/reqlock/keyfuncs"
	echolock "github.com/reqlock/reqlock/middleware/echo"
)

const schema = `
CREATE TABLE IF NOT EXISTS items (
	id    text PRIMARY KEY,
	pieces integer NOT NULL,
	token bigint NOT NULL DEFAULT 0 -- of the last request that wrote this row
);
INSERT INTO items (id, pieces) VALUES ('teapot', 5) ON CONFLICT DO NOTHING`

func main() {
	s := &shop{}
	demo.Main(demo.Program{
		Name: "pgx", What: "A shop with Echo and pgx", Run: "go run -C examples/recipes ./pgx",
		Open: s.open,
		Invite: func(base string) string {
			buy := "curl -i -X POST " + base + "/items/teapot/buy"
			return buy + " & " + buy + "; wait"
		},
	})
}

type shop struct{ db *pgxpool.Pool }

func (s *shop) open(rdb *redis.Client) (_ *core.Client, _ http.Handler, err error) {
	if os.Getenv("DATABASE_URL") == "" {
		return nil, nil, errors.New("set DATABASE_URL, such as postgres://postgres:secret@localhost/postgres")
	}
	s.db, err = pgxpool.New(context.Background(), os.Getenv("DATABASE_URL"))
	if err != nil {
		return nil, nil, err
	}
	if _, err := s.db.Exec(context.Background(), schema); err != nil {
		return nil, nil, err
	}
	locks, err := core.New(rdb, core.Options{})
	if err != nil {
		return nil, nil, err
	}
	fenced := echolock.New(locks, echolock.Config{
		Key:      keyfuncs.Prefix("item:", keyfuncs.PathValue("id")),
		Mode:     guard.ModeFenced,
		WaitTime: 5 * time.Second,
	})
	e := echo.New()
	e.POST("/items/:id/buy", s.buy, fenced)
	return locks, e, nil
}

// buy reads, decides and writes. The lock keeps other requests out meanwhile, and the token keeps
// out the write of one that comes too late.
func (s *shop) buy(c echo.Context) error {
	lease, ok := echolock.LeaseFrom(c.Request().Context())
	if !ok {
		return errors.New("the guard is missing")
	}
	token, _ := lease.Token() // larger than that of every earlier holder
	ctx, item := c.Request().Context(), c.Param("id")
	var pieces int
	switch err := s.db.QueryRow(ctx, "SELECT pieces FROM items WHERE id = $1", item).Scan(&pieces); {
	case errors.Is(err, pgx.ErrNoRows):
		return echo.NewHTTPError(http.StatusNotFound, "no such item")
	case err != nil:
		return err
	case pieces == 0:
		return echo.NewHTTPError(http.StatusGone, "sold out")
	}
	tag, err := s.db.Exec(ctx, "UPDATE items SET pieces = $1, token = $2 WHERE id = $3 AND token < $2", pieces-1, int64(token), item)
	if err != nil {
		return err
	}
	if tag.RowsAffected() == 0 {
		return echo.NewHTTPError(http.StatusConflict, "a later request has written this item")
	}
	return c.String(http.StatusOK, fmt.Sprintf("%s bought, %d left\n", item, pieces-1))
}
