package main

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

// A check is one requirement on reqlock's results.
type check struct {
	scenario, must string
	measure        func(*results) (value string, v verdict)
}

type verdict string

const (
	holds       verdict = "HOLDS"
	doesNotHold verdict = "DOES NOT HOLD"
	tooFew      verdict = "no verdict: fewer than 3 rounds"
	notMeasured verdict = "not measured"
)

func judge(ok bool) verdict {
	if ok {
		return holds
	}
	return doesNotHold
}

// A bound is a limit of a number.
type bound struct {
	limit float64
	most  bool // at most that; else at least
}

func atLeast(limit float64) bound { return bound{limit, false} }
func atMost(limit float64) bound  { return bound{limit, true} }

func (b bound) holds(x float64) bool {
	if b.most {
		return x <= b.limit
	}
	return x >= b.limit
}

func (b bound) String() string {
	if b.most {
		return "at most " + number(b.limit)
	}
	return "at least " + number(b.limit)
}

func ourSeries(scenario, variant, metric string) series {
	return series{scenario, variant, ours, metric}
}

// ratioTo checks the ratio of our metric to another contender's, round by round.
func ratioTo(of series, other string, b bound) check {
	to := of
	to.contender = other
	return check{
		of.scenario, fmt.Sprintf("%s, %s: %s times %s", of.variant, of.metric, b, other),
		func(r *results) (string, verdict) {
			if r.spread(of).rounds == 0 || r.spread(to).rounds == 0 {
				return "", notMeasured
			}
			ratio, ok := r.ratio(of, to)
			if !ok {
				return "", tooFew
			}
			return ratio.String() + "x", judge(b.holds(ratio.median))
		},
	}
}

// value checks the median of our metric.
func value(of series, b bound) check {
	return check{
		of.scenario, fmt.Sprintf("%s, %s: %s", of.variant, of.metric, b),
		func(r *results) (string, verdict) {
			s := r.spread(of)
			if s.rounds == 0 {
				return "", notMeasured
			}
			return s.String(), judge(b.holds(s.median))
		},
	}
}

// onThisMachine checks CPU time against a bound that is meant for a machine where another contender
// uses a given time. On a slower machine the bound grows in proportion.
func onThisMachine(of series, b bound, other string, uses float64) check {
	to := of
	to.contender = other
	return computed(of.scenario, fmt.Sprintf("%s, %s, where %s use %s", of.variant, of.metric, other, number(uses)), b, []series{of, to},
		func(v []float64) float64 { return v[0] / max(1, v[1]/uses) })
}

// computed checks a number computed from several metrics of a round.
func computed(scenario, must string, b bound, of []series, compute func(round []float64) float64) check {
	return check{scenario, must + ": " + b.String(), func(r *results) (string, verdict) {
		rounds := math.MaxInt
		for _, s := range of {
			rounds = min(rounds, len(r.values[s]))
		}
		if rounds == 0 {
			return "", notMeasured
		}
		if rounds < leastRounds {
			return "", tooFew
		}
		var values []float64
		for i := range rounds {
			var round []float64
			for _, s := range of {
				round = append(round, r.values[s][i])
			}
			values = append(values, compute(round))
		}
		s := spreadOf(values)
		return s.String(), judge(b.holds(s.median))
	}}
}

// checks returns all checks, in the order of the scenarios.
func checks() []check {
	full, hold1, hold0 := goroutinesOf(256), holdOf(s2Hold), holdOf(0)
	all := []check{
		ratioTo(ourSeries(s1, full, throughput), pipelines, atLeast(1.25)),
		ratioTo(ourSeries(s1, full, throughput), redsyncName, atLeast(3.5)),
		ratioTo(ourSeries(s1, full, throughput), rueidisLock, atLeast(2)),
		ratioTo(ourSeries(s1, goroutinesOf(1), throughput), rawPair, atLeast(0.9)),
		ratioTo(ourSeries(s1, goroutinesOf(4), throughput), rawPair, atLeast(0.9)),
		onThisMachine(ourSeries(s1, full, redisMicros), atMost(6.5), pipelines, 8),
		onThisMachine(ourSeries(s1, full, clientMicros), atMost(8), pipelines, 4.9),
		value(ourSeries(s1, full, allocations), atMost(20)),

		value(ourSeries(s2, hold1, commandsEach), atMost(1.1)),
		ratioTo(ourSeries(s2, hold1, acquisitions), fifo, atLeast(1.05)),
		computed(s2, hold1+", waiting p99 over 64 times hold and round trip", atMost(1.1),
			[]series{ourSeries(s2, hold1, waitP99), ourSeries(s2, hold1, holdMillis), ourSeries(s2, hold1, roundTrip)},
			func(v []float64) float64 { return v[0] / (s2Goroutines * (v[1] + v[2])) }),
		computed(s2, hold1+", fewest over most turns of a goroutine (one less is the end of the window)", atLeast(0.95),
			[]series{ourSeries(s2, hold1, fewest), ourSeries(s2, hold1, most)},
			func(v []float64) float64 { return min(1, (v[0]+1)/max(v[1], 1)) }),
		ratioTo(ourSeries(s2, hold0, acquisitions), fifo, atLeast(1.5)),
		ratioTo(ourSeries(s2, hold0, waitP99), fifo, atMost(1)),
		{s2, "two processes, smallest share of one in any window: at least 0.35", func(r *results) (string, verdict) {
			s := r.spread(ourSeries(s2Two, twoProcesses, leastShare))
			switch s.rounds {
			case 0:
				return "", notMeasured
			case 1, 2:
				return "", tooFew
			}
			return s.String(), judge(s.min >= 0.35)
		}},
		ratioTo(ourSeries(s3, twoClients, handOffP50), pubSubFloor, atMost(1.1)),
		ratioTo(ourSeries(s3, twoClients, handOffP99), pubSubFloor, atMost(1.1)),
	}
	for _, names := range []int{1, s4Waiters} {
		variant := namesOf(names)
		all = append(all,
			// A poll every 30 s, or a little more. The window has one poll, or none.
			value(ourSeries(s4, variant, commandsSecond), atMost(max(0.3, 0.033*float64(names)))),
			value(ourSeries(s4, variant, pubSubConns), atMost(2)), // the holder's client has one, too
			// Waiters add no goroutines.
			value(ourSeries(s4, variant, goroutinesMore), atMost(32)),
			value(ourSeries(s4, variant, heapAWaiter), atMost(s4Bytes[names])),
		)
	}
	all = append(all,
		value(ourSeries(s5, heldLocks, goroutineLock), atMost(0.01)),
		value(ourSeries(s5, heldLocks, bytesLock), atMost(700)),
		value(ourSeries(s5, heldLocks, keysACommand), atLeast(10)),
		value(ourSeries(s5, heldLocks, busiestTenth), atMost(0.3)),
		ratioTo(ourSeries(s5, heldLocks, pingP99), rueidisLock, atMost(0.6)),
		ratioTo(ourSeries(s5, heldLocks, clientPercent), rueidisLock, atMost(1)),
	)
	for _, f := range frameworks {
		all = append(all,
			ratioTo(ourSeries(s6, f.name, requests), noLock, atLeast(0.55)),
			ratioTo(ourSeries(s6, f.name, requests), pipelines, atLeast(1)),
			ratioTo(ourSeries(s6, f.name, requests), redsyncName, atLeast(1.5)),
		)
	}
	all = append(all,
		ratioTo(ourSeries(s7, ownSemaphores, throughput), plainLock, atLeast(0.9)),
		value(ourSeries(s7, fullQueue, commandsEach), atMost(1.2)),
		computed(s7, fullQueue+", waiting p99 over the mean", atMost(3),
			[]series{ourSeries(s7, fullQueue, waitP99), ourSeries(s7, fullQueue, waitMean)},
			func(v []float64) float64 { return v[0] / v[1] }),
	)
	for _, n := range permitCounts {
		all = append(all, ratioTo(ourSeries(s7, permitsOf(n, time.Millisecond), acquisitions), zsetPolling, atLeast(1)))
	}
	for _, work := range stampedeRuns {
		all = append(all, ratioTo(ourSeries(s8, stampedeOf(textResult, work), throughput), singleflightName, atLeast(0.5)))
		for _, result := range []string{textResult, reportResult} {
			all = append(all, ratioTo(ourSeries(s8, stampedeOf(result, work), throughput), lockAndCache, atLeast(1)),
				value(ourSeries(s8, stampedeOf(result, work), runsEach), atMost(1)))
		}
	}
	all = append(all, value(ourSeries(names, distinctNames, bytesAName), atMost(1)))
	all = append(all, gridChecks()...)
	all = append(all, throughputStays())
	for _, n := range poolSizes {
		all = append(all,
			bestPeer(pools, poolOf(n)),
			ratioTo(ourSeries(pools, poolOf(n), throughput), rawPair, atLeast(1)),
		)
	}
	return append(all,
		beside(throughput, atLeast(0.85)),
		beside(cycleP99, atMost(1.5)),
	)
}

// gridChecks are those of each cell: no peer is faster.
func gridChecks() (all []check) {
	for _, l := range wholeGrid.lines {
		for _, callers := range wholeGrid.callers {
			cell := callersOn(l, callers)
			least := 1.0
			if l == loopback && callers == 1 {
				least = 0.95
			}
			all = append(all, bestPeer(far, cell), ratioTo(ourSeries(far, cell, throughput), rawPair, atLeast(least)))
			if l.trip > 0 {
				all = append(all, ratioTo(ourSeries(far, cell, cycleP50), rawPair, atMost(1.02)))
			}
		}
	}
	return all
}

// bestPeer checks our throughput against that of the peer whose median is the best.
func bestPeer(scenario, variant string) check {
	of := ourSeries(scenario, variant, throughput)
	return check{scenario, fmt.Sprintf("%s, %s: at least 1 times the best peer", variant, throughput), func(r *results) (string, verdict) {
		best := r.best(scenario, variant, throughput, peers)
		value, v := ratioTo(of, best, atLeast(1)).measure(r)
		if v == notMeasured || v == tooFew {
			return value, v
		}
		return fmt.Sprintf("%s (%s)", value, best), v
	}}
}

// beside checks what a slow master does to the locks on the two others.
func beside(metric string, b bound) check {
	return computed(slow, besideSlow+", "+metric+", of that without it", b,
		[]series{ourSeries(slow, besideSlow, metric), ourSeries(slow, withoutSlow, metric)},
		func(v []float64) float64 { return v[0] / v[1] })
}

// best returns the contender with the greatest median.
func (r *results) best(scenario, variant, metric string, contenders []string) (best string) {
	greatest := -1.0
	for _, c := range contenders {
		if s := r.spread(series{scenario, variant, c, metric}); s.rounds > 0 && s.median > greatest {
			best, greatest = c, s.median
		}
	}
	return best
}

// throughputStays checks that throughput does not drop much beyond its peak as callers are added.
// It compares round by round, because a machine may be slower in some rounds.
func throughputStays() check {
	most := wholeGrid.callers[len(wholeGrid.callers)-1]
	must := fmt.Sprintf("%s, 1 to %d callers, least throughput after the peak over that of the peak: at least 0.85", loopback.name, most)
	return check{far, must, func(r *results) (string, verdict) {
		var cells []series
		var medians []float64
		rounds := math.MaxInt
		for _, n := range wholeGrid.callers {
			cell := ourSeries(far, callersOn(loopback, n), throughput)
			s := r.spread(cell)
			rounds = min(rounds, s.rounds)
			cells, medians = append(cells, cell), append(medians, s.median)
		}
		switch {
		case rounds == 0:
			return "", notMeasured
		case rounds < leastRounds:
			return "", tooFew
		}
		peak := slices.Index(medians, slices.Max(medians))
		least, at := 1.0, peak
		for i := peak + 1; i < len(medians); i++ {
			ratio, _ := r.ratio(cells[i], cells[peak])
			if ratio.median < least {
				least, at = ratio.median, i
			}
		}
		return fmt.Sprintf("%s (peak at %d callers, least at %d)", number(least), wholeGrid.callers[peak], wholeGrid.callers[at]), judge(least >= 0.85)
	}}
}

func (s spread) String() string {
	if s.rounds < 2 {
		return number(s.median)
	}
	return fmt.Sprintf("%s (%s-%s)", number(s.median), number(s.min), number(s.max))
}

// number formats a number briefly, never in scientific notation.
func number(x float64) string {
	switch a := math.Abs(x); {
	case a >= 1e4:
		return fmt.Sprintf("%.1fk", x/1e3)
	case a >= 100 || x == math.Trunc(x):
		return fmt.Sprintf("%.0f", x)
	case a >= 10:
		return fmt.Sprintf("%.1f", x)
	case a >= 1:
		return fmt.Sprintf("%.2f", x)
	case a < 0.0005:
		return "0"
	}
	return strings.TrimRight(fmt.Sprintf("%.3f", x), "0")
}
