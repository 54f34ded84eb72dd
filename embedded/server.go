package embedded

import (
	"errors"
	"fmt"
	"sync"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// Server is a Redis server: one inside this process ([Start]), or the one that REDIS_URL names
// ([FromEnv]). Its methods are safe for concurrent use. The zero value is not usable.
type Server struct {
	// mini is nil if the server is external.
	mini *miniredis.Miniredis
	// opts is what every client starts from. It is never handed out.
	opts redis.Options
	// url has no credentials.
	url string

	mu      sync.Mutex
	closed  bool
	clients []*redis.Client
}

// Start runs an empty Redis inside the process, on a free port of the loopback interface. The
// caller must call [Server.Close]. An error means that no loopback port could be opened.
func Start() (*Server, error) {
	mini := miniredis.NewMiniRedis()
	if err := mini.StartAddr("127.0.0.1:0"); err != nil {
		return nil, fmt.Errorf("reqlock: embedded: cannot listen on a loopback port: %w", err)
	}
	runClock(mini)
	return &Server{
		mini: mini,
		opts: redis.Options{
			Addr: mini.Addr(),
			// This server does not support either of these CLIENT subcommands.
			DisableIdentity:          true,
			MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
		},
		url: "redis://" + mini.Addr(),
	}, nil
}

// Embedded reports whether the server runs inside this process.
func (s *Server) Embedded() bool { return s.mini != nil }

// Addr returns the server's address, "127.0.0.1:port" for an embedded one. It
// stays the same after Close.
func (s *Server) Addr() string { return s.opts.Addr }

// URL returns the server's address as a URL that is safe to print. That of an embedded server,
// "redis://127.0.0.1:port", works with any client. That of REDIS_URL shows "***" in place of user
// and password, and no query parameters.
func (s *Server) URL() string { return s.url }

// Client returns a new client of the server, with the settings of REDIS_URL or go-redis's defaults.
// The Server owns it: Close closes it, and the caller may close it earlier. After Close, Client
// returns a closed client, which fails with [redis.ErrClosed].
func (s *Server) Client() *redis.Client {
	s.mu.Lock()
	defer s.mu.Unlock()
	rdb := redis.NewClient(&s.opts)
	if s.closed {
		_ = rdb.Close()
		return rdb
	}
	s.clients = append(s.clients, rdb)
	return rdb
}

// Close closes all clients that came from [Server.Client] and ends an embedded
// server, whose data is gone then; a server that REDIS_URL names runs on. It
// returns when both are done. Further calls do nothing and return nil.
func (s *Server) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	s.closed = true

	var errs []error
	for _, rdb := range s.clients {
		if err := rdb.Close(); err != nil && !errors.Is(err, redis.ErrClosed) {
			errs = append(errs, fmt.Errorf("reqlock: embedded: closing a client of %s: %w", s.url, err))
		}
	}
	s.clients = nil
	if s.mini != nil {
		stop(s.mini)
	}
	return errors.Join(errs...)
}

// stop closes all connections first. Closing a miniredis begins with its lock, which a PUBLISH may
// hold while it waits for a subscriber that no longer reads.
func stop(mini *miniredis.Miniredis) {
	mini.CtxCancel() // ends blocking commands such as BLPOP
	cut := make(chan struct{})
	go func() {
		defer close(cut)
		mini.Server().Close()
	}()
	mini.FlushAll() // wakes a blocking command that started just now
	<-cut
	mini.Close()
}
