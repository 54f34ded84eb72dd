package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/labstack/echo/v4"

	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/guard"
	"github.com/reqlock/reqlock/keyfuncs"
	echolock "github.com/reqlock/reqlock/middleware/echo"
	ginlock "github.com/reqlock/reqlock/middleware/gin"
	httplock "github.com/reqlock/reqlock/middleware/nethttp"
)

const (
	s6        = "S6"
	noLock    = "no lock"
	requests  = "requests/s"
	loadConns = 64
)

// A framework makes a server of a route /orders/{id} with a middleware of ours, or with a lock by hand, or without any.
type framework struct {
	name   string
	plain  func() http.Handler
	ours   func(*core.Client) http.Handler
	byHand func(lock lockByHand) http.Handler
}

// A lockByHand runs a handler under the lock of an order.
type lockByHand func(ctx context.Context, order string, handler func()) error

const answer = "ok\n"

func handle(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, answer) } // the client notices

var byOrder = guard.Config{Key: keyfuncs.PathValue("id"), WaitTime: 5 * time.Second}

var frameworks = []framework{
	{
		name:  "net/http",
		plain: func() http.Handler { return serveMux(http.HandlerFunc(handle)) },
		ours: func(c *core.Client) http.Handler {
			return serveMux(httplock.New(c, byOrder)(http.HandlerFunc(handle)))
		},
		byHand: func(lock lockByHand) http.Handler {
			return serveMux(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if err := lock(r.Context(), r.PathValue("id"), func() { handle(w, r) }); err != nil {
					http.Error(w, err.Error(), http.StatusServiceUnavailable)
				}
			}))
		},
	},
	{
		name:  "Gin",
		plain: func() http.Handler { return ginEngine(handleGin) },
		ours:  func(c *core.Client) http.Handler { return ginEngine(ginlock.New(c, byOrder), handleGin) },
		byHand: func(lock lockByHand) http.Handler {
			return ginEngine(func(c *gin.Context) {
				if err := lock(c.Request.Context(), c.Param("id"), c.Next); err != nil {
					c.AbortWithStatus(http.StatusServiceUnavailable)
				}
			}, handleGin)
		},
	},
	{
		name:  "Echo",
		plain: func() http.Handler { return echoEngine() },
		ours: func(c *core.Client) http.Handler {
			return echoEngine(echolock.New(c, echolock.Config{Config: byOrder}))
		},
		byHand: func(lock lockByHand) http.Handler {
			return echoEngine(func(next echo.HandlerFunc) echo.HandlerFunc {
				return func(c echo.Context) error {
					var handled error
					err := lock(c.Request().Context(), c.Param("id"), func() { handled = next(c) })
					if err != nil {
						return echo.NewHTTPError(http.StatusServiceUnavailable).SetInternal(err)
					}
					return handled
				}
			})
		},
	},
}

func serveMux(h http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /orders/{id}", h)
	return mux
}

func handleGin(c *gin.Context) { handle(c.Writer, c.Request) }

func ginEngine(handlers ...gin.HandlerFunc) http.Handler {
	gin.SetMode(gin.ReleaseMode)
	router := gin.New()
	router.GET("/orders/:id", handlers...)
	return router
}

func echoEngine(middleware ...echo.MiddlewareFunc) http.Handler {
	e := echo.New()
	e.GET("/orders/:id", func(c echo.Context) error {
		handle(c.Response(), c.Request())
		return nil
	}, middleware...)
	return e
}

// web measures a server whose requests each lock an order of their own.
func (b *bench) web() error {
	clients, closeAll, err := openAll(b.addr, settings{lease: 30 * time.Second}, pipelines, rawPair, redsyncName, rueidisLock, ours)
	if err != nil {
		return err
	}
	defer closeAll()
	generator, err := newGenerator()
	if err != nil {
		return err
	}
	b.note("S6: the requests came from %s.", generator.name)
	return b.rounds(s6, func() error {
		for _, f := range frameworks {
			if err := b.serve(f.name, noLock, f.plain(), generator); err != nil {
				return err
			}
			for _, c := range inTurn(b, clients) {
				h := f.byHand(byHand(c))
				if c.name == ours {
					h = f.ours(c.client.(ourClient).Client)
				}
				if err := b.serve(f.name, c.name, h, generator); err != nil {
					return fmt.Errorf("%s, %s: %w", f.name, c.name, err)
				}
			}
		}
		return nil
	})
}

func byHand(c client) lockByHand {
	return func(ctx context.Context, order string, handler func()) (err error) {
		h, err := c.session("reqlock:" + order).acquire(ctx)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, h.release(context.WithoutCancel(ctx))) }()
		handler()
		return nil
	}
}

// serve has the generator ask a server of that handler.
func (b *bench) serve(framework, contender string, h http.Handler, g generator) (err error) {
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return err
	}
	srv := &http.Server{Handler: h, ErrorLog: log.New(io.Discard, "", 0)} // connections that the generator cuts
	served := make(chan error, 1)
	go func() { served <- srv.Serve(listener) }()
	defer func() {
		err = errors.Join(err, srv.Close())
		<-served
	}()
	url := "http://" + listener.Addr().String()
	if _, err := g.generate(url, b.pick(250*time.Millisecond, 100*time.Millisecond)); err != nil {
		return err
	}
	cpu, err := clientCPU()
	if err != nil {
		return err
	}
	began := time.Now()
	rate, err := g.generate(url, b.pick(1200*time.Millisecond, 250*time.Millisecond))
	if err != nil {
		return err
	}
	now, err := clientCPU()
	if err != nil {
		return err
	}
	b.add(s6, framework, contender, requests, rate)
	b.add(s6, framework, contender, "server CPU us/request", micros(now-cpu)/max(rate*time.Since(began).Seconds(), 1))
	return nil
}
