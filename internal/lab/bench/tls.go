package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/reqlock/reqlock/internal/lab/redistest"
)

// A tlsServer is a redis-server with a plain port and one for TLS, with a certificate of its own.
type tlsServer struct {
	*redistest.Server
	secure string // the address for TLS
	trust  *tls.Config
}

func startTLS() (s *tlsServer, err error) {
	// redis-server reads the files only while it starts.
	dir, err := os.MkdirTemp("", "bench")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	cert, key := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	trust, err := certify(cert, key)
	if err != nil {
		return nil, err
	}
	free, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s = &tlsServer{secure: free.Addr().String(), trust: trust}
	_, port, _ := net.SplitHostPort(s.secure)
	if err := free.Close(); err != nil {
		return nil, err
	}
	if s.Server, err = redistest.Run("tls-port "+port, "tls-auth-clients no", "tls-cert-file "+cert, "tls-key-file "+key, "tls-ca-cert-file "+cert); err != nil {
		return nil, fmt.Errorf("a redis-server with TLS: %w", err)
	}
	return s, nil
}

// certify writes a certificate for localhost and its key, and returns the configuration of a client
// that trusts it.
func certify(certFile, keyFile string) (*tls.Config, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), DNSNames: []string{"localhost"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		BasicConstraintsValid: true, IsCA: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return nil, err
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	public := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(public)
	return &tls.Config{RootCAs: roots, ServerName: "localhost"}, errors.Join(
		os.WriteFile(certFile, public, 0o600),
		os.WriteFile(keyFile, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}), 0o600),
	)
}
