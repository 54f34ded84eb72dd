package docs_test

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"

	"github.com/gin-gonic/gin"
	"github.com/redis/go-redis/v9"
)

import (
	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/keyfuncs"
	ginlock "github.com/reqlock/reqlock/middleware/gin"
)

func Example_gin() {
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer rdb.Close()
	pay := func(c *gin.Context) {
		lease, _ := ginlock.LeaseFrom(c.Request.Context())
		c.String(http.StatusOK, "paid under lock %q", lease.Name())
	}

	locks, err := core.New(rdb, core.Options{})
	if err != nil {
		log.Fatal(err)
	}
	oneAtATime := ginlock.New(locks, ginlock.Config{
		Key: keyfuncs.Prefix("order:", keyfuncs.PathValue("id")),
	})
	router := gin.New()
	router.POST("/orders/:id/pay", oneAtATime, pay)

	defer locks.Close(context.Background())
	w := httptest.NewRecorder()
	router.ServeHTTP(w, httptest.NewRequest("POST", "/orders/42/pay", nil))
	fmt.Println(w.Code, w.Body)
	// Output: 200 paid under lock "reqlock:order:42"
}
