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

// A site is a server with routes, and a client of it that keeps connections alive.
type site struct {
	e      *env
	url    string
	client *http.Client
	errors *journal // the log of the server, mostly panics
}

// serve runs a server with the routes until the test ends.
func (e *env) serve(routes ...Route) *site {
	e.Helper()
	return e.serveWith(func(*Server) {}, routes...)
}

// serveWith is serve with changes to the server.
func (e *env) serveWith(change func(*Server), routes ...Route) *site {
	e.Helper()
	return e.serveOn(e.locks, change, routes...)
}

// serveOn is serveWith for another lock client. It panics if the adapter refuses a route.
func (e *env) serveOn(locks *core.Client, change func(*Server), routes ...Route) *site {
	e.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		e.Fatal(err)
	}
	served := false
	defer func() {
		if !served { // a panic
			_ = listener.Close()
		}
	}()
	s := &site{e: e, url: "http://" + listener.Addr().String(), errors: &journal{}}
	srv := Server{Listener: listener, ErrorLog: log.New(s.errors, "", 0)}
	change(&srv)
	stop := e.adapter.serve(srv, locks, routes...)
	served = true
	transport := &http.Transport{MaxIdleConnsPerHost: 100}
	if srv.TLS != nil {
		s.url = "https://" + listener.Addr().String()
		transport.TLSClientConfig, transport.ForceAttemptHTTP2 = trusting(e, srv.TLS), true
	}
	s.client = &http.Client{Transport: transport, Timeout: 2 * patience}
	e.ends = append(e.ends, func() {
		transport.CloseIdleConnections()
		// Handlers end with the test's context, which has ended.
		ctx, cancel := context.WithTimeout(background, e.patience)
		defer cancel()
		if err := stop(ctx); err != nil {
			e.Errorf("the server did not stop: %v", err)
		}
	})
	return s
}

// trusting returns the TLS settings of a client that trusts a server.
func trusting(e *env, server *tls.Config) *tls.Config {
	e.Helper()
	certificate, err := x509.ParseCertificate(server.Certificates[0].Certificate[0])
	if err != nil {
		e.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(certificate)
	return &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}
}

// addr returns the server's host and port.
func (s *site) addr() string {
	_, addr, _ := strings.Cut(s.url, "://")
	return addr
}

// serveOrders runs a server whose route orders, for all methods, is guarded.
func (e *env) serveOrders(handler http.HandlerFunc, change ...func(*guard.Config)) *site {
	return e.serve(Route{Pattern: orders, Guards: []guard.Config{e.config(change...)}, Handler: handler})
}

// An answer is the answer that a client got.
type answer struct {
	status int
	header http.Header
	body   string
	err    error // The connection failed with it.
}

// request makes a request that ends with the test.
func (s *site) request(method, path string, body io.Reader) *http.Request {
	r, err := http.NewRequestWithContext(s.e.Context(), method, s.url+path, body)
	if err != nil {
		s.e.Fatal(err)
	}
	return r
}

// send sends a request and reads the whole answer.
func (s *site) send(r *http.Request) answer {
	response, err := s.client.Do(r)
	if err != nil {
		return answer{err: err}
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	return answer{response.StatusCode, response.Header, string(body), err}
}

// get sends a request without a body and returns the answer.
func (s *site) get(path string) answer {
	s.e.Helper()
	return s.must(s.send(s.request(http.MethodGet, path, nil)))
}

// post sends a request with a body and returns the answer.
func (s *site) post(path, body string) answer {
	s.e.Helper()
	return s.must(s.send(s.request(http.MethodPost, path, strings.NewReader(body))))
}

func (s *site) must(a answer) answer {
	s.e.Helper()
	if a.err != nil {
		s.e.Fatalf("no answer: %v", a.err)
	}
	return a
}

// A pending is a request under way.
type pending struct {
	e      *env
	hangUp context.CancelFunc
	result chan answer
}

// start sends a request in the background.
func (s *site) start(r *http.Request) *pending {
	ctx, cancel := context.WithCancel(r.Context())
	p := &pending{e: s.e, hangUp: cancel, result: make(chan answer, 1)}
	go func() {
		defer cancel()
		p.result <- s.send(r.WithContext(ctx))
	}()
	return p
}

// startGet is start for a request without a body.
func (s *site) startGet(path string) *pending {
	return s.start(s.request(http.MethodGet, path, nil))
}

// answer waits for the answer.
func (p *pending) answer() answer {
	p.e.Helper()
	a := await(p.e, "a request is answered", p.result)
	if a.err != nil {
		p.e.Fatalf("no answer: %v", a.err)
	}
	return a
}

// want fails the test unless the answer has this status and body.
func (a answer) want(e *env, status int, body string) {
	e.Helper()
	if a.err != nil || a.status != status || a.body != body {
		e.Errorf("answer %d %q (%v), want %d %q", a.status, a.body, a.err, status, body)
	}
}

// dial opens a connection to the site, for requests that an http.Client does not send.
func (s *site) dial() net.Conn {
	s.e.Helper()
	conn, err := net.DialTimeout("tcp", s.addr(), patience)
	if err != nil {
		s.e.Fatal(err)
	}
	context.AfterFunc(s.e.Context(), func() { _ = conn.Close() }) // the test may have closed it
	if err := conn.SetReadDeadline(time.Now().Add(patience)); err != nil {
		s.e.Fatal(err)
	}
	return conn
}

// raw sends a POST of order with exactly these headers, on a new connection, and reads the answer.
func (s *site) raw(headers, body string) answer {
	s.e.Helper()
	conn := s.dial()
	if _, err := io.WriteString(conn, "POST "+order+" HTTP/1.1\r\nHost: test\r\n"+headers+"\r\n"+body); err != nil {
		s.e.Fatal(err)
	}
	return s.read(bufio.NewReader(conn))
}

// read reads one answer from a connection.
func (s *site) read(in *bufio.Reader) answer {
	s.e.Helper()
	response, err := http.ReadResponse(in, nil)
	if err != nil {
		s.e.Fatalf("no answer: %v", err)
	}
	body, err := io.ReadAll(response.Body)
	return s.must(answer{response.StatusCode, response.Header, string(body), err})
}
