package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/reqlock/reqlock/internal/lab/redistest"
)

// certify returns a certificate for 127.0.0.1 that is its own authority, and a file with it.
func certify(t *testing.T) (tls.Certificate, string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, path
}

// encrypt serves a Redis server by TLS until the test ends, and returns the address.
func encrypt(t *testing.T, addr string, certificate tls.Certificate) string {
	t.Helper()
	listener, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{certificate}})
	if err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	running.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			running.Go(func() { forward(client, addr) })
		}
	})
	t.Cleanup(func() { _ = listener.Close(); running.Wait() })
	return listener.Addr().String()
}

func forward(client net.Conn, addr string) {
	defer client.Close()
	server, err := net.Dial("tcp", addr)
	if err != nil {
		return
	}
	defer server.Close()
	replies := make(chan struct{})
	go func() {
		_, _ = io.Copy(client, server)
		_ = client.Close()
		close(replies)
	}()
	_, _ = io.Copy(server, client)
	_ = server.Close()
	<-replies
}

func TestTLS(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	fill(t, srv.Client(t))
	certificate, authority := certify(t)
	secure := call{redis: "rediss://" + encrypt(t, srv.Addr(), certificate)}
	secure.want(t, redisFailed, words("ls"), "certificate")
	secure.want(t, done, words("ls --tls-insecure"), "order:42")
	secure.want(t, done, []string{"ls", "--tls-ca", authority}, "order:42")
	secure.want(t, done, []string{"unlock", "order:42", "--tls-ca", authority, "--yes", "--reason", "test"}, "order:42 is free")
	_, other := certify(t)
	secure.want(t, redisFailed, []string{"ls", "--tls-ca", other}, "certificate")
}
