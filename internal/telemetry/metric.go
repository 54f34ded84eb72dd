// Package telemetry defines the metrics of reqlock: their names, and how events and outcomes map to
// the values of their attributes. otelreqlock and promreqlock export them by the means of
// OpenTelemetry and Prometheus, so one dashboard serves both.
package telemetry

import "strings"

// A Type says how a metric's values combine.
type Type uint8

// The types of metrics.
const (
	Counter       Type = iota // A counter only grows.
	UpDownCounter             // The values of several processes add up.
	Gauge                     // The values of several processes do not add up.
	Histogram
)

// A Metric is one of the metrics.
type Metric uint8

// The metrics.
const (
	AcquireDuration Metric = iota
	HoldDuration
	Held
	OldestHold
	Waiters
	OldestWaiter
	Cleanups
	LocksLost
	RenewalsFailed
	Handovers
	Polls
	PubSubFailures
	Delegations
	RedisCommands
	RedisBatches
	RedisErrors
	Requests
	IdempotencyOutcomes
	CoalesceOutcomes
	PluginCalls
	metrics
)

// All has all metrics.
var All = func() (all [metrics]Metric) {
	for m := range metrics {
		all[m] = m
	}
	return all
}()

// A Description describes a metric by OpenTelemetry's conventions.
type Description struct {
	Name       string
	Type       Type
	Unit       string // UCUM; {…} is a count of something
	Help       string
	Attributes []string
}

var descriptions = [metrics]Description{
	AcquireDuration: {
		"reqlock.acquire.duration", Histogram, "s",
		"Time that calls of Acquire took.", []string{Kind, Outcome, ErrorType},
	},
	HoldDuration: {
		"reqlock.hold.duration", Histogram, "s",
		"Time that locks were held, recorded at the end.", []string{Kind, Outcome, ErrorType},
	},
	Held: {
		"reqlock.locks.held", UpDownCounter, "{lock}",
		"Locks held.", []string{Kind, Client},
	},
	OldestHold: {
		"reqlock.locks.oldest", Gauge, "s",
		"Time for which the oldest hold has lasted; 0 if no lock is held.", []string{Kind, Client},
	},
	Waiters: {
		"reqlock.waiters", UpDownCounter, "{waiter}",
		"Callers in Acquire that do not have the lock yet.", []string{Kind, Client},
	},
	OldestWaiter: {
		"reqlock.waiters.oldest", Gauge, "s",
		"Time for which the oldest waiter has waited; 0 if there is none.", []string{Kind, Client},
	},
	Cleanups: {
		"reqlock.cleanups", UpDownCounter, "{release}",
		"Releases to be sent or retried in the background.", []string{Client},
	},
	LocksLost: {
		"reqlock.locks.lost", Counter, "{lock}",
		"Locks lost while they were held.", []string{Client},
	},
	RenewalsFailed: {
		"reqlock.renewals.failed", Counter, "{renewal}",
		"Renewals that failed. They are retried until the lease ends.", []string{Client},
	},
	Handovers: {
		"reqlock.handovers", Counter, "{handover}",
		"Locks that a release gave to a waiter of the same process.", []string{Client},
	},
	Polls: {
		"reqlock.polls", Counter, "{poll}",
		"Attempts of waiters that no message woke.", []string{Client},
	},
	PubSubFailures: {
		"reqlock.pubsub.failures", Counter, "{connection}",
		"Connections for messages that were lost, not opened or not permitted to subscribe.", []string{Client},
	},
	Delegations: {
		"reqlock.delegations", Counter, "{use}",
		"Uses of delegation tokens, by their outcome: entered, parent_lost, or ignored because the token does not count.", []string{Outcome, Client},
	},
	RedisCommands: {
		"reqlock.redis.commands", Counter, "{command}",
		"Calls sent to Redis for locks.", []string{Client},
	},
	RedisBatches: {
		"reqlock.redis.batches", Counter, "{batch}",
		"Batches of calls sent to Redis, by size.", []string{BatchSize, Client},
	},
	RedisErrors: {
		"reqlock.redis.errors", Counter, "{error}",
		"Operations that Redis failed, after retries.", []string{ErrorType, Client},
	},
	Requests: {
		"reqlock.requests", Counter, "{request}",
		"Requests in guards.", []string{Problem, Route},
	},
	IdempotencyOutcomes: {
		"reqlock.idempotency.outcomes", Counter, "{request}",
		"Requests with idempotency keys.", []string{Outcome, Problem, Route},
	},
	CoalesceOutcomes: {
		"reqlock.coalesce.outcomes", Counter, "{request}",
		"Requests that may share an answer.", []string{Outcome, Problem, Route},
	},
	PluginCalls: {
		"reqlock.plugin.calls", Counter, "{call}",
		"Calls of WebAssembly plugins.", []string{Plugin, Outcome},
	},
}

// Describe returns the description of a metric.
func (m Metric) Describe() Description { return descriptions[m] }

// The attributes of metrics and spans. ErrorType and Route are names of OpenTelemetry's semantic
// conventions.
const (
	Kind      = "reqlock.kind"       // The kind of the lock is lock, fair, fenced, read, write or once.
	Outcome   = "reqlock.outcome"    // see AcquireOutcome, HoldOutcome, Idempotency and Coalesced
	Problem   = "reqlock.problem"    // see RequestProblem
	BatchSize = "reqlock.batch.size" // the least size of a class: 1, 2, 4 and so on, up to 128
	Client    = "reqlock.client"     // the name that the application gives to a core.Client, if any
	Plugin    = "reqlock.plugin"     // the name that the application gives to a plugin
	Lock      = "reqlock.lock"       // Spans have what Options.Name makes of a lock's name, if it is set.
	ErrorType = "error.type"         // see ErrorTypeOf; absent without an error
	Route     = "http.route"         // the matched pattern; absent if there is none
)

// Prometheus returns the name that OpenTelemetry's exporter for Prometheus derives.
func (d Description) Prometheus() string {
	name := Label(d.Name)
	if d.Unit == "s" {
		name += "_seconds"
	}
	if d.Type == Counter {
		name += "_total"
	}
	return name
}

// Label returns the label that OpenTelemetry's exporter for Prometheus derives from an attribute.
func Label(attribute string) string { return strings.ReplaceAll(attribute, ".", "_") }
