package redisop

import (
	"log/slog"
	"time"

	"github.com/reqlock/reqlock/core/internal/batch"
	"github.com/reqlock/reqlock/core/internal/clock"
	"github.com/reqlock/reqlock/internal/redisclient"
)

// Config configures a Runner. Redis, Timeout, Clock, Logger, Closed, Background and Closing are required.
type Config struct {
	Redis redisclient.Client
	// Timeout is the CommandTimeout.
	Timeout time.Duration
	// Acks is how many replicas must confirm a write. 0: none has to.
	Acks       int
	AckTimeout time.Duration
	Clock      func(time.Time) clock.Instant
	Logger     *slog.Logger
	// Closed is the error of operations after Close.
	Closed error
	// Background runs a function on a goroutine. It returns false if it is too late.
	Background func(func()) bool
	// Lacking is called, unless it is nil, when it is logged that Redis lacks a command.
	Lacking func(key string)
	// Closing is closed when functions in the background must end.
	Closing <-chan struct{}
}

// A Runner runs operations on one server or cluster.
type Runner struct {
	cfg     Config
	batcher *batch.Batcher
	slots   slotRefresher
	fit     fit
	silent  silences
	health  *health
}

// New returns a Runner. It does not talk to Redis.
func New(cfg Config) *Runner {
	r := &Runner{
		cfg: cfg,
		batcher: batch.New(batch.Config{
			Redis:      cfg.Redis,
			Timeout:    cfg.Timeout,
			Acks:       cfg.Acks,
			AckTimeout: cfg.AckTimeout,
		}),
	}
	r.slots.redis, r.slots.timeout, r.slots.background = cfg.Redis, cfg.Timeout, cfg.Background
	r.fit.redis, r.fit.timeout, r.fit.background = cfg.Redis, cfg.Timeout, cfg.Background
	r.fit.known.Store(cfg.Redis.Cluster != nil)
	r.silent.r, r.silent.of = r, make(map[any]*silence)
	r.health = newHealth(cfg.Logger, r.slots.sameServer)
	r.health.lacking = cfg.Lacking
	return r
}

// Outages returns the latest outage by each fault, the latest first.
func (r *Runner) Outages() []Outage { return r.health.outages() }

// Counters returns what was sent, and how many operations Redis failed, by the class of the fault.
func (r *Runner) Counters() (sent batch.Sent, failed map[string]uint64) {
	return r.batcher.Sent(), r.health.failedByClass()
}

// Interrupt makes operations whose Until.Closing was closed end.
func (r *Runner) Interrupt() { r.batcher.Interrupt() }

// Close refuses further operations and waits until the queued and sent ones have ended.
func (r *Runner) Close() { r.batcher.Close() }
