// Echo is a web server that sells from a limited stock. Many requests may read an item at once, but
// none while it is being bought.
//
//	go run ./examples/echo         shows a rush for the last pieces, then serves until Ctrl-C
//	go run ./examples/echo -once   exits after the demonstration
//
// It needs only Go: Redis runs inside the process unless REDIS_URL is set.
package main

import (
	"fmt"
	"net/http"
	"time"

	"github.com/labstack/echo/v4"
	"github.com/labstack/echo/v4/middleware"
	"github.com/redis/go-redis/v9"

	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/examples/internal/demo"
	"github.com/reqlock/reqlock/guard"
	"github.com/reqlock/reqlock/keyfuncs"
	echolock "github.com/reqlock/reqlock/middleware/echo"
)

const (
	waitTime = 10 * time.Second
	workTime = 100 * time.Millisecond
)

func main() {
	demo.Main(demo.Program{Name: "echo", What: "A shop", Open: open, Demonstrate: demonstrate, Invite: invitation})
}

func open(rdb *redis.Client) (*core.Client, http.Handler, error) {
	locks, err := core.New(rdb, core.Options{}) // demo.Main closes them with the server
	if err != nil {
		return nil, nil, err
	}
	oneBuyer := echolock.New(locks, echolock.Config{
		Key:      keyfuncs.Prefix("item:", keyfuncs.PathValue("id")),
		Mode:     guard.ModeReadWrite,
		WaitTime: waitTime, // 409 after that
	})

	s := &stock{left: map[string]int{"teapot": 5, "kettle": 3}}
	e := echo.New()
	e.Use(middleware.Recover())
	items := e.Group("/items/:id", oneBuyer)
	items.GET("", s.show)
	items.POST("/buy", s.buy)
	return locks, e, nil
}

var (
	errNoItem  = echo.NewHTTPError(http.StatusNotFound, "no such item; try teapot or kettle")
	errSoldOut = echo.NewHTTPError(http.StatusGone, "sold out")
)

// show takes some time as well, and returns how many are left. The read lock keeps buyers out
// meanwhile.
func (s *stock) show(c echo.Context) error {
	began := time.Now()
	if err := demo.Work(c.Request().Context(), workTime); err != nil {
		return echo.NewHTTPError(http.StatusServiceUnavailable, err.Error())
	}
	left, known := s.read(c.Param("id"))
	if !known {
		return errNoItem
	}
	demo.Time(c.Response().Header(), began)
	return c.String(http.StatusOK, fmt.Sprintf("%d left\n", left))
}

// buy reads the number left, takes some time, and writes one less. Without the lock, concurrent
// buyers would get the same piece.
func (s *stock) buy(c echo.Context) error {
	began, item := time.Now(), c.Param("id")
	left, known := s.read(item)
	switch {
	case !known:
		return errNoItem
	case left == 0:
		return errSoldOut
	}
	// The client disconnected, or the lock is lost.
	if err := demo.Work(c.Request().Context(), workTime); err != nil {
		return echo.NewHTTPError(http.StatusServiceUnavailable, err.Error())
	}
	s.write(item, left-1)
	demo.Time(c.Response().Header(), began)
	return c.String(http.StatusOK, fmt.Sprintf("%s bought, %d left\n", item, left-1))
}
