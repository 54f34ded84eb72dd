package main

import (
	"errors"
	"fmt"
	"html"
	"os"
	"path/filepath"
	"strings"
)

// A plot shows one metric of a scenario: a bar for each contender of each variant, with a line from
// the minimum to the maximum of its rounds.
type plot struct {
	file, title      string
	scenario, metric string
	better           string // higher or lower
}

const higher, lower = "higher", "lower"

var plotted = []plot{
	{"s1-throughput.svg", "S1: cycles a second", s1, throughput, higher},
	{"s1-client-cpu.svg", "S1: client CPU a cycle, µs", s1, clientMicros, lower},
	{"s1-redis-cpu.svg", "S1: Redis CPU a cycle, µs", s1, redisMicros, lower},
	{"s2-throughput.svg", "S2: acquisitions a second of one lock", s2, acquisitions, higher},
	{"s2-waiting-p99.svg", "S2: waiting for one lock, p99, ms", s2, waitP99, lower},
	{"s3-hand-off.svg", "S3: from one client to another, p50, ms", s3, handOffP50, lower},
	{"s4-heap.svg", "S4: heap bytes a waiter", s4, heapAWaiter, lower},
	{"s5-bytes.svg", "S5: bytes a lock", s5, bytesLock, lower},
	{"s6-requests.svg", "S6: requests a second", s6, requests, higher},
	{"pools.svg", "Pools: cycles a second", pools, throughput, higher},
	{"slow-p99.svg", "Slow: p99 of a cycle, ms", slow, cycleP99, lower},
	{"arrivals-p99.svg", "Arrivals: p99, ms", arrivals, cycleP99, lower},
}

// A row of a plot is a bar, or the name of a variant above its bars.
type row struct {
	label string
	spread
}

func (r *results) rows(p plot) (rows []row) {
	for _, part := range r.parts() {
		if part.scenario != p.scenario {
			continue
		}
		var bars []row
		for _, contender := range part.contenders {
			if s := r.spread(series{p.scenario, part.variant, contender, p.metric}); s.rounds > 0 {
				bars = append(bars, row{contender, s})
			}
		}
		switch {
		case len(bars) == 1: // the only contender needs no name
			rows = append(rows, row{part.variant, bars[0].spread})
		case len(bars) > 1:
			rows = append(append(rows, row{label: part.variant}), bars...)
		}
	}
	return rows
}

func (b *bench) writePlots(dir string) (err error) {
	if b.has(away) {
		for _, d := range drawings {
			err = errors.Join(err, os.WriteFile(filepath.Join(dir, d.file), []byte(d.draw(b.results, b.grid, d.title)), 0o644))
		}
	}
	for _, p := range plotted {
		if rows := b.rows(p); len(rows) > 0 {
			err = errors.Join(err, os.WriteFile(filepath.Join(dir, p.file), []byte(draw(p, rows)), 0o644))
		}
	}
	return err
}

// The dimensions of a plot, in pixels.
const (
	plotWidth = 760
	barsFrom  = 170
	barsTo    = 640
	rowHeight = 18
)

func draw(p plot, rows []row) string {
	greatest := 0.0
	for _, r := range rows {
		greatest = max(greatest, r.max)
	}
	if greatest == 0 {
		greatest = 1
	}
	x := func(v float64) float64 { return barsFrom + v/greatest*(barsTo-barsFrom) }
	height := 40 + rowHeight*len(rows)
	var s strings.Builder
	beginSVG(&s, plotWidth, height, p.title, p.better)
	for i, r := range rows {
		y := 34 + rowHeight*i
		if r.rounds == 0 {
			fmt.Fprintf(&s, `<text x="10" y="%d" font-weight="bold">%s</text>`+"\n", y+13, html.EscapeString(r.label))
			continue
		}
		colour, middle := "#9bb4c8", float64(y)+7.5
		if r.label == ours {
			colour = "#c8552d"
		}
		fmt.Fprintf(&s, `<text x="%d" y="%d" text-anchor="end">%s</text>`+"\n", barsFrom-8, y+12, html.EscapeString(r.label))
		fmt.Fprintf(&s, `<rect x="%d" y="%d" width="%.1f" height="13" fill="%s"/>`+"\n", barsFrom, y+1, x(r.median)-barsFrom, colour)
		fmt.Fprintf(&s, `<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" class="range"/>`+"\n", x(r.min), middle, x(r.max), middle)
		fmt.Fprintf(&s, `<text x="%.1f" y="%d">%s</text>`+"\n", x(max(r.median, r.max))+6, y+12, number(r.median))
	}
	s.WriteString("</svg>\n")
	return s.String()
}
