// First is the first program of the docs: a Gin server with one guarded route.
//
//	go run ./examples/first   serves until Ctrl-C
//
// It needs only Go: Redis runs inside the process.
package main

import (
	"context"
	"flag"
	"log"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/embedded"
	"github.com/reqlock/reqlock/keyfuncs"
	ginlock "github.com/reqlock/reqlock/middleware/gin"
)

func main() {
	addr := flag.String("addr", "127.0.0.1:8080", "`host:port` to listen on")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	redis, err := embedded.Start() // Redis inside this process, until step 4
	if err != nil {
		log.Fatal(err)
	}
	locks, err := core.New(redis.Client(), core.Options{})
	if err != nil {
		log.Fatal(err)
	}
	server := &http.Server{Addr: *addr, Handler: routes(locks)}
	go func() {
		if err := server.ListenAndServe(); err != http.ErrServerClosed {
			log.Fatal(err)
		}
	}()
	<-ctx.Done()
	if err := server.Shutdown(context.Background()); err != nil { // requests in progress finish
		log.Print(err)
	}
	locks.Close(context.Background())
}

func routes(locks *core.Client) *gin.Engine {
	oneAtATime := ginlock.New(locks, ginlock.Config{
		Key: keyfuncs.Prefix("order:", keyfuncs.PathValue("id")), // one order, one request
	})
	router := gin.Default()
	router.POST("/orders/:id/pay", oneAtATime, pay)
	return router
}

func pay(c *gin.Context) {
	time.Sleep(2 * time.Second) // your work
	c.String(http.StatusOK, "order %s is paid\n", c.Param("id"))
}
