package caddylock

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/reqlock/reqlock/core"
)

func init() { caddy.RegisterModule(new(App)) }

// App is the connection to the Redis that holds the locks. All sites share it, and so do all
// instances of Caddy with the same Redis. Set exactly one of `redis`, `sentinel`, `cluster` and
// `embedded`.
//
// A reload keeps the connection, the locks and the waiting requests if these settings are the same.
// Otherwise new requests use the new connection, and requests that already run keep the old one
// until they end.
type App struct {
	// The URL of a single Redis: `redis://[user:password@]host:port[/db]`, `rediss://` for TLS, or
	// `unix:///path/to/socket`. It may contain placeholders such as `{env.REDIS_URL}`.
	Redis string `json:"redis,omitempty"`
	// A Redis that Sentinel watches.
	Sentinel *Sentinel `json:"sentinel,omitempty"`
	// The addresses (`host:port`) of some nodes of a Redis Cluster.
	Cluster []string `json:"cluster,omitempty"`
	// Keep the locks in the memory of this process. They exclude only requests of this process:
	// that is for a try, and for tests.
	Embedded bool `json:"embedded,omitempty"`

	// The Redis user. It may contain placeholders. Default: that of the URL, or the default user.
	Username string `json:"username,omitempty"`
	// The password, such as `{env.REDIS_PASSWORD}`. Default: that of the URL, or none.
	Password string `json:"password,omitempty"`
	// A file with the password. It is read for each new connection, so a new password needs no
	// reload. White space at its ends does not count.
	PasswordFile string `json:"password_file,omitempty"`
	// The number of the database, with `sentinel`. Default: 0.
	DB int `json:"db,omitempty"`
	// TLS to Redis, for what a `rediss://` URL cannot say, and for `sentinel` and `cluster`.
	TLS *TLS `json:"tls,omitempty"`

	// Names this instance in Redis, to show who holds a lock: letters, digits, '.', '_' and '-', 28
	// at most. Default: the host name and the process ID.
	ClientID string `json:"client_id,omitempty"`
	// The lease of a lock without a `lease`. It is renewed every third of this time while the lock
	// is held, and frees the lock if this instance dies. Default: `30s`.
	Watchdog caddy.Duration `json:"watchdog,omitempty"`
	// The bound of each operation on Redis. Default: `3s`.
	CommandTimeout caddy.Duration `json:"command_timeout,omitempty"`
	// How many replicas must confirm a lock before a request runs. Default: 0.
	ReplicaAcks int `json:"replica_acks,omitempty"`
	// How many requests of this instance may wait for locks, for all of them together; the next one
	// gets 503. Default: 0, which means 8192; -1: no bound.
	MaxWaiting int `json:"max_waiting,omitempty"`
	// How releases are announced: `auto`, `plain`, `sharded` or `both`. All programs that share
	// locks must use the same. Default: `auto`, which is `plain` except in a cluster.
	Publish string `json:"publish,omitempty"`
	// The secrets with which requests enter locks of their callers. Handlers with `delegates` and
	// `delegate_to` need it. Default: none.
	Delegation *Delegation `json:"delegation,omitempty"`

	// The pool has the connection under key. first is true if no other configuration has it yet.
	key        any
	connection *connection
	first      bool
	// resolved has the values of placeholders in their place.
	resolved *App

	stop context.CancelFunc
	// checked is closed when the check of Start has ended.
	checked chan struct{}
}

// Sentinel names a master and where to ask for it.
type Sentinel struct {
	// The name of the master, as the sentinels know it.
	Master string `json:"master"`
	// The addresses (`host:port`) of sentinels.
	Addresses []string `json:"addresses"`
	// The password of the sentinels themselves. It may contain placeholders. Default: none.
	Password string `json:"password,omitempty"`
}

// CaddyModule returns the Caddy module information.
func (*App) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "reqlock", New: func() caddy.Module { return new(App) }}
}

// Provision opens the connection, without talking to Redis.
func (a *App) Provision(ctx caddy.Context) error {
	var err error
	if a.resolved, err = a.resolve(caddy.NewReplacer()); err != nil {
		return err
	}
	if a.key, err = a.resolved.poolKey(); err != nil {
		return err
	}
	var loaded bool
	if a.connection, loaded, err = open(a.key, a.resolved); err != nil {
		return err
	}
	a.first = !loaded
	if err := ctx.GetMetricsRegistry().Register(a.connection.metrics); err != nil {
		return fmt.Errorf("reqlock: caddy: metrics: %w", err)
	}
	return nil
}

// poolKey returns what equal settings have in common, without the secrets in them.
func (a *App) poolKey() (any, error) {
	text, err := json.Marshal(a)
	if err != nil {
		return nil, fmt.Errorf("reqlock: caddy: %w", err)
	}
	return sha256.Sum256(text), nil
}

// retain counts one more use of the connection, until release is called.
func (a *App) retain() (c *connection, release func(), err error) {
	c, _, err = open(a.key, a.resolved)
	if err != nil {
		return nil, nil, err
	}
	return c, func() { logEnd(connections.Delete(a.key)) }, nil
}

// borrow is retain if there still is a connection with these settings.
func (a *App) borrow() (release func()) {
	if _, used := connections.References(a.key); used {
		if _, release, err := a.retain(); err == nil {
			return release
		}
	}
	return func() {} // the locks are closed: the request gets 503
}

// logEnd logs the error of an end of use, which nothing can be done about.
func logEnd(deleted bool, err error) {
	if deleted && err != nil {
		newLogger().Warn("reqlock: closing failed", "error", err)
	}
}

// Start checks a new connection in the background: Caddy starts, and answers 503, without Redis.
func (a *App) Start() error {
	ctx, stop := context.WithCancel(context.Background())
	a.stop, a.checked = stop, make(chan struct{})
	if !a.first {
		close(a.checked)
		return nil
	}
	go func() {
		defer close(a.checked)
		began := time.Now()
		err := a.connection.locks.Ping(ctx)
		switch {
		case ctx.Err() != nil || errors.Is(err, core.ErrClosed):
		case err != nil:
			newLogger().Error("reqlock: locks do not work yet; requests that need one get 503", "error", err)
		default:
			newLogger().Info("reqlock: locks work", "redis", a.resolved.where(), "took", time.Since(began))
		}
	}()
	return nil
}

// Stop ends the check of Start.
func (a *App) Stop() error {
	a.stop()
	<-a.checked
	return nil
}

// Cleanup gives the connection back. It lives on while another configuration, or a request that
// still runs, uses it.
func (a *App) Cleanup() error {
	if a.connection != nil {
		logEnd(connections.Delete(a.key))
	}
	return nil
}

var (
	_ caddy.App          = (*App)(nil)
	_ caddy.Provisioner  = (*App)(nil)
	_ caddy.CleanerUpper = (*App)(nil)
)
