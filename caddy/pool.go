package caddylock

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/redis/go-redis/v9"
	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/promreqlock"
	"github.com/reqlock/reqlock/wasm"
)

// What configurations share, as long as one of them, or a request of one, uses it.
var (
	connections = caddy.NewUsagePool() // *connection by the settings of the App
	plugins     = caddy.NewUsagePool() // *plugin by pluginKey
)

// closeTimeout is how long locks that are still held at the end may stay so: nothing, or a request
// that has outlived Caddy's grace period. Then they are released.
const closeTimeout = time.Second

// A connection is a Redis with the locks on it. Its metrics outlive a configuration, so counters do
// not fall at a reload: each configuration has its own registry, and registers the same metrics.
type connection struct {
	rdb     redis.UniversalClient
	locks   *core.Client
	metrics *promreqlock.Collector
	// delegates says that locks has keys for tokens.
	delegates bool
	// end closes the connections to Redis, or the embedded one.
	end func() error

	closing sync.Once
	// closed is closed when locks is.
	closed   chan struct{}
	deadline context.Context
	expire   context.CancelFunc
}

// open returns the connection for settings, from the pool if it is there. The caller calls
// connections.Delete(key) in the end.
func open(key any, settings *App) (c *connection, loaded bool, err error) {
	value, loaded, err := connections.LoadOrNew(key, func() (caddy.Destructor, error) { return connect(settings) })
	if err != nil {
		return nil, loaded, err
	}
	return value.(*connection), loaded, nil
}

func connect(settings *App) (*connection, error) {
	rdb, end, err := settings.dial()
	if err != nil {
		return nil, err
	}
	c := &connection{rdb: rdb, metrics: promreqlock.New(), delegates: settings.Delegation != nil, end: end, closed: make(chan struct{})}
	c.deadline, c.expire = context.WithCancel(context.Background())
	options := settings.options()
	options.Logger, options.Observer, options.Annotate = newLogger(), c.metrics.Observer(core.Observer{}), annotate
	if c.locks, err = core.New(rdb, options); err != nil {
		return nil, errors.Join(err, end())
	}
	c.metrics.Watch("", c.locks)
	return c, nil
}

// drain begins to close the locks: waiters are answered, holders may go on until Destruct.
func (c *connection) drain() {
	c.closing.Do(func() {
		go func() {
			defer close(c.closed)
			if err := c.locks.Close(c.deadline); err != nil {
				newLogger().Warn("reqlock: locks were still in use at the end", "error", err)
			}
		}()
	})
}

// Destruct closes the locks and the connection. The pool calls it after the last use.
func (c *connection) Destruct() error {
	c.drain()
	timer := time.AfterFunc(closeTimeout, c.expire)
	defer timer.Stop()
	<-c.closed
	c.expire()
	return c.end()
}

// A pluginKey names a plugin: configurations with equal settings share it.
type pluginKey struct{ file, settings string }

type plugin struct{ *wasm.Plugin }

// openPlugin returns the plugin, from the pool if it is there. The caller calls plugins.Delete(key)
// in the end.
func openPlugin(key pluginKey) (*plugin, error) {
	value, _, err := plugins.LoadOrNew(key, func() (caddy.Destructor, error) {
		p, err := wasm.Open(context.Background(), key.file, wasm.Config{
			Settings: []byte(key.settings),
			Logger:   newLogger(),
			Watch:    true,
		})
		if err != nil {
			return nil, err
		}
		return &plugin{p}, nil
	})
	if err != nil {
		return nil, err
	}
	return value.(*plugin), nil
}

// Destruct closes the plugin. The pool calls it after the last use.
func (p *plugin) Destruct() error {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	return p.Close(ctx)
}
