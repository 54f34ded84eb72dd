package caddylock

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/redis/go-redis/v9"
	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/embedded"
	"github.com/reqlock/reqlock/internal/redisurl"
)

// TLS is TLS to Redis.
type TLS struct {
	// A file with the certificates, in PEM, of the authorities to trust. Default: those of the
	// system.
	CA string `json:"ca,omitempty"`
	// Files with the certificate of this client and its key, in PEM. Default: none.
	Certificate string `json:"certificate,omitempty"`
	Key         string `json:"key,omitempty"`
	// The name in the certificate of Redis. Default: its host.
	ServerName string `json:"server_name,omitempty"`
}

var publishModes = map[string]core.PublishMode{
	"": core.PublishAuto, "auto": core.PublishAuto, "plain": core.PublishPlain, "sharded": core.PublishSharded, "both": core.PublishBoth,
}

// resolve returns a checked copy without placeholders.
func (a *App) resolve(placeholders *caddy.Replacer) (*App, error) {
	r := &App{
		Redis: a.Redis, Cluster: slices.Clone(a.Cluster), Embedded: a.Embedded,
		Username: a.Username, Password: a.Password, PasswordFile: a.PasswordFile, DB: a.DB, TLS: a.TLS,
		ClientID: a.ClientID, Watchdog: a.Watchdog, CommandTimeout: a.CommandTimeout, ReplicaAcks: a.ReplicaAcks,
		MaxWaiting: a.MaxWaiting, Publish: a.Publish,
	}
	texts := map[string]*string{
		"redis": &r.Redis, "username": &r.Username, "password": &r.Password, "password_file": &r.PasswordFile, "client_id": &r.ClientID,
	}
	if a.Sentinel != nil {
		s := *a.Sentinel
		s.Addresses = slices.Clone(s.Addresses)
		r.Sentinel = &s
		texts["sentinel password"] = &s.Password
	}
	for name, text := range texts {
		value, err := placeholders.ReplaceOrErr(*text, true, true)
		if err != nil {
			return nil, fmt.Errorf("reqlock: caddy: %s: %w", name, err)
		}
		*text = value
	}
	var err error
	if r.Delegation, err = a.Delegation.resolve(placeholders); err != nil {
		return nil, err
	}
	if err := r.check(); err != nil {
		return nil, fmt.Errorf("reqlock: caddy: %w", err)
	}
	return r, nil
}

// check reports the first thing that can never work.
func (a *App) check() error {
	ways := 0
	for _, set := range []bool{a.Redis != "", a.Sentinel != nil, len(a.Cluster) > 0, a.Embedded} {
		if set {
			ways++
		}
	}
	switch {
	case ways != 1:
		return fmt.Errorf("%d of redis, sentinel, cluster and embedded are set; set exactly one, such as redis redis://127.0.0.1:6379", ways)
	case a.Password != "" && a.PasswordFile != "":
		return errors.New("password and password_file are both set; use one of them")
	case a.DB != 0 && a.Sentinel == nil:
		return errors.New("db needs sentinel; put the number into the URL of redis, such as redis://127.0.0.1:6379/1; a cluster has only database 0")
	case a.Embedded && (a.Username != "" || a.Password != "" || a.PasswordFile != "" || a.TLS != nil):
		return errors.New("embedded takes neither username, password nor tls")
	}
	if a.Redis != "" && !hasPlaceholder(a.Redis) {
		if err := checkURL(a.Redis); err != nil {
			return err
		}
	}
	if a.Sentinel != nil {
		if a.Sentinel.Master == "" {
			return errors.New("sentinel has no master; want sentinel MASTER HOST:PORT and more addresses")
		}
		if err := checkAddresses("sentinel", a.Sentinel.Addresses); err != nil {
			return err
		}
	}
	if len(a.Cluster) > 0 {
		if err := checkAddresses("cluster", a.Cluster); err != nil {
			return err
		}
	}
	if err := errors.Join(a.checkOptions(), a.Delegation.check()); err != nil || hasPlaceholder(a.ClientID) {
		return err
	}
	return a.tryOptions()
}

// tryOptions reports what core refuses. A client that is not used does not connect.
func (a *App) tryOptions() error {
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:0"})
	defer rdb.Close()
	locks, err := core.New(rdb, a.options())
	if err != nil {
		return err
	}
	return locks.Close(context.Background())
}

func (a *App) checkOptions() error {
	switch {
	case a.Watchdog != 0 && time.Duration(a.Watchdog) < 10*time.Millisecond:
		return fmt.Errorf("watchdog is %s; use at least 10ms, or leave it out for 30s", time.Duration(a.Watchdog))
	case a.CommandTimeout != 0 && time.Duration(a.CommandTimeout) < time.Millisecond:
		return fmt.Errorf("command_timeout is %s; use at least 1ms, or leave it out for 3s", time.Duration(a.CommandTimeout))
	case a.ReplicaAcks < 0:
		return fmt.Errorf("replica_acks is %d; use a number of replicas, or leave it out for none", a.ReplicaAcks)
	case a.MaxWaiting < -1:
		return fmt.Errorf("max_waiting is %d; use a number of requests, 0 for 8192 or -1 for no bound", a.MaxWaiting)
	}
	if _, ok := publishModes[a.Publish]; !ok {
		return fmt.Errorf("publish is %q; use auto, plain, sharded or both", a.Publish)
	}
	return nil
}

// checkURL never shows the URL, which may contain a password.
func checkURL(url string) error {
	if _, err := redisurl.Options(url); err == nil {
		return nil
	}
	return errors.New("redis has a malformed URL (not shown, it may contain a password); want redis://[user:password@]host:port[/db], " +
		"rediss://… for TLS, or unix:///path, with special characters of the password percent-encoded")
}

func checkAddresses(option string, addresses []string) error {
	if len(addresses) == 0 {
		return fmt.Errorf("%s has no address; want host:port", option)
	}
	for _, address := range addresses {
		if host, port, err := net.SplitHostPort(address); err != nil || host == "" || port == "" {
			return fmt.Errorf("%s has the address %q; want host:port", option, address)
		}
	}
	return nil
}

func (a *App) options() core.Options {
	service, _ := a.Delegation.service() // check has looked at what has no placeholders
	return core.Options{
		ClientID:        a.ClientID,
		WatchdogTimeout: time.Duration(a.Watchdog),
		CommandTimeout:  time.Duration(a.CommandTimeout),
		ReplicaAcks:     a.ReplicaAcks,
		MaxWaiting:      a.MaxWaiting,
		PublishMode:     publishModes[a.Publish],
		Delegation:      service,
	}
}

// where names the Redis in logs, without credentials.
func (a *App) where() string {
	switch {
	case a.Embedded:
		return "embedded"
	case a.Sentinel != nil:
		return "sentinel " + a.Sentinel.Master
	case len(a.Cluster) > 0:
		return "cluster " + strings.Join(a.Cluster, " ")
	}
	options, err := redisurl.Options(a.Redis)
	if err != nil { // never, for a checked URL
		return ""
	}
	return options.Addr
}

// dial returns a client of the Redis, which connects when it is used, and what closes it.
func (a *App) dial() (rdb redis.UniversalClient, end func() error, err error) {
	if a.Embedded {
		server, err := embedded.Start()
		if err != nil {
			return nil, nil, err
		}
		return server.Client(), server.Close, nil
	}
	secure, err := a.TLS.config()
	if err != nil {
		return nil, nil, fmt.Errorf("reqlock: caddy: tls: %w", err)
	}
	credentials, err := a.credentials()
	if err != nil {
		return nil, nil, fmt.Errorf("reqlock: caddy: password_file: %w", err)
	}
	switch {
	case a.Sentinel != nil:
		rdb = redis.NewFailoverClient(&redis.FailoverOptions{
			MasterName: a.Sentinel.Master, SentinelAddrs: a.Sentinel.Addresses, SentinelPassword: a.Sentinel.Password,
			Username: a.Username, Password: a.Password, CredentialsProviderContext: credentials, DB: a.DB, TLSConfig: secure,
		})
	case len(a.Cluster) > 0:
		rdb = redis.NewClusterClient(&redis.ClusterOptions{
			Addrs: a.Cluster, Username: a.Username, Password: a.Password, CredentialsProviderContext: credentials, TLSConfig: secure,
		})
	default:
		options, err := redisurl.Options(a.Redis)
		if err != nil {
			return nil, nil, fmt.Errorf("reqlock: caddy: %w", checkURL(a.Redis))
		}
		a.amend(options, secure)
		options.CredentialsProviderContext = credentials
		rdb = redis.NewClient(options)
	}
	return rdb, rdb.Close, nil
}

// amend replaces what the URL says by what is set beside it.
func (a *App) amend(options *redis.Options, secure *tls.Config) {
	if a.Username != "" {
		options.Username = a.Username
	}
	if a.Password != "" {
		options.Password = a.Password
	}
	if secure == nil {
		return
	}
	if options.TLSConfig != nil && secure.ServerName == "" {
		secure.ServerName = options.TLSConfig.ServerName
	}
	options.TLSConfig = secure
}

// credentials returns what reads password_file for each new connection; nil: there is none.
func (a *App) credentials() (func(context.Context) (string, string, error), error) {
	if a.PasswordFile == "" {
		return nil, nil
	}
	user := a.Username
	if options, err := redisurl.Options(a.Redis); err == nil && user == "" {
		user = options.Username
	}
	read := func(context.Context) (string, string, error) {
		password, err := os.ReadFile(a.PasswordFile)
		if err != nil {
			return "", "", fmt.Errorf("reqlock: caddy: password_file: %w", err)
		}
		return user, strings.TrimSpace(string(password)), nil
	}
	_, err := os.Stat(a.PasswordFile)
	return read, err
}

// config returns nil if there is no TLS.
func (t *TLS) config() (*tls.Config, error) {
	if t == nil {
		return nil, nil
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: t.ServerName}
	if t.CA != "" {
		pem, err := os.ReadFile(t.CA)
		if err != nil {
			return nil, err
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("%s has no certificate in PEM", t.CA)
		}
	}
	if (t.Certificate == "") != (t.Key == "") {
		return nil, errors.New("a certificate needs a key, and a key a certificate")
	}
	if t.Certificate != "" {
		pair, err := tls.LoadX509KeyPair(t.Certificate, t.Key)
		if err != nil {
			return nil, err
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}
