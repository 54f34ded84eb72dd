// Bench measures reqlock side by side with other locks on Redis, and with floors: the least that a lock on Redis can cost.
//
//	go run . -out results -markdown ../docs/performance.md
//
// It starts a redis-server of its own on loopback. All contenders of a scenario take turns in rounds, in one process, so that
// whatever else the machine does meets all of them: a ratio is taken round by round, and the median of these is what is
// reported. Fewer than three rounds give no ratio.
//
// # How the parts play together
//
// A contender (contenders.go) opens clients; a client makes a session for a goroutine and a name; a session acquires what is
// then held. A scenario is a function that adds what it measures to the results (results.go), under a name for the scenario,
// the variant, the contender and the metric. The checks (checks.go) read the results and say what holds. Tables, CSV and plots
// are made of the results as well.
//
// The program starts itself again for what needs a second process: another Go process that wants the same lock, and a
// generator of HTTP requests where there is no wrk.
package main
