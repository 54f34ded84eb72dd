package adaptertest

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"log"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/guard"
)

// A testServer is a server with routes, and a client of it that keeps connections alive.
type testServer struct {
	fx     *fixture
	url    string
	client *http.Client
	errors *testLog // the log of the server, mostly panics
}

// serve runs a server with the routes until the test ends.
func (fx *fixture) serve(routes ...Route) *testServer {
	fx.Helper()
	return fx.serveWith(func(*Server) {}, routes...)
}

// serveWith is serve with changes to the server.
func (fx *fixture) serveWith(change func(*Server), routes ...Route) *testServer {
	fx.Helper()
	return fx.serveOn(fx.locks, change, routes...)
}

// serveOn is serveWith for another lock client. It panics if the adapter refuses a route.
func (fx *fixture) serveOn(locks *core.Client, change func(*Server), routes ...Route) *testServer {
	fx.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fx.Fatal(err)
	}
	served := false
	defer func() {
		if !served { // a panic
			_ = listener.Close()
		}
	}()
	s := &testServer{fx: fx, url: "http://" + listener.Addr().String(), errors: &testLog{}}
	srv := Server{Listener: listener, ErrorLog: log.New(s.errors, "", 0)}
	change(&srv)
	stop := fx.adapter.serve(srv, locks, routes...)
	served = true
	transport := &http.Transport{MaxIdleConnsPerHost: 100}
	if srv.TLS != nil {
		s.url = "https://" + listener.Addr().String()
		transport.TLSClientConfig, transport.ForceAttemptHTTP2 = trusting(fx, srv.TLS), true
	}
	s.client = &http.Client{Transport: transport, Timeout: 2 * patience}
	fx.ends = append(fx.ends, func() {
		transport.CloseIdleConnections()
		// Handlers end with the test's context, which has ended.
		ctx, cancel := context.WithTimeout(background, fx.patience)
		defer cancel()
		if err := stop(ctx); err != nil {
			fx.Errorf("the server did not stop: %v", err)
		}
	})
	return s
}

// trusting returns the TLS settings of a client that trusts a server.
func trusting(fx *fixture, server *tls.Config) *tls.Config {
	fx.Helper()
	certificate, err := x509.ParseCertificate(server.Certificates[0].Certificate[0])
	if err != nil {
		fx.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(certificate)
	return &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}
}

// addr returns the server's host and port.
func (s *testServer) addr() string {
	_, addr, _ := strings.Cut(s.url, "://")
	return addr
}

// serveOrders runs a server whose route orders, for all methods, is guarded.
func (fx *fixture) serveOrders(handler http.HandlerFunc, change ...func(*guard.Config)) *testServer {
	return fx.serve(Route{Pattern: orders, Guards: []guard.Config{fx.config(change...)}, Handler: handler})
}

// An answer is the answer that a client got.
type answer struct {
	status int
	header http.Header
	body   string
	err    error // The connection failed with it.
}

// newRequest makes a request that ends with the test.
func (s *testServer) newRequest(method, path string, body io.Reader) *http.Request {
	r, err := http.NewRequestWithContext(s.fx.Context(), method, s.url+path, body)
	if err != nil {
		s.fx.Fatal(err)
	}
	return r
}

// send sends a request and reads the whole answer.
func (s *testServer) send(r *http.Request) answer {
	response, err := s.client.Do(r)
	if err != nil {
		return answer{err: err}
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	return answer{response.StatusCode, response.Header, string(body), err}
}

// get sends a request without a body and returns the answer.
func (s *testServer) get(path string) answer {
	s.fx.Helper()
	return s.must(s.send(s.newRequest(http.MethodGet, path, nil)))
}

// post sends a request with a body and returns the answer.
func (s *testServer) post(path, body string) answer {
	s.fx.Helper()
	return s.must(s.send(s.newRequest(http.MethodPost, path, strings.NewReader(body))))
}

func (s *testServer) must(a answer) answer {
	s.fx.Helper()
	if a.err != nil {
		s.fx.Fatalf("no answer: %v", a.err)
	}
	return a
}

// A pendingRequest is a request under way.
type pendingRequest struct {
	fx         *fixture
	disconnect context.CancelFunc
	result     chan answer
}

// start sends a request in the background.
func (s *testServer) start(r *http.Request) *pendingRequest {
	ctx, cancel := context.WithCancel(r.Context())
	p := &pendingRequest{fx: s.fx, disconnect: cancel, result: make(chan answer, 1)}
	go func() {
		defer cancel()
		p.result <- s.send(r.WithContext(ctx))
	}()
	return p
}

// startGet is start for a request without a body.
func (s *testServer) startGet(path string) *pendingRequest {
	return s.start(s.newRequest(http.MethodGet, path, nil))
}

// mustGetAnswer waits for the answer.
func (p *pendingRequest) mustGetAnswer() answer {
	p.fx.Helper()
	a := mustReceive(p.fx, "a request is answered", p.result)
	if a.err != nil {
		p.fx.Fatalf("no answer: %v", a.err)
	}
	return a
}

// want fails the test unless the answer has this status and body.
func (a answer) want(fx *fixture, status int, body string) {
	fx.Helper()
	if a.err != nil || a.status != status || a.body != body {
		fx.Errorf("answer %d %q (%v), want %d %q", a.status, a.body, a.err, status, body)
	}
}

// dial opens a connection to the server, for requests that an http.Client does not send.
func (s *testServer) dial() net.Conn {
	s.fx.Helper()
	conn, err := net.DialTimeout("tcp", s.addr(), patience)
	if err != nil {
		s.fx.Fatal(err)
	}
	context.AfterFunc(s.fx.Context(), func() { _ = conn.Close() }) // the test may have closed it
	if err := conn.SetReadDeadline(time.Now().Add(patience)); err != nil {
		s.fx.Fatal(err)
	}
	return conn
}

// raw sends a POST of order with exactly these headers, on a new connection, and reads the answer.
func (s *testServer) raw(headers, body string) answer {
	s.fx.Helper()
	conn := s.dial()
	if _, err := io.WriteString(conn, "POST "+order+" HTTP/1.1\r\nHost: test\r\n"+headers+"\r\n"+body); err != nil {
		s.fx.Fatal(err)
	}
	return s.read(bufio.NewReader(conn))
}

// read reads one answer from a connection.
func (s *testServer) read(in *bufio.Reader) answer {
	s.fx.Helper()
	response, err := http.ReadResponse(in, nil)
	if err != nil {
		s.fx.Fatalf("no answer: %v", err)
	}
	body, err := io.ReadAll(response.Body)
	return s.must(answer{response.StatusCode, response.Header, string(body), err})
}
