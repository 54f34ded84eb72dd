package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/reqlock/reqlock"
	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/inspect"
	"github.com/reqlock/reqlock/internal/redisclient"
	"github.com/reqlock/reqlock/internal/redisurl"
)

// A connection says which Redis to use, and how.
type connection struct {
	url      string
	ca       string
	cert     string
	key      string
	insecure bool
	timeout  time.Duration
}

const standardTimeout = 10 * time.Second

func (c *connection) flags(fs *flag.FlagSet) {
	// The default is not shown, because it may contain a password.
	fs.Func("redis", "the `URL` of Redis, in place of REDIS_URL", func(s string) error { c.url = s; return nil })
	fs.StringVar(&c.ca, "tls-ca", c.ca, "a `file` with the certificates of authorities to trust")
	fs.StringVar(&c.cert, "tls-cert", c.cert, "a `file` with the certificate to present to Redis")
	fs.StringVar(&c.key, "tls-key", c.key, "a `file` with its private key")
	fs.BoolVar(&c.insecure, "tls-insecure", c.insecure, "do not verify the certificate of Redis")
	fs.DurationVar(&c.timeout, "timeout", c.timeout, "how long Redis may take; 0: no limit")
}

// A client is a Redis client, with how to show it to people.
type client struct {
	redis.UniversalClient
	kind  string // "", "cluster" or "sentinel"
	addrs []string
}

// String returns the addresses without credentials.
func (c *client) String() string {
	return strings.TrimPrefix(c.kind+" ", " ") + strings.Join(c.addrs, ",")
}

// connect returns a client that connects when it is first used.
func (c *connection) connect() (*client, error) {
	if c.url == "" {
		return nil, usageError("which Redis? Set REDIS_URL or --redis, for example redis://127.0.0.1:6379")
	}
	scheme, rest, ok := strings.Cut(c.url, "://")
	if !ok {
		return nil, usageError("the URL of Redis has no scheme; use for example redis://127.0.0.1:6379")
	}
	base, kind, _ := strings.Cut(scheme, "+")
	switch {
	case kind == "" && base == "unix":
	case base != "redis" && base != "rediss" || kind != "" && kind != "cluster" && kind != "sentinel":
		return nil, usageError("the URL of Redis has the scheme %q; use redis, rediss, unix, redis+cluster, rediss+cluster, "+
			"redis+sentinel or rediss+sentinel", scheme)
	}
	u, err := redisurl.Parse(base + "://" + rest)
	if err != nil {
		return nil, usageError("the URL of Redis cannot be parsed; in user, password and parameters, write %%40 for @, " +
			"and %%3A for :, %%2F for /, %%3F for ?, %%23 for #, and %%25 for %%")
	}
	tlsConfig, err := c.tls(base == "rediss")
	if err != nil {
		return nil, err
	}
	redis.SetLogger(silent{})
	switch kind {
	case "cluster":
		return c.cluster(u, tlsConfig)
	case "sentinel":
		return c.sentinel(u, tlsConfig)
	}
	return c.single(u, tlsConfig)
}

// silent drops the log of the Redis client. The commands return the errors.
type silent struct{}

func (silent) Printf(context.Context, string, ...any) {}

func (c *connection) single(u *url.URL, edit func(*tls.Config)) (*client, error) {
	o, err := redis.ParseURL(u.String())
	if err != nil {
		return nil, wrongURL(u, err)
	}
	edit(o.TLSConfig)
	o.ContextTimeoutEnabled, o.IdentitySuffix = true, reqlock.Identity
	c.shorten(&o.DialTimeout, &o.ReadTimeout, &o.WriteTimeout)
	return &client{redis.NewClient(o), "", []string{o.Addr}}, nil
}

func (c *connection) cluster(u *url.URL, edit func(*tls.Config)) (*client, error) {
	o, err := redis.ParseClusterURL(u.String())
	if err != nil {
		return nil, wrongURL(u, err)
	}
	edit(o.TLSConfig)
	o.ContextTimeoutEnabled, o.IdentitySuffix = true, reqlock.Identity
	c.shorten(&o.DialTimeout, &o.ReadTimeout, &o.WriteTimeout)
	return &client{redis.NewClusterClient(o), "cluster", o.Addrs}, nil
}

func (c *connection) sentinel(u *url.URL, edit func(*tls.Config)) (*client, error) {
	o, err := redis.ParseFailoverURL(u.String())
	if err != nil {
		return nil, wrongURL(u, err)
	}
	if o.MasterName == "" {
		return nil, usageError("the URL of Redis lacks the name of the master: add ?master_name=…")
	}
	edit(o.TLSConfig)
	o.ContextTimeoutEnabled, o.IdentitySuffix = true, reqlock.Identity
	c.shorten(&o.DialTimeout, &o.ReadTimeout, &o.WriteTimeout)
	return &client{redis.NewFailoverClient(o), "sentinel " + o.MasterName + " at", o.SentinelAddrs}, nil
}

// shorten makes the timeouts of single commands no longer than that of all together.
func (c *connection) shorten(timeouts ...*time.Duration) {
	const most = 5 * time.Second
	for _, t := range timeouts {
		if *t == 0 {
			*t = most
		}
		if c.timeout > 0 {
			*t = min(*t, c.timeout)
		}
	}
}

func wrongURL(u *url.URL, err error) error {
	return usageError("the URL of Redis: %v", redisurl.Explain(u, err))
}

// tls returns a function that applies the options to a configuration, which is nil without TLS.
func (c *connection) tls(on bool) (func(*tls.Config), error) {
	if !on {
		if c.ca != "" || c.cert != "" || c.key != "" || c.insecure {
			return nil, usageError("options that begin with --tls need TLS: use rediss:// in place of redis://")
		}
		return func(*tls.Config) {}, nil
	}
	var pool *x509.CertPool
	if c.ca != "" {
		pem, err := os.ReadFile(c.ca)
		if err != nil {
			return nil, usageError("--tls-ca: %v", err)
		}
		if pool = x509.NewCertPool(); !pool.AppendCertsFromPEM(pem) {
			return nil, usageError("--tls-ca: %s has no certificate in PEM form", c.ca)
		}
	}
	var own []tls.Certificate
	if c.cert != "" || c.key != "" {
		pair, err := tls.LoadX509KeyPair(c.cert, c.key)
		if err != nil {
			return nil, usageError("--tls-cert and --tls-key: %v", err)
		}
		own = append(own, pair)
	}
	return func(t *tls.Config) {
		if pool != nil {
			t.RootCAs = pool
		}
		t.Certificates = own
		t.InsecureSkipVerify = t.InsecureSkipVerify || c.insecure
	}, nil
}

// bound returns a context for one look at Redis.
func (c *connection) bound(ctx context.Context) (context.Context, context.CancelFunc) {
	if c.timeout <= 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, c.timeout)
}

// locks returns a lock client, and a function that closes it.
func (s *session) locks(rdb *client) (*core.Client, func(), error) {
	return s.locksOf(rdb, "reqlock-cli", slog.DiscardHandler)
}

func (s *session) locksOf(rdb *client, id string, log slog.Handler) (*core.Client, func(), error) {
	opts := core.Options{ClientID: id, Logger: slog.New(log), LogNames: true}
	if s.timeout > 0 {
		opts.CommandTimeout = s.timeout
	}
	locks, err := core.New(rdb.UniversalClient, opts)
	if err != nil {
		return nil, nil, err
	}
	return locks, func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience/2)
		defer cancel()
		_ = locks.Close(ctx)
	}, nil
}

// with connects, calls fn and disconnects.
func (s *session) with(fn func(rdb *client) error) error {
	rdb, err := s.connect()
	if err != nil {
		return err
	}
	defer rdb.Close()
	err = fn(rdb)
	if wrong := (*redisclient.WrongError)(nil); errors.As(err, &wrong) {
		want := "redis+cluster://"
		if wrong.Cluster {
			want = "redis://"
		}
		err = fmt.Errorf("%w; here, use a URL that begins with %s", err, want)
	}
	if exit := (*exitError)(nil); err != nil && !errors.As(err, &exit) && !errors.Is(err, inspect.ErrNotFound) {
		return fmt.Errorf("%s: %w", rdb, err)
	}
	return err
}
