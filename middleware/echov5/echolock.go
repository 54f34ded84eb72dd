// Code generated from middleware/echo by make echov5 WRITE=1. DO NOT EDIT.

package echolock

import (
	"cmp"
	"context"
	"fmt"
	"net/http"

	"github.com/labstack/echo/v5"
	"github.com/labstack/echo/v5/middleware"
	"github.com/reqlock/reqlock/adapter"
	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/guard"
)

// Config says what to lock and how. It is guard.Config.
type Config = guard.Config

// An Option configures New and Idempotent, in addition to the Config.
type Option func(*wrapper)

// WithSkipper lets requests through, without a lock or a key, if skip returns true for them. The
// last one counts; nil passes none.
func WithSkipper(skip middleware.Skipper) Option {
	return func(w *wrapper) { w.skip = skip }
}

// WithErrorHandler lets answer write the refusals of the guard, in place of the Config's
// ErrorHandler. New panics if both are set. err is a *guard.Error. The error that answer returns
// goes to Echo's HTTPErrorHandler, as a handler's error does; if answer has sent an answer, it
// returns nil. The last one counts; nil leaves it to the Config.
func WithErrorHandler(answer func(c *echo.Context, err error) error) Option {
	return func(w *wrapper) { w.answer = answer }
}

// New returns a middleware that runs the rest of the chain under the lock of its request, or
// answers in its place. It panics on a Config that can never work; see guard.New.
func New(locks *core.Client, cfg Config, options ...Option) echo.MiddlewareFunc {
	wrap := newWrapper(options, &cfg.ErrorHandler)
	g, err := guard.New(locks, cfg)
	if err != nil {
		panic(err)
	}
	return wrap.around(underLock(g))
}

// underLock serves requests under the lock of g.
func underLock(g *guard.Guard) server {
	return func(c *echo.Context, r *http.Request, next echo.HandlerFunc) (err error) {
		g.Serve(c.Response(), r, func(_ http.ResponseWriter, r *http.Request) {
			c.SetRequest(r)
			err = next(c)
			// Otherwise Echo answers the error after all middleware.
			if status, committed := statusOf(c); err == nil || committed {
				guard.SetStatus(r.Context(), status)
			}
		})
		return err
	}
}

// A wrapper has what New and Idempotent share.
type wrapper struct {
	skip middleware.Skipper
	// answer is the function that WithErrorHandler got.
	answer  func(c *echo.Context, err error) error
	matcher matcher
}

// newWrapper applies options. With WithErrorHandler, it sets the ErrorHandler of a Config.
func newWrapper(options []Option, errorHandler *func(http.ResponseWriter, *http.Request, error)) *wrapper {
	w := &wrapper{}
	for i, option := range options {
		if option == nil {
			panic(fmt.Sprintf("reqlock: echolock: option %d of %d is nil; want one such as WithSkipper(skip)", i+1, len(options)))
		}
		option(w)
	}
	if w.answer != nil {
		if *errorHandler != nil {
			panic("reqlock: echolock: both WithErrorHandler and the Config's ErrorHandler are set; use one of them")
		}
		*errorHandler = w.refuse
	}
	return w
}

// refuse is the ErrorHandler that calls w.answer.
func (w *wrapper) refuse(_ http.ResponseWriter, r *http.Request, err error) {
	c, _ := adapter.Find[*echo.Context](r)
	*r.Context().Value(refusalKey{}).(*error) = w.answer(c, err)
}

// refusalKey leads to where refuse leaves the error for Echo's HTTPErrorHandler.
type refusalKey struct{}

// A server serves a request that has Echo's route. It returns the error for Echo's
// HTTPErrorHandler.
type server func(c *echo.Context, r *http.Request, next echo.HandlerFunc) error

func (w *wrapper) around(serve server) echo.MiddlewareFunc {
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c *echo.Context) error {
			if w.skip != nil && w.skip(c) || !w.matcher.matched(c) {
				return next(c)
			}
			return w.enter(c, next, serve)
		}
	}
}

func (w *wrapper) enter(c *echo.Context, next echo.HandlerFunc, serve server) (err error) {
	request := c.Request()
	ctx := request.Context()
	if w.answer != nil {
		var refused error
		ctx = context.WithValue(ctx, refusalKey{}, &refused)
		defer func() { err = cmp.Or(err, refused) }()
	}
	bound := adapter.Bind(ctx, c)
	r := setRoute(bound, request, c)
	defer func() {
		c.SetRequest(request)
		adapter.KeepForm(request, r)
		bound.End()
	}()
	return serve(c, r, next)
}
