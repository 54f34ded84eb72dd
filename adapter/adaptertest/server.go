package adaptertest

import (
	"context"
	"crypto/tls"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"time"

	"github.com/reqlock/reqlock/core"
)

// A Server is what a test wants its server to be; see Adapter.Serve.
type Server struct {
	// Listener listens on 127.0.0.1. The server closes it.
	Listener net.Listener
	// ErrorLog gets what the server logs by itself, such as panics.
	ErrorLog *log.Logger

	// Around is middleware outside the adapter's. nil: none.
	Around func(http.Handler) http.Handler

	// TLS serves HTTPS, by HTTP/1.1 and HTTP/2. nil: HTTP/1.1 without TLS.
	TLS *tls.Config
	// The contexts of all requests begin with BaseContext. nil: any context.
	BaseContext context.Context
	// WriteTimeout is how long an answer may take. 0: no bound.
	WriteTimeout time.Duration
}

// around puts middleware around the adapter's.
func around(middleware func(http.Handler) http.Handler) func(*Server) {
	return func(srv *Server) { srv.Around = middleware }
}

// identity returns the TLS settings of the servers. Their certificate is its own authority.
var identity = sync.OnceValue(func() *tls.Config {
	srv := httptest.NewTLSServer(nil)
	defer srv.Close()
	return &tls.Config{Certificates: srv.TLS.Certificates, MinVersion: tls.VersionTLS12}
})

// serve serves routes until stop has returned.
func (a Adapter) serve(srv Server, locks *core.Client, routes ...Route) (stop func(context.Context) error) {
	if a.Serve != nil {
		return a.Serve(srv, locks, routes...)
	}
	return serveHandler(srv, a.Router(locks, routes...))
}

// serveHandler serves a handler with net/http's server.
func serveHandler(srv Server, handler http.Handler) (stop func(context.Context) error) {
	if srv.Around != nil {
		handler = srv.Around(handler)
	}
	server := &http.Server{
		Handler: handler, ErrorLog: srv.ErrorLog, TLSConfig: srv.TLS, WriteTimeout: srv.WriteTimeout, ReadHeaderTimeout: 2 * patience,
	}
	if srv.BaseContext != nil {
		server.BaseContext = func(net.Listener) context.Context { return srv.BaseContext }
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if srv.TLS != nil {
			_ = server.ServeTLS(srv.Listener, "", "") // until Shutdown
		} else {
			_ = server.Serve(srv.Listener)
		}
	}()
	return func(ctx context.Context) error {
		defer func() { <-ended }()
		if err := server.Shutdown(ctx); err != nil {
			_ = server.Close() // the error is that of Shutdown
			return err
		}
		return nil
	}
}
