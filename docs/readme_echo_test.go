package docs_test

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"

	"github.com/labstack/echo/v4"
	"github.com/redis/go-redis/v9"
)

import (
	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/keyfuncs"
	echolock "github.com/reqlock/reqlock/middleware/echo"
)

func Example_echo() {
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer rdb.Close()
	pay := func(c echo.Context) error {
		lease, _ := echolock.LeaseFrom(c.Request().Context())
		return c.String(http.StatusOK, fmt.Sprintf("paid under lock %q", lease.Name()))
	}

	locks, err := core.New(rdb, core.Options{})
	if err != nil {
		log.Fatal(err)
	}
	oneAtATime := echolock.New(locks, echolock.Config{
		Key: keyfuncs.Prefix("order:", keyfuncs.PathValue("id")),
	})
	e := echo.New()
	e.POST("/orders/:id/pay", pay, oneAtATime)

	defer locks.Close(context.Background())
	w := httptest.NewRecorder()
	e.ServeHTTP(w, httptest.NewRequest("POST", "/orders/42/pay", nil))
	fmt.Println(w.Code, w.Body)
	// Output: 200 paid under lock "reqlock:order:42"
}
