package fiberlock_test

import (
	"context"
	"crypto/tls"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/gofiber/fiber/v3"
	"github.com/reqlock/reqlock/adapter/adaptertest"
	"github.com/reqlock/reqlock/coalesce"
	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/guard"
	"github.com/reqlock/reqlock/idempotency"
	fiberlock "github.com/reqlock/reqlock/middleware/fiber"
)

var onFiber = adaptertest.Adapter{
	Name: adaptertest.Fiber.Name, Serve: serveWith(fiber.Config{}), Exceptions: adaptertest.Fiber.Exceptions, TellsStatus: true, LeavesErrors: true, Rest: "*",
	Goroutines: []string{
		"github.com/valyala/fasthttp.updateServerDate.func1",    // lives as long as the process
		"github.com/valyala/fasthttp.(*workerPool).Start.func2", // ends within 10 s of the server
	},
}

func TestMain(m *testing.M) { adaptertest.Main(m, onFiber) }

// TestConformance logs a table of all results, which -v shows.
func TestConformance(t *testing.T) { adaptertest.Run(t, onFiber) }

// TestFiberSpellings sets up the app in every way that changes how it reads a URL.
func TestFiberSpellings(t *testing.T) {
	for name, cfg := range map[string]fiber.Config{
		"CaseSensitive":                {CaseSensitive: true},
		"StrictRouting":                {StrictRouting: true},
		"UnescapePath":                 {UnescapePath: true},
		"CaseSensitive, StrictRouting": {CaseSensitive: true, StrictRouting: true},
		"all":                          {CaseSensitive: true, StrictRouting: true, UnescapePath: true},
	} {
		a := onFiber
		a.Name, a.Serve = name, serveWith(cfg)
		adaptertest.RunSpellings(t, a)
	}
}

type serveFunc = func(adaptertest.Server, *core.Client, ...adaptertest.Route) func(context.Context) error

// serveWith returns a Serve for apps with that Config.
func serveWith(cfg fiber.Config) serveFunc {
	return func(srv adaptertest.Server, locks *core.Client, routes ...adaptertest.Route) func(context.Context) error {
		cfg := cfg
		cfg.WriteTimeout, cfg.BodyLimit, cfg.ErrorHandler = srv.WriteTimeout, 64<<20, answerError
		return serveSuite(fiber.New(cfg), srv, locks, routes)
	}
}

// serveSuite serves the routes by fasthttp.
func serveSuite(app *fiber.App, srv adaptertest.Server, locks *core.Client, routes []adaptertest.Route) func(context.Context) error {
	patterns := strings.NewReplacer("{rest...}", "*", "{", ":", "}", "")
	app.Use(closesOnPanic)
	if srv.BaseContext != nil {
		app.Use(func(c fiber.Ctx) error {
			c.SetContext(srv.BaseContext)
			return c.Next()
		})
	}
	if srv.Around != nil {
		app.Use(throughHTTP(srv.Around))
	}
	for _, route := range routes {
		chain := adaptertest.AllLayers(route,
			func(cfg guard.Config) any { return fiberlock.New(locks, cfg) },
			func(cfg idempotency.Config) any { return fiberlock.Idempotent(locks, cfg) },
			func(cfg coalesce.Config) any { return fiberlock.Coalesce(locks, cfg) })
		chain = append(chain, func(c fiber.Ctx) error {
			w, r, err := fiberlock.HTTP(c)
			if err != nil {
				return err
			}
			route.Serve(w, r, func(name string) string { return strings.Clone(c.Params(name)) })
			w.WriteHeader(http.StatusOK)
			return route.Err()
		})
		pattern := patterns.Replace(route.Pattern)
		if route.Method == "" {
			app.All(pattern, chain[0], chain[1:]...)
		} else {
			app.Add([]string{route.Method}, pattern, chain[0], chain[1:]...)
		}
	}
	listener := srv.Listener
	if srv.TLS != nil {
		listener = tls.NewListener(listener, srv.TLS) // HTTP/1.1: fasthttp has no HTTP/2
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = app.Listener(listener, fiber.ListenConfig{DisableStartupMessage: true}) // until it is shut down
	}()
	return func(ctx context.Context) error {
		defer func() { <-ended }()
		return app.ShutdownWithContext(ctx)
	}
}

// answerError is Fiber's error handler, but for the suite's own error.
func answerError(c fiber.Ctx, err error) error {
	if errors.Is(err, adaptertest.ErrUnanswered) {
		return err // Fiber answers 500
	}
	return fiber.DefaultErrorHandler(c, err)
}

// closesOnPanic answers a panic as net/http's server does: by the end of the connection. Without
// it, a panic ends the process.
func closesOnPanic(c fiber.Ctx) error {
	defer func() {
		if recover() != nil {
			_ = c.RequestCtx().Conn().Close()
		}
	}()
	return c.Next()
}

// throughHTTP is middleware of net/http in Fiber.
func throughHTTP(middleware func(http.Handler) http.Handler) fiber.Handler {
	return func(c fiber.Ctx) (err error) {
		w, r, err := fiberlock.HTTP(c)
		if err != nil {
			return err
		}
		middleware(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			c.SetContext(r.Context())
			w.SetHeader()
			err = c.Next()
		})).ServeHTTP(w, r)
		return err
	}
}
