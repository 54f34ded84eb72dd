// Bench compares reqlock with other Redis locks and with floors: the least a Redis lock can cost.
//
//	go run . -out results -markdown README.md
//
// It starts its own redis-server on loopback. All contenders of a scenario take turns in rounds, in
// one process, so that other load on the machine affects all of them. A ratio is computed per
// round, and the median is reported. Fewer than three rounds give no ratio.
//
// # Architecture
//
// A contender (contenders.go) opens clients. A client creates a session for a goroutine and a name.
// A session acquires the lock. A scenario is a function that adds its measurements to the results
// (results.go), by scenario, variant, contender and metric. The checks (checks.go) evaluate the
// results, which also become tables, CSV and plots.
//
// The program starts itself again where it needs a second process: a second Go process that wants
// the same lock, and a generator of HTTP requests if wrk is not installed.
package main
