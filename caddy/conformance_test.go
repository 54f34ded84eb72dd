package caddylock

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	caddycmd "github.com/caddyserver/caddy/v2/cmd"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	_ "github.com/caddyserver/caddy/v2/modules/standard"
	"github.com/reqlock/reqlock/adapter/adaptertest"
	"github.com/reqlock/reqlock/coalesce"
	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/guard"
	"github.com/reqlock/reqlock/idempotency"
)

// AsCaddy is set in the processes that a test starts as Caddy: the test binary is one, with the
// race detector if the test has it.
const AsCaddy = "REQLOCK_TEST_AS_CADDY"

var onCaddy = adaptertest.Adapter{
	Name: adaptertest.Caddy.Name, Serve: serveSuite, Exceptions: adaptertest.Caddy.Exceptions, LeavesErrors: true,
	Goroutines: []string{ // Caddy's packages start these when they are initialised.
		"github.com/golang/glog.(*fileSink).flushDaemon",
		"github.com/golang/glog.(*loggingT).flushDaemon",
		"go.opencensus.io/stats/view.(*worker).start",
	},
}

func TestMain(m *testing.M) {
	if os.Getenv(AsCaddy) != "" {
		caddycmd.Main()
		return
	}
	adaptertest.Main(m, onCaddy)
}

// TestConformance logs a table of all results, which -v shows.
func TestConformance(t *testing.T) { adaptertest.Run(t, onCaddy) }

func init() {
	caddy.RegisterModule(new(suiteHandler))
	caddy.RegisterNetwork("suite", func(_ context.Context, _, _, port string, _ uint, _ net.ListenConfig) (any, error) {
		s, ok := suiteSites.Load(port)
		if !ok {
			return nil, fmt.Errorf("no site %s", port)
		}
		return s.(*suiteSite).listener, nil
	})
}

// The sites of the suite, by their number. Tests run side by side, each with an HTTP app of Caddy.
var (
	suiteSites sync.Map
	suiteCount atomic.Int64
	suiteSetup sync.Mutex // Caddy sets globals while it provisions
)

// A suiteSite is a server of the suite.
type suiteSite struct {
	listener net.Listener
	around   func(http.Handler) http.Handler
	base     context.Context
	routes   []suiteRoute
	requests sync.WaitGroup
}

// A suiteRoute has the handlers of this module around the one of the suite.
type suiteRoute struct {
	adaptertest.Route
	chain []caddyhttp.MiddlewareHandler
}

// A suiteHandler is the module that serves the routes of a site, in place of matchers.
type suiteHandler struct {
	Site string `json:"site"`
}

func (*suiteHandler) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "http.handlers.reqlock_suite", New: func() caddy.Module { return new(suiteHandler) }}
}

func (h *suiteHandler) ServeHTTP(w http.ResponseWriter, r *http.Request, _ caddyhttp.Handler) (err error) {
	found, _ := suiteSites.Load(h.Site)
	s := found.(*suiteSite)
	s.requests.Add(1)
	defer s.requests.Done()
	if s.base != nil {
		r = r.WithContext(based{r.Context(), s.base})
	}
	serve := http.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { err = s.serve(w, r) }))
	if s.around != nil {
		serve = s.around(serve)
	}
	serve.ServeHTTP(w, r)
	return err
}

// based has the values of a BaseContext.
type based struct {
	context.Context
	base context.Context
}

func (c based) Value(key any) any {
	if value := c.Context.Value(key); value != nil {
		return value
	}
	return c.base.Value(key)
}

// serve runs the route of the request.
func (s *suiteSite) serve(w http.ResponseWriter, r *http.Request) error {
	known := false
	for _, route := range s.routes {
		if !matches(r, route.Pattern) {
			continue
		}
		known = true
		if route.Method == "" || route.Method == r.Method || route.Method == http.MethodGet && r.Method == http.MethodHead {
			return route.serve(w, r)
		}
	}
	if known {
		return caddyhttp.Error(http.StatusMethodNotAllowed, errors.New("method"))
	}
	return caddyhttp.Error(http.StatusNotFound, errors.New("no route"))
}

// matches reports whether a request has a pattern, and gives it the values of its wildcards, as
// Caddy's placeholders for the segments of a path have them.
func matches(r *http.Request, pattern string) bool {
	wanted, segments := strings.Split(pattern, "/"), strings.Split(r.URL.Path, "/")
	values := make(map[string]string)
	for i, want := range wanted {
		switch {
		case want == "{rest...}" && i < len(segments):
			values["rest"] = strings.Join(segments[i:], "/")
			segments = segments[:i+1]
		case i >= len(segments), !strings.HasPrefix(want, "{") && want != segments[i], segments[i] == "" && i > 0 && len(wanted) > 2:
			return false
		case strings.HasPrefix(want, "{"):
			values[strings.Trim(want, "{}")] = segments[i]
		}
	}
	if len(wanted) != len(segments) {
		return false
	}
	r.Pattern = pattern
	for name, value := range values {
		r.SetPathValue(name, value)
	}
	return true
}

func (route suiteRoute) serve(w http.ResponseWriter, r *http.Request) error {
	next := caddyhttp.Handler(caddyhttp.HandlerFunc(func(w http.ResponseWriter, r *http.Request) error {
		// A service gets a request of its own from reverse_proxy. This one is Caddy's, which changes it.
		route.Serve(w, r.WithContext(r.Context()), r.PathValue)
		return route.Err()
	}))
	for _, handler := range slices.Backward(route.chain) {
		inner := next
		next = caddyhttp.HandlerFunc(func(w http.ResponseWriter, r *http.Request) error { return handler.ServeHTTP(w, r, inner) })
	}
	return next.ServeHTTP(w, r)
}

// newRoute makes the handlers of a route, as Provision does of their JSON.
func newRoute(locks *core.Client, route adaptertest.Route) suiteRoute {
	lock := func(cfg guard.Config) caddyhttp.MiddlewareHandler {
		if cfg.ErrorHandler == nil {
			cfg.ErrorHandler = refuse(false)
		}
		g, err := guard.New(locks, cfg)
		if err != nil {
			panic(err)
		}
		// The suite expects the context of a handler to end with its client.
		// Its callers are on this machine, and all are trusted.
		return &Handler{guard: g, Delegating: Delegating{delegators: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}}, Holding: Holding{AbortOnDisconnect: true}}
	}
	once := func(cfg idempotency.Config) caddyhttp.MiddlewareHandler {
		if cfg.ErrorHandler == nil {
			cfg.ErrorHandler = refuse(false)
		}
		g, err := idempotency.New(locks, cfg)
		if err != nil {
			panic(err)
		}
		return &Idempotent{guard: g, MaxResponseBody: cfg.MaxResponseBody, Holding: Holding{AbortOnDisconnect: true}}
	}
	share := func(cfg coalesce.Config) caddyhttp.MiddlewareHandler {
		g, err := coalesce.New(locks, cfg)
		if err != nil {
			panic(err)
		}
		return &Coalesce{guard: g}
	}
	return suiteRoute{route, adaptertest.AllLayers(route, lock, once, share)}
}

// serveSuite serves the routes by an HTTP app of Caddy.
func serveSuite(srv adaptertest.Server, locks *core.Client, routes ...adaptertest.Route) func(context.Context) error {
	s := &suiteSite{listener: srv.Listener, around: srv.Around, base: srv.BaseContext}
	if srv.TLS != nil {
		settings := srv.TLS.Clone()
		settings.NextProtos = []string{"h2", "http/1.1"}
		s.listener = tls.NewListener(s.listener, settings)
	}
	for _, route := range routes {
		s.routes = append(s.routes, newRoute(locks, route))
	}
	number := fmt.Sprint(suiteCount.Add(1))
	suiteSites.Store(number, s)
	app, end, err := startApp(number, srv.WriteTimeout)
	if err != nil {
		panic(err)
	}
	return func(ctx context.Context) error {
		defer end()
		if err := app.Stop(); err != nil { // does not wait
			return err
		}
		ended := make(chan struct{})
		go func() {
			s.requests.Wait()
			close(ended)
		}()
		select {
		case <-ended:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// suiteConfig is the configuration of Caddy that the HTTP apps share.
var suiteConfig = sync.OnceValues(func() (caddy.Context, error) {
	cfg := new(caddy.Config)
	const text = `{"admin": {"disabled": true, "config": {"persist": false}}, "logging": {"logs": {"default": {"writer": {"output": "discard"}}}}}`
	if err := json.Unmarshal([]byte(text), cfg); err != nil {
		return caddy.Context{}, err
	}
	return caddy.ProvisionContext(cfg)
})

// startApp starts an HTTP app whose server is that of a site. end cleans it up.
func startApp(number string, writeTimeout time.Duration) (app *caddyhttp.App, end func(), err error) {
	suiteSetup.Lock()
	defer suiteSetup.Unlock()
	shared, err := suiteConfig()
	if err != nil {
		return nil, nil, err
	}
	ctx, end := caddy.NewContext(shared)
	module, err := ctx.LoadModuleByID("http", []byte(fmt.Sprintf(`{"servers": {"suite": {
		"listen": ["suite/:%s"], "protocols": ["h1", "h2"], "automatic_https": {"disable": true}, "write_timeout": %d,
		"routes": [{"handle": [{"handler": "reqlock_suite", "site": %q}]}]
	}}}`, number, writeTimeout, number)))
	if err != nil {
		end()
		return nil, nil, err
	}
	app = module.(*caddyhttp.App)
	return app, end, app.Start()
}
