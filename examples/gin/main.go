// Gin is a web server that transfers money between accounts. A transfer holds the locks of both
// accounts or of neither. All requests acquire their locks in the same order, so opposite transfers
// never deadlock.
//
//	go run ./examples/gin         shows opposite transfers, then serves until Ctrl-C
//	go run ./examples/gin -once   exits after the demonstration
//
// It needs only Go: Redis runs inside the process unless REDIS_URL is set.
package main

import (
	"net/http"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/redis/go-redis/v9"

	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/examples/internal/demo"
	"github.com/reqlock/reqlock/keyfuncs"
	ginlock "github.com/reqlock/reqlock/middleware/gin"
)

const (
	waitTime = 5 * time.Second
	workTime = 300 * time.Millisecond
)

func main() {
	demo.Main(demo.Program{Name: "gin", What: "A bank", Open: open, Demonstrate: demonstrate, Invite: invitation})
}

func open(rdb *redis.Client) (*core.Client, http.Handler, error) {
	locks, err := core.New(rdb, core.Options{}) // demo.Main closes them with the server
	if err != nil {
		return nil, nil, err
	}
	bothAccounts := ginlock.New(locks, ginlock.Config{
		Keys: []keyfuncs.Func{
			keyfuncs.Prefix("account:", keyfuncs.JSON("/from")),
			keyfuncs.Prefix("account:", keyfuncs.JSON("/to")),
		},
		WaitTime: waitTime, // for both locks together, then 409
	})

	b := &bank{balances: map[string]int64{"alice": 100, "bob": 100, "carol": 100, "dave": 100, "erin": 100}}
	gin.SetMode(gin.ReleaseMode)
	router := gin.New()
	router.Use(gin.Recovery())
	router.GET("/accounts", func(c *gin.Context) { c.JSON(http.StatusOK, b.all()) })
	// Reads the body again that the keys came from.
	router.POST("/transfers", bothAccounts, b.transfer)
	return locks, router, nil
}

// A transfer is the request body. The keys are strings in the body too, so an account has one
// spelling.
type transfer struct {
	From   string `json:"from"`
	To     string `json:"to"`
	Amount int64  `json:"amount"`
}

// transfer reads two balances, takes some time, and writes both. Without the locks, a concurrent
// transfer of one of the accounts would create or destroy money.
func (b *bank) transfer(c *gin.Context) {
	began := time.Now()
	var t transfer
	if err := c.ShouldBindJSON(&t); err != nil {
		c.String(http.StatusBadRequest, "want {\"from\": \"alice\", \"to\": \"bob\", \"amount\": 10}: %v\n", err)
		return
	}
	from, known := b.balance(t.From)
	to, alsoKnown := b.balance(t.To)
	switch {
	case !known || !alsoKnown:
		c.String(http.StatusNotFound, "there is no such account; see GET /accounts\n")
		return
	case t.From == t.To:
		c.String(http.StatusBadRequest, "from and to are the same account\n")
		return
	case t.Amount <= 0:
		c.String(http.StatusBadRequest, "amount is %d; want a positive number\n", t.Amount)
		return
	case t.Amount > from:
		c.String(http.StatusUnprocessableEntity, "%s has only %d\n", t.From, from)
		return
	}
	// The client disconnected, or a lock is lost.
	if err := demo.Work(c.Request.Context(), workTime); err != nil {
		c.String(http.StatusServiceUnavailable, "%v\n", err)
		return
	}
	b.set(map[string]int64{t.From: from - t.Amount, t.To: to + t.Amount})
	demo.Time(c.Writer.Header(), began)
	c.String(http.StatusOK, "%s has paid %d to %s\n", t.From, t.Amount, t.To)
}
