package embedded

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/reqlock/reqlock"
	"github.com/reqlock/reqlock/internal/redisurl"
)

const (
	envURL = "REDIS_URL"

	// pingTimeout covers name lookup, connecting, TLS and PING together.
	pingTimeout = 3 * time.Second
)

// FromEnv returns the Redis that the environment variable REDIS_URL names, or calls [Start] if the
// variable is unset or blank. The URL has the form redis://user:password@host:port/db, rediss://
// for TLS, or unix:///path/to/socket; its query parameters are those of [redis.ParseURL].
//
// The server has answered a PING when FromEnv returns. If it does not within
// three seconds, or if the URL is malformed, the error says in one line what to
// do, and shows neither user nor password.
func FromEnv() (*Server, error) {
	raw := strings.TrimSpace(os.Getenv(envURL))
	if raw == "" {
		return Start()
	}
	return connect(raw, pingTimeout)
}

func connect(raw string, timeout time.Duration) (*Server, error) {
	u, err := redisurl.Parse(raw)
	if err != nil {
		return nil, fmt.Errorf("reqlock: embedded: %s is %w", envURL, err)
	}
	shown := redisurl.Shown(u)
	opts, err := redisurl.Options(raw)
	if err != nil {
		return nil, fmt.Errorf("reqlock: embedded: %s %s is malformed: %w; want %s", envURL, shown, err, redisurl.Wanted)
	}
	opts.IdentitySuffix = reqlock.Identity
	if err := ping(*opts, timeout); err != nil {
		return nil, fmt.Errorf("reqlock: embedded: %s %s is unusable: %w; start that server, correct %s, "+
			"or unset it to run Redis inside this process", envURL, shown, err, envURL)
	}
	return &Server{opts: *opts, url: shown}, nil
}

// ping makes one attempt. A client with default options would make many and log each.
func ping(opts redis.Options, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()

	// ctx has the rest of the timeout, but TLS only respects DialTimeout.
	opts.DialTimeout = timeout
	conn, err := redis.NewDialer(&opts)(ctx, opts.Network, opts.Addr)
	if err != nil {
		return plain(err, timeout)
	}
	defer conn.Close()

	opts.Dialer = func(context.Context, string, string) (net.Conn, error) { return conn, nil }
	opts.MaxRetries = -1
	opts.DialerRetries = 1
	opts.MinIdleConns = 0
	opts.ReadTimeout, opts.WriteTimeout = timeout, timeout
	opts.ContextTimeoutEnabled = true
	opts.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	rdb := redis.NewClient(&opts)
	defer rdb.Close()
	if err := rdb.Ping(ctx).Err(); err != nil {
		return plain(err, timeout)
	}
	return nil
}

// plain adds the duration to a timeout. Errors of the network and of Redis are clear enough.
func plain(err error, timeout time.Duration) error {
	var netErr net.Error
	if errors.Is(err, context.DeadlineExceeded) || errors.As(err, &netErr) && netErr.Timeout() {
		return fmt.Errorf("no answer within %v: %w", timeout, err)
	}
	return err
}
