package core

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/reqlock/reqlock/internal/lab/redistest"
)

// A tlsServer is a redis-server with a plain port and one for TLS.
type tlsServer struct {
	*redistest.Server
	port  string
	roots *x509.CertPool
}

// startTLS starts a server whose certificate is for localhost, and valid until a time.
func startTLS(t *testing.T, until time.Time, directives ...string) tlsServer {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		Subject:               pkix.Name{CommonName: "localhost"},
		DNSNames:              []string{"localhost"},
		NotBefore:             time.Now().Add(-48 * time.Hour),
		NotAfter:              until,
		KeyUsage:              x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		BasicConstraintsValid: true,
		IsCA:                  true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	write := func(name, kind string, data []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: data}), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	cert, secret := write("cert.pem", "CERTIFICATE", der), write("key.pem", "PRIVATE KEY", private)
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(free.Addr().String())
	_ = free.Close()
	s := tlsServer{port: port, roots: x509.NewCertPool()}
	s.roots.AppendCertsFromPEM(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	s.Server = redistest.Start(t, append([]string{
		"tls-port " + port, "tls-auth-clients no",
		"tls-cert-file " + cert, "tls-key-file " + secret, "tls-ca-cert-file " + cert,
	}, directives...)...)
	return s
}

// A server and a client that do not agree about TLS never will. Acquire says so at once, with what
// crypto/tls says and what to change. So does Ping.
func TestTLS_Faults(t *testing.T) {
	t.Parallel()
	tomorrow := time.Now().Add(24 * time.Hour)
	valid := startTLS(t, tomorrow)
	expired := startTLS(t, time.Now().Add(-24*time.Hour))
	strict := startTLS(t, tomorrow, "tls-auth-clients yes")
	secure := func(s tlsServer) string { return "127.0.0.1:" + s.port }
	trusting := func(s tlsServer) *tls.Config { return &tls.Config{RootCAs: s.roots, ServerName: "localhost"} }
	for name, test := range map[string]struct {
		addr    string
		tls     *tls.Config
		says    []string // the cause, the error of the library, and the change
		passing bool     // it may heal
	}{
		"another name": {secure(valid), &tls.Config{RootCAs: valid.roots, ServerName: "redis.example"},
			[]string{"for another name", "x509: certificate is valid for localhost, not redis.example", "ServerName"}, false},
		"an unknown authority": {secure(valid), &tls.Config{ServerName: "localhost"},
			[]string{"unknown authority", "x509: certificate signed by unknown authority", "RootCAs"}, false},
		"an expired certificate": {secure(expired), trusting(expired),
			[]string{"is not valid", "x509: certificate has expired", "renew the certificate"}, false},
		"no client certificate": {secure(strict), trusting(strict),
			[]string{"refuses the TLS connection", "certificate required", "TLSConfig.Certificates"}, false},
		"TLS to a plain port": {valid.Addr(), trusting(valid),
			[]string{"speaks TLS to a port that does not", "tls-port", "rediss://"}, false},
		"plain text to a TLS port": {secure(valid), nil,
			[]string{"the port expects TLS", "set TLSConfig", "rediss://"}, false},
		"a port that closes": {closingPort(t), nil,
			[]string{"closed the connection before it answered"}, true},
		"a port that closes, with TLS": {closingPort(t), trusting(valid),
			[]string{""}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const timeout = patience
			var out lockedBuffer
			rdb := redis.NewClient(&redis.Options{Addr: test.addr, TLSConfig: test.tls, DialTimeout: patience})
			t.Cleanup(func() { _ = rdb.Close() })
			c := newUncheckedLocks(t, rdb, commandTimeout(timeout), logTo(&out))
			for i := range 3 {
				began := time.Now()
				_, err := c.Lock("a").Acquire(bg, AcquireOptions{WaitTime: time.Minute})
				if took := time.Since(began); took > timeout/2 {
					t.Errorf("Acquire %d has failed after %s", i, took)
				}
				wantFault(t, "Acquire", err, test.says, test.passing)
			}
			if !test.passing {
				_, err := c.Lock("a").Acquire(bg, forever)
				wantFault(t, "Acquire that waits for ever", err, test.says, false)
			}
			wantFault(t, "Ping", c.Ping(bg), test.says[:1], test.passing)
			wantLines(t, &out, failing, 1)
			mustClose(t, c)
		})
	}

	rdb := redis.NewClient(&redis.Options{Addr: secure(valid), TLSConfig: trusting(valid)})
	t.Cleanup(func() { _ = rdb.Close() })
	c := newUncheckedLocks(t, rdb)
	acquireAndRelease(t, c, "a")
	if err := c.Ping(bg); err != nil {
		t.Error(err)
	}
	mustClose(t, c)
}

// wantFault fails the test unless an error has the texts, and matches ErrMisconfigured if the fault
// lasts.
func wantFault(t *testing.T, what string, err error, says []string, passing bool) {
	t.Helper()
	for _, text := range says {
		if err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("%s: %v, want %q", what, err, text)
		}
	}
	if got := errors.Is(err, ErrMisconfigured); got == passing {
		t.Errorf("%s: %v, matches ErrMisconfigured: %v", what, err, got)
	}
}

// An address that leads to another server is not told as a slow Redis. Ping and the log say what to
// correct.
func TestFault_NotRedis(t *testing.T) {
	t.Parallel()
	web := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(web.Close)
	var out lockedBuffer
	rdb := redis.NewClient(&redis.Options{Addr: web.Listener.Addr().String()})
	t.Cleanup(func() { _ = rdb.Close() })
	c := newUncheckedLocks(t, rdb, logTo(&out))
	_, err := c.Lock("a").Acquire(bg, AcquireOptions{})
	wantFault(t, "Acquire", err, []string{"HTTP/1.1 400 Bad Request"}, true)
	says := []string{"what answers is not Redis", "correct the host and the port of the Redis client"}
	wantFault(t, "Ping", c.Ping(bg), says, true)
	wantLines(t, &out, says[0], 1)
	mustClose(t, c)
}

// closingPort returns the address of a port that closes each connection.
func closingPort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			_ = conn.Close()
		}
	}()
	return fmt.Sprint(l.Addr())
}
