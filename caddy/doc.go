// Package caddylock makes reqlock a plug-in of Caddy. Requests with the same key run one at a time,
// on however many machines Caddy runs, and whatever language the service behind it is written in.
//
//	{
//		reqlock {
//			redis redis://127.0.0.1:6379
//		}
//	}
//	:8080 {
//		reqlock /orders/* {
//			key order:{path.1}
//		}
//		reverse_proxy 127.0.0.1:9000
//	}
//
// It has four modules: the app reqlock ([App]) with the connection to Redis, and the handlers
// http.handlers.reqlock ([Handler]), http.handlers.reqlock_idempotent ([Idempotent]) and
// http.handlers.reqlock_coalesce ([Coalesce]). The admin endpoint lists locks at /reqlock/locks.
//
// docs/guides/caddy.md is the guide. This package translates: the rules are those of package guard,
// of idempotency, of coalesce and of keyfuncs.
//
// # How the parts play together
//
// A configuration has one App, which gets its connection from a pool (pool.go): an unchanged
// connection is kept across reloads. Each handler holds the connection and its plugin until its
// last request has ended (usage.go), because Caddy drops a configuration while requests of it still
// run. gate.go and exchange.go lead one request through a guard, key.go turns Caddy's placeholders
// into keys, delegation.go and delegating.go let requests into locks of their callers, and
// caddyfile*.go parse the Caddyfile.
package caddylock
