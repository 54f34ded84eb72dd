package embedded

import (
	"errors"
	"fmt"
	"sync"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// Server is a Redis to work with: one inside this process ([Start]), or the one
// that REDIS_URL names ([FromEnv]). Its methods are safe for concurrent use.
// The zero value is not usable.
type Server struct {
	mini *miniredis.Miniredis // nil: the server belongs to somebody else
	opts redis.Options        // what every client starts from; never handed out
	url  string               // without credentials

	mu      sync.Mutex
	closed  bool
	clients []*redis.Client
}

// Start runs an empty Redis inside the process, on a free port of the loopback
// interface. Whoever starts it calls [Server.Close]. An error means that no
// loopback port could be opened.
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
			// Both are CLIENT subcommands that this server does not know.
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

// URL returns the server's address as a URL, fit for being printed. That of an
// embedded server, "redis://127.0.0.1:port", can be given to any client as it
// is. That of REDIS_URL shows "***" in place of a user and password, and no
// query parameters.
func (s *Server) URL() string { return s.url }

// Client returns a new client of the server, with the settings of REDIS_URL or
// else with go-redis's defaults. The Server owns it: Close closes it, and so may
// the caller before. After Close the client that is returned is closed already
// and answers [redis.ErrClosed].
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

// stop cuts all connections first. Closing a miniredis begins with its lock, which
// a PUBLISH holds for as long as a subscriber that reads no more keeps it waiting.
func stop(mini *miniredis.Miniredis) {
	mini.CtxCancel() // ends BLPOP and its like
	cut := make(chan struct{})
	go func() {
		defer close(cut)
		mini.Server().Close()
	}()
	mini.FlushAll() // wakes one that was about to wait just when it should have ended
	<-cut
	mini.Close()
}
