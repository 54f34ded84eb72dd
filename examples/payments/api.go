package main

import (
	"context"
	_ "embed"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/embedded"
	"github.com/reqlock/reqlock/examples/internal/demo"
	"github.com/reqlock/reqlock/keyfuncs"
	ginlock "github.com/reqlock/reqlock/middleware/gin"
	"github.com/reqlock/reqlock/middleware/idempotency"
)

const (
	workTime = 300 * time.Millisecond
	waitTime = 10 * time.Second
	// Frees the key of a crashed process soon for this demonstration; services keep the default of
	// 30s.
	leaseFor = 5 * time.Second
)

// child runs the API. It serves until its standard input ends.
func child() error {
	signal.Ignore(os.Interrupt, syscall.SIGTERM) // the parent decides when to stop
	listener, err := net.FileListener(os.NewFile(3, "listener"))
	if err != nil {
		return err
	}
	redis, err := embedded.FromEnv() // the parent's
	if err != nil {
		return err
	}
	defer redis.Close()
	stop := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // it ends with an error, too
		close(stop)
	}()
	return serve(listener, redis, stop)
}

// serve runs the API until stop is closed or it fails.
func serve(listener net.Listener, redis *embedded.Server, stop <-chan struct{}) error {
	locks, err := core.New(redis.Client(), core.Options{WatchdogTimeout: leaseFor})
	if err != nil {
		return err
	}
	server := &http.Server{Handler: routes(locks, &bank{redis.Client()}), ReadHeaderTimeout: 5 * time.Second}
	// On a reused connection a browser retries a lost request itself, which would hide the loss.
	server.SetKeepAlivesEnabled(false)
	served := make(chan error, 1)
	go func() {
		served <- server.Serve(listener)
		close(served)
	}()
	select {
	case <-stop:
	case err = <-served:
	}

	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	closed := make(chan error, 1) // Shutdown does not wait for registered functions
	server.RegisterOnShutdown(func() { closed <- locks.Close(ctx) })
	err = errors.Join(err, server.Shutdown(ctx), <-closed)
	<-served
	return err
}

//go:embed page.html
var page []byte

func routes(locks *core.Client, b *bank) http.Handler {
	once := ginlock.Idempotent(locks, idempotency.Config{
		Scope:    keyfuncs.Header("X-Account"), // a service would authenticate its customers
		WaitTime: waitTime,
	})
	gin.SetMode(gin.ReleaseMode)
	router := gin.New()
	router.Use(gin.Recovery())
	router.GET("/", func(c *gin.Context) { c.Data(http.StatusOK, "text/html; charset=utf-8", page) })
	router.GET("/ledger", b.show)
	router.POST("/payments", once, b.pay)
	return router
}

// A payment is the request body.
type payment struct {
	To     string `json:"to"`
	Amount int64  `json:"amount"`
	// Crash after the money has moved and before the result is recorded.
	Crash bool `json:"crash"`
}

// pay moves money. It may run again for the same payment after a crash. The key tells the bank that
// it is the same payment.
func (b *bank) pay(c *gin.Context) {
	ctx := c.Request.Context()
	var p payment
	if err := c.ShouldBindJSON(&p); err != nil || p.To == "" || p.Amount <= 0 {
		c.JSON(http.StatusBadRequest, gin.H{"error": `want {"to": "bert", "amount": 10}`})
		return
	}
	if err := demo.Work(ctx, workTime); err != nil { // the key is lost
		c.JSON(http.StatusServiceUnavailable, gin.H{"error": err.Error()})
		return
	}
	charge, first, err := b.charge(ctx, idempotency.DownstreamKey(ctx, "bank", "charge"), p.To, p.Amount)
	if err != nil {
		c.JSON(http.StatusBadGateway, gin.H{"error": err.Error()})
		return
	}
	if p.Crash && first {
		crash()
	}
	c.JSON(http.StatusCreated, charge)
}

// crash ends this process like kill -9, without any cleanup.
func crash() {
	self, err := os.FindProcess(os.Getpid())
	if err == nil {
		err = self.Kill()
	}
	panic(err) // a killed process does not get here
}

// show lists the bank's charges.
func (b *bank) show(c *gin.Context) {
	charges, calls, err := b.ledger(c.Request.Context())
	if err != nil {
		c.JSON(http.StatusBadGateway, gin.H{"error": err.Error()})
		return
	}
	c.JSON(http.StatusOK, gin.H{"charges": charges, "calls": calls})
}
