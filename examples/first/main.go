// First is the program of docs/start/first-handler.md: a Gin server with one guarded route.
//
//	go run ./examples/first   serves until Ctrl-C
//
// It needs only Go: Redis runs inside the process.
package main

import (
	"context"
	"log"
	"net/http"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/embedded"
	"github.com/reqlock/reqlock/keyfuncs"
	ginlock "github.com/reqlock/reqlock/middleware/gin"
)

func main() {
	server, err := embedded.Start() // Redis inside this process, until step 4
	if err != nil {
		log.Fatal(err)
	}
	locks, err := core.New(server.Client(), core.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close(context.Background())
	log.Fatal(routes(locks).Run("127.0.0.1:8080"))
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
