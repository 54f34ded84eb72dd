package main

import (
	"fmt"
	"math"
	"slices"
)

// A series identifies one measured metric. It has one value per round, NaN if a round has none.
type series struct{ scenario, variant, contender, metric string }

// results holds the measurements of a run, in the order they were added.
type results struct {
	round  int // the current round, from 0
	order  []series
	values map[series][]float64
	notes  []string
}

func newResults() *results { return &results{values: make(map[series][]float64)} }

func (r *results) add(scenario, variant, contender, metric string, value float64) {
	s := series{scenario, variant, contender, metric}
	if _, ok := r.values[s]; !ok {
		r.order = append(r.order, s)
	}
	for len(r.values[s]) < r.round {
		r.values[s] = append(r.values[s], math.NaN())
	}
	r.values[s] = append(r.values[s], value)
}

// note adds a remark for readers of this run.
func (r *results) note(format string, args ...any) {
	r.notes = append(r.notes, fmt.Sprintf(format, args...))
}

// A spread is the median of some rounds with the minimum and maximum.
type spread struct {
	median, min, max float64
	rounds           int
}

func spreadOf(values []float64) spread {
	sorted := slices.DeleteFunc(slices.Clone(values), math.IsNaN)
	slices.Sort(sorted)
	n := len(sorted)
	if n == 0 {
		return spread{}
	}
	return spread{(sorted[(n-1)/2] + sorted[n/2]) / 2, sorted[0], sorted[n-1], n}
}

func (r *results) spread(s series) spread { return spreadOf(r.values[s]) }

// leastRounds is how many rounds a ratio needs. Two could agree by chance.
const leastRounds = 3

// ratio returns the ratio of two series, round by round. ok is false if there are too few rounds.
func (r *results) ratio(of, to series) (s spread, ok bool) {
	a, b := r.values[of], r.values[to]
	var ratios []float64
	for i := range min(len(a), len(b)) {
		if b[i] == 0 {
			return spread{}, false
		}
		ratios = append(ratios, a[i]/b[i])
	}
	s = spreadOf(ratios)
	return s, s.rounds >= leastRounds
}
