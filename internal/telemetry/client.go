package telemetry

import (
	"strconv"
	"time"

	"github.com/reqlock/reqlock/core"
)

// kinds are the kinds of locks. All of them have points from the start, so that no graph has a gap
// and no alert misses the first event.
var kinds = core.Kinds()

// faults are the classes of core.Counters.Errors. They have points from the start as well: an
// alert sees that a series grows, but not with how much it begins.
var faults = [...]string{
	"unreachable", "connection", "silent", "pool_empty", "client_closed", "login", "too_many_clients",
	"protected", "loading", "stale_replica", "cluster_down", "busy", "permission", "out_of_memory",
	"read_only", "cannot_save", "too_few_replicas", "too_few_acks", "no_command", "tls", "one_node",
	"no_cluster", "other",
}

// readClient reports the current numbers of a client.
func readClient(locks *core.Client, name string, out report) {
	gauge := func(m Metric, value float64, pairs ...string) {
		out(m, Point{Attributes: present(append(pairs, Client, name)...), Value: value})
	}
	held, waiting := make(map[string]crowd), make(map[string]crowd)
	for _, h := range locks.Holds() {
		held[h.Kind] = held[h.Kind].plus(h.Held)
	}
	for _, w := range locks.Waits() {
		waiting[w.Kind] = waiting[w.Kind].plus(w.Waited)
	}
	for _, kind := range kinds {
		gauge(Held, float64(held[kind].n), Kind, kind)
		gauge(OldestHold, held[kind].oldest.Seconds(), Kind, kind)
		gauge(Waiters, float64(waiting[kind].n), Kind, kind)
		gauge(OldestWaiter, waiting[kind].oldest.Seconds(), Kind, kind)
	}
	gauge(Cleanups, float64(locks.Stats().Cleanups))

	c := locks.Counters()
	gauge(LocksLost, float64(c.Lost))
	gauge(RenewalsFailed, float64(c.RenewFailures))
	gauge(Handovers, float64(c.HandOvers))
	gauge(Polls, float64(c.Polls))
	gauge(PubSubFailures, float64(c.PubSubFailures))
	gauge(Delegations, float64(c.Guests), Outcome, "entered")
	gauge(Delegations, float64(c.ParentsLost), Outcome, "parent_lost")
	gauge(Delegations, float64(c.TokensIgnored), Outcome, "ignored")
	gauge(RedisCommands, float64(c.Commands))
	for i, n := range c.BatchSizes {
		gauge(RedisBatches, float64(n), BatchSize, strconv.Itoa(1<<i))
	}
	for _, class := range faults {
		gauge(RedisErrors, float64(c.Errors[class]), ErrorType, class)
	}
}

// A crowd is the holds or the waiters of one kind.
type crowd struct {
	n      int
	oldest time.Duration
}

func (c crowd) plus(age time.Duration) crowd { return crowd{c.n + 1, max(c.oldest, age)} }
