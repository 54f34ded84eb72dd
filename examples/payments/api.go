package main

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/embedded"
	"github.com/reqlock/reqlock/examples/internal/demo"
	"github.com/reqlock/reqlock/idempotency"
	"github.com/reqlock/reqlock/keyfuncs"
	ginlock "github.com/reqlock/reqlock/middleware/gin"
)

const (
	workTime = 400 * time.Millisecond
	waitTime = 10 * time.Second
	// Frees the key of a crashed process soon, for this demonstration. Services keep the default of
	// 30s.
	leaseFor = 3 * time.Second
	// Time for the page to show that the bank has charged, before the process crashes.
	crashDelay = 200 * time.Millisecond
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
	events := journal{redis.Client()}
	locks, err := core.New(redis.Client(), core.Options{WatchdogTimeout: leaseFor, Observer: events.observer()})
	if err != nil {
		return err
	}
	api := &api{locks: locks, bank: bank{redis.Client()}, journal: events, stopping: stop}
	server := &http.Server{Handler: sameSite(api.routes()), ReadHeaderTimeout: 5 * time.Second}
	// On a reused connection a browser retries a lost request itself, which would hide the loss.
	server.SetKeepAlivesEnabled(false)
	events.add(context.Background(), stepStarted, strconv.Itoa(os.Getpid()))
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

// An api is what one process serves.
type api struct {
	locks    *core.Client
	bank     bank
	journal  journal
	stopping <-chan struct{} // ends streams of events
	doomed   atomic.Int32    // payments that have charged and will die with the process
}

// routes returns two payment routes with the same handler. One has the middleware.
func (a *api) routes() http.Handler {
	once := ginlock.Idempotent(a.locks, idempotency.Config{
		Scope:    keyfuncs.Header("X-Account"), // a service would authenticate its customers
		WaitTime: waitTime,
	})
	gin.SetMode(gin.ReleaseMode)
	router := gin.New()
	router.Use(gin.Recovery())
	router.GET("/", file("page.html", "text/html; charset=utf-8"))
	router.GET("/page.css", file("page.css", "text/css; charset=utf-8"))
	router.GET("/page.js", file("page.js", "text/javascript; charset=utf-8"))
	router.GET("/events", a.journal.stream(a.stopping))
	router.GET("/ledger", a.ledger)
	router.POST("/payments", a.journal.follow("with"), once, a.pay)
	router.POST("/unguarded/payments", a.journal.follow("without"), a.pay)
	return router
}

// A payment is the request body.
type payment struct {
	To     string `json:"to"`
	Amount int64  `json:"amount"`
}

// pay moves money. With the middleware, it may run again for the same payment after a crash: then
// DownstreamKey tells the bank that it is the same payment. Without, DownstreamKey is empty.
func (a *api) pay(c *gin.Context) {
	ctx := c.Request.Context()
	var p payment
	if err := c.ShouldBindJSON(&p); err != nil || p.To == "" || p.Amount <= 0 {
		c.JSON(http.StatusBadRequest, gin.H{"error": `want {"to": "bert", "amount": 10}`})
		return
	}
	a.journal.add(ctx, stepRunning, strconv.Itoa(os.Getpid()))
	if err := demo.Work(ctx, workTime); err != nil { // the key is lost
		c.JSON(http.StatusServiceUnavailable, gin.H{"error": err.Error()})
		return
	}
	charge, first, err := a.bank.charge(ctx, idempotency.DownstreamKey(ctx, "bank", "charge"), p.To, p.Amount)
	if err != nil {
		c.JSON(http.StatusBadGateway, gin.H{"error": err.Error()})
		return
	}
	if !first {
		a.journal.add(ctx, stepKnown, charge.ID)
	} else {
		a.journal.add(ctx, stepCharged, charge.ID)
		a.perhapsCrash(c)
	}
	c.JSON(http.StatusCreated, charge)
}

// perhapsCrash crashes the process, after the money has moved and before the result is recorded, if
// the request has the header X-Crash-After. With "2", the process crashes when a second such
// payment has moved its money, and the first waits for that.
func (a *api) perhapsCrash(c *gin.Context) {
	after, err := strconv.Atoi(c.GetHeader("X-Crash-After"))
	if err != nil || after < 1 {
		return
	}
	if int(a.doomed.Add(1)) >= after {
		time.Sleep(crashDelay)
		crash()
	}
	select {
	case <-time.After(waitTime):
		crash()
	case <-a.stopping:
	}
}

// crash ends this process like kill -9, without any cleanup.
func crash() {
	self, err := os.FindProcess(os.Getpid())
	if err == nil {
		err = self.Kill()
	}
	panic(err) // a killed process does not get here
}

// ledger lists the bank's charges.
func (a *api) ledger(c *gin.Context) {
	charges, calls, err := a.bank.ledger(c.Request.Context())
	if err != nil {
		c.JSON(http.StatusBadGateway, gin.H{"error": err.Error()})
		return
	}
	c.JSON(http.StatusOK, gin.H{"charges": charges, "calls": calls})
}
