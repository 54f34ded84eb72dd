// Gorm is a service with Gin and gorm whose orders are paid once at a time. The database refuses
// the write of a request that has lost its lock without noticing.
package main

import (
	"cmp"
	"net/http"
	"os"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/glebarez/sqlite"
	"github.com/redis/go-redis/v9"
	"gorm.io/gorm"
	"gorm.io/gorm/clause"

	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/examples/internal/demo"
	"github.com/reqlock/reqlock/guard"
	"github.com/reqlock/reqlock/keyfuncs"
	ginlock "github.com/reqlock/reqlock/middleware/gin"
)

// An Order has the token of the last request that wrote it.
type Order struct {
	ID    string
	State string
	Token uint64
}

func main() {
	demo.Main(demo.Program{
		Name: "gorm", What: "A shop with Gin and gorm", Run: "go run -C examples/recipes ./gorm", Open: open,
		Invite: func(base string) string {
			pay := "curl -i -X POST " + base + "/orders/42/pay"
			return pay + " & " + pay + "; wait"
		},
	})
}

func open(rdb *redis.Client) (*core.Client, http.Handler, error) {
	file := cmp.Or(os.Getenv("DATABASE"), "file::memory:?cache=shared") // all instances use the same
	db, err := gorm.Open(sqlite.Open(file))
	if err != nil {
		return nil, nil, err
	}
	if err := db.AutoMigrate(&Order{}); err != nil {
		return nil, nil, err
	}
	orders := []Order{{ID: "42", State: "open"}, {ID: "43", State: "open"}}
	if err := db.Clauses(clause.OnConflict{DoNothing: true}).Create(&orders).Error; err != nil {
		return nil, nil, err
	}
	locks, err := core.New(rdb, core.Options{})
	if err != nil {
		return nil, nil, err
	}
	fenced := ginlock.New(locks, ginlock.Config{
		Key:      keyfuncs.Prefix("order:", keyfuncs.PathValue("id")),
		Mode:     guard.ModeFenced,
		WaitTime: 5 * time.Second,
	})
	gin.SetMode(gin.ReleaseMode)
	router := gin.New()
	router.Use(gin.Recovery())
	router.POST("/orders/:id/pay", fenced, pay(db))
	return locks, router, nil
}

func pay(db *gorm.DB) gin.HandlerFunc {
	return func(c *gin.Context) {
		lease, ok := ginlock.LeaseFrom(c)
		if !ok {
			c.String(http.StatusInternalServerError, "the guard is missing\n")
			return
		}
		token, _ := lease.Token() // larger than that of every earlier holder
		result := db.WithContext(c.Request.Context()).Model(&Order{}).
			Where("id = ? AND token < ?", c.Param("id"), token). // in the statement that writes, not before it
			Updates(Order{State: "paid", Token: token})
		switch {
		case result.Error != nil:
			c.String(http.StatusServiceUnavailable, "%v\n", result.Error)
		case result.RowsAffected == 0:
			c.String(http.StatusConflict, "there is no order %s, or a later request has written it\n", c.Param("id"))
		default:
			c.String(http.StatusOK, "order %s is paid, with token %d\n", c.Param("id"), token)
		}
	}
}
