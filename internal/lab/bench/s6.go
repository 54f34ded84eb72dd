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

// A framework builds a server with the route /orders/{id}: with our middleware, a lock by hand, or
// none.
type framework struct {
	name   string
	plain  func() http.Handler
	ours   func(*core.Client) http.Handler
	byHand func(lock lockByHand) http.Handler
}

// A lockByHand runs a handler under the lock of an order.
type lockByHand func(ctx context.Context, order string, handler func()) error

const answer = "ok\n"

// handle ignores write errors, because the client notices them.
func handle(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, answer) }

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
			return echoEngine(echolock.New(c, byOrder))
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

// A site is a framework's server that locks with a contender.
type site struct {
	contender string
	url       string
	close     func() error

	// The measurements of a round.
	requests float64
	took     time.Duration
	cpu      time.Duration
}

// sittings is how often the generator visits each server in a round, so that other load affects
// all.
const sittings = 4

// web measures servers that lock a different order for each request.
func (b *bench) web() error {
	clients, closeAll, err := openAll(b.addr, settings{lease: 30 * time.Second}, rawPair, redsyncName, rueidisLock, pipelines, ours)
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
			if err := b.webRound(f, inTurn(b, clients), generator); err != nil {
				return fmt.Errorf("%s: %w", f.name, err)
			}
		}
		return nil
	})
}

// webRound runs the generator on a framework's servers, one for each contender and one without a
// lock.
func (b *bench) webRound(f framework, clients []named, g generator) (err error) {
	var sites []*site
	defer func() {
		for _, s := range sites {
			err = errors.Join(err, s.close())
		}
	}()
	open := func(contender string, h http.Handler) error {
		s, err := openSite(contender, h)
		if err != nil {
			return err
		}
		sites = append(sites, s)
		_, err = g.generate(s.url, b.pick(250*time.Millisecond, 50*time.Millisecond))
		return err
	}
	if err := open(noLock, f.plain()); err != nil {
		return err
	}
	for _, c := range clients {
		h := f.byHand(byHand(c))
		if c.name == ours {
			h = f.ours(c.client.(ourClient).Client)
		}
		if err := open(c.name, h); err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
	}
	for range sittings {
		for _, s := range sites {
			if err := s.sit(g, b.pick(300*time.Millisecond, 60*time.Millisecond)); err != nil {
				return fmt.Errorf("%s: %w", s.contender, err)
			}
		}
	}
	for _, s := range sites {
		b.add(s6, f.name, s.contender, requests, s.requests/s.took.Seconds())
		b.add(s6, f.name, s.contender, "server CPU us/request", micros(s.cpu)/max(s.requests, 1))
	}
	return nil
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

// openSite starts a server.
func openSite(contender string, h http.Handler) (*site, error) {
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	// Discard errors of connections that the generator cuts.
	srv := &http.Server{Handler: h, ErrorLog: log.New(io.Discard, "", 0)}
	served := make(chan error, 1)
	go func() { served <- srv.Serve(listener) }()
	return &site{contender: contender, url: "http://" + listener.Addr().String(), close: func() error {
		err := srv.Close()
		<-served
		return err
	}}, nil
}

// sit runs the generator on the server for a while.
func (s *site) sit(g generator, d time.Duration) error {
	before, err := clientCPU()
	if err != nil {
		return err
	}
	began := time.Now()
	rate, err := g.generate(s.url, d)
	if err != nil {
		return err
	}
	after, err := clientCPU()
	if err != nil {
		return err
	}
	took := time.Since(began)
	s.requests += rate * took.Seconds()
	s.took += took
	s.cpu += after - before
	return nil
}
