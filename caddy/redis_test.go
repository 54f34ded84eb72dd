package caddylock_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/reqlock/reqlock/internal/lab/redistest"
)

// Each way to name a Redis leads to locks on it.
func TestRedis(t *testing.T) {
	t.Parallel()
	single := redistest.Start(t)
	guarded := redistest.Start(t, "user default on nopass ~* &* -@all +ping +info", "user caddy on >first >second ~* &* +@all")
	sentinel := redistest.StartSentinel(t, 1)
	cluster := redistest.StartCluster(t)
	dir := t.TempDir()
	passwordFile := filepath.Join(dir, "password")
	if err := os.WriteFile(passwordFile, []byte("first\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	ca, secure := tlsProxy(t, dir, single.Addr())
	var sentinels, nodes []string
	for _, s := range sentinel.Sentinels {
		sentinels = append(sentinels, s.Addr())
	}
	for _, n := range cluster.Servers {
		nodes = append(nodes, n.Addr())
	}
	for name, app := range map[string]string{
		"URL":           "redis redis://" + single.Addr(),
		"environment":   "redis redis://{env.REDIS_ADDR}",
		"user in URL":   "redis redis://caddy:first@" + guarded.Addr(),
		"password":      "redis redis://" + guarded.Addr() + "\nusername caddy\npassword {env.REDIS_PASSWORD}",
		"password_file": "redis redis://caddy@" + guarded.Addr() + "\npassword_file " + passwordFile,
		"TLS":           "redis rediss://localhost:" + secure + "\ntls {\nca " + ca + "\n}",
		"sentinel":      "sentinel redistest " + strings.Join(sentinels, " "),
		"cluster":       "cluster " + strings.Join(nodes, " "),
		"embedded":      "embedded",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := startPython(t)
			p := startCaddy(t, caddyfile("reqlock {\n"+app+"\n}", `
				reqlock {
					key {http.request.uri.path.0}
				}
				reverse_proxy `+s.addr()), "REDIS_ADDR="+single.Addr(), "REDIS_PASSWORD=second")
			if !p.eventuallyLogs(t, "reqlock: locks work") {
				t.Fatal(p.log)
			}
			path := "/" + strings.ReplaceAll(name, " ", "-")
			first := p.doAsync(t, http.MethodPost, path+"?gate=a")
			s.eventuallyCalls(t, 1)
			if a := p.do(t, http.MethodPost, path); a.problem() != "locked" {
				t.Errorf("%v", a)
			}
			s.open(t, "a")
			if a := mustReceive(t, first); a.status != http.StatusOK {
				t.Errorf("%v", a)
			}
		})
	}
}

// A password in a file may change without a reload.
func TestRedis_NewPassword(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, "user default on nopass ~* &* -@all +ping +info", "user caddy on >first ~* &* +@all", "user boss on >boss ~* &* +@all")
	file := filepath.Join(t.TempDir(), "password")
	write := func(password string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(password), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("first")
	p := startCaddy(t, caddyfile("reqlock {\n redis redis://caddy@"+server.Addr()+"\n password_file "+file+"\n }", `
		reqlock {
			key a
		}
		respond "served"`))
	if !p.eventuallyLogs(t, "reqlock: locks work") {
		t.Fatal(p.log)
	}
	write("second")
	boss := server.ClientWith(t, func(o *redis.Options) { o.Username, o.Password = "boss", "boss" })
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for _, command := range [][]any{
		{"ACL", "SETUSER", "caddy", "resetpass", ">second"},
		{"CLIENT", "KILL", "USER", "caddy"},
	} {
		if err := boss.Do(ctx, command...).Err(); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "locks with the new password", func() bool { return p.do(t, http.MethodGet, "/").status == http.StatusOK })
}

// tlsProxy speaks TLS before a Redis that does not. It returns its certificate and its port.
func tlsProxy(t *testing.T, dir, to string) (ca, port string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "redis"}, DNSNames: []string{"localhost"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	ca = filepath.Join(dir, "ca.pem")
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	listener, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{
		MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}},
	})
	if err != nil {
		t.Fatal(err)
	}
	var links sync.WaitGroup
	links.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			redis, err := net.Dial("tcp", to)
			if err != nil {
				_ = client.Close()
				continue
			}
			for _, way := range [][2]net.Conn{{client, redis}, {redis, client}} {
				links.Go(func() {
					_, _ = io.Copy(way[0], way[1])
					_ = way[0].Close() // ends the other way, too
				})
			}
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		links.Wait()
	})
	_, port, _ = net.SplitHostPort(listener.Addr().String())
	return ca, port
}
