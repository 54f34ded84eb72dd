package main

import (
	"fmt"
	"html"
	"math"
	"slices"
	"strings"
)

// A drawing is a plot of the whole grid.
type drawing struct {
	file, title string
	draw        func(*results, grid, string) string
}

var drawings = []drawing{
	{"far.svg", "reqlock: cycles a second, and times the best of the other libraries and the raw pair", (*results).drawMap},
	{"far-throughput.svg", "Cycles a second by the number of callers", (*results).drawCurves},
}

// rivals are what reqlock is measured by.
var rivals = slices.Concat([]string{rawPair}, peers)

// lead is the ratio of our throughput in a cell to that of the best rival.
func (r *results) lead(cell string) (s spread, ok bool) {
	best := r.best(far, cell, throughput, rivals)
	return r.ratio(ourSeries(far, cell, throughput), series{far, cell, best, throughput})
}

// The dimensions of the map, in pixels.
const (
	mapLeft, mapTop   = 80, 60
	mapColumn, mapRow = 84, 46
)

// drawMap draws a field for each number of callers and each line.
func (r *results) drawMap(g grid, title string) string {
	width, height := mapLeft+mapColumn*len(g.callers)+10, mapTop+mapRow*len(g.lines)+10
	var s strings.Builder
	beginSVG(&s, width, height, title, higher)
	for i, n := range g.callers {
		svgText(&s, mapLeft+mapColumn*i+mapColumn/2, mapTop-10, "middle", plural(n, "caller"))
	}
	for j, l := range g.lines {
		y := mapTop + mapRow*j
		svgText(&s, mapLeft-10, y+mapRow/2+4, "end", l.name)
		for i, n := range g.callers {
			cell := callersOn(l, n)
			rate := r.spread(ourSeries(far, cell, throughput))
			if rate.rounds == 0 {
				continue
			}
			x := mapLeft + mapColumn*i
			lead, ok := r.lead(cell)
			fmt.Fprintf(&s, `<rect x="%d" y="%d" width="%d" height="%d" fill="%s"/>`+"\n", x+1, y+1, mapColumn-2, mapRow-2, shade(lead.median, ok))
			fieldText(&s, x+mapColumn/2, y+20, number(rate.median))
			if ok {
				fieldText(&s, x+mapColumn/2, y+37, number(lead.median)+"x")
			}
		}
	}
	s.WriteString("</svg>\n")
	return s.String()
}

// shade is grey without a ratio, red below 1, yellow for what is nearly 1, and the greener the
// greater, up to 3.
func shade(lead float64, ok bool) string {
	switch {
	case !ok:
		return "#dddddd"
	case lead < 0.98:
		return "#f2b8a0"
	case lead < 1:
		return "#f5e6b8"
	}
	full := min(1, math.Log(lead)/math.Log(3))
	return fmt.Sprintf("rgb(%.0f,%.0f,%.0f)", 226-96*full, 240-40*full, 218-98*full)
}

// The dimensions of the curves, in pixels.
const (
	curveLeft, curveTop   = 50, 70
	curveWidth, curveHigh = 220, 160
	curveColumn, curveRow = 290, 220
	curveColumns          = 3
)

var curveColours = map[string]string{
	ours: "#c8552d", rawPair: "#444444", pingFloor: "#b0b0b0", rueidisLock: "#2a7ab0", redislockLn: "#4a9c5d", redsyncName: "#9a6fb0",
}

// drawCurves draws a panel for each line, with a curve for each contender.
func (r *results) drawCurves(g grid, title string) string {
	least, greatest := math.Inf(1), 0.0
	for _, l := range g.lines {
		for _, n := range g.callers {
			for _, c := range g.contenders {
				if s := r.spread(series{far, callersOn(l, n), c, throughput}); s.rounds > 0 {
					least, greatest = min(least, s.median), max(greatest, s.median)
				}
			}
		}
	}
	fromX, toX := math.Log(float64(slices.Min(g.callers))), math.Log(float64(slices.Max(g.callers))+1)
	fromY, toY := math.Floor(math.Log10(least)), math.Ceil(math.Log10(greatest))
	rows := (len(g.lines) + curveColumns - 1) / curveColumns
	var s strings.Builder
	beginSVG(&s, curveLeft+curveColumn*min(curveColumns, len(g.lines)), curveTop+curveRow*rows, title, higher)
	for i, c := range g.contenders {
		x := curveLeft + 130*i
		fmt.Fprintf(&s, `<rect x="%d" y="34" width="14" height="4" fill="%s"/>`+"\n", x, curveColours[c])
		svgText(&s, x+20, 41, "start", c)
	}
	for i, l := range g.lines {
		left, top := curveLeft+curveColumn*(i%curveColumns), curveTop+curveRow*(i/curveColumns)
		x := func(n int) float64 {
			return float64(left) + (math.Log(float64(n))-fromX)/(toX-fromX)*curveWidth
		}
		y := func(v float64) float64 {
			return float64(top) + (toY-math.Log10(v))/(toY-fromY)*curveHigh
		}
		svgText(&s, left, top-6, "start", l.name)
		for power := fromY; power <= toY; power++ {
			at := y(math.Pow(10, power))
			fmt.Fprintf(&s, `<line x1="%d" y1="%.1f" x2="%d" y2="%.1f" class="grid"/>`+"\n", left, at, left+curveWidth, at)
			svgText(&s, left-5, int(at)+4, "end", number(math.Pow(10, power)))
		}
		for _, n := range g.callers {
			svgText(&s, int(x(n)), top+curveHigh+16, "middle", fmt.Sprint(n))
		}
		for _, c := range g.contenders {
			var points []string
			for _, n := range g.callers {
				if v := r.spread(series{far, callersOn(l, n), c, throughput}); v.rounds > 0 && v.median > 0 {
					points = append(points, fmt.Sprintf("%.1f,%.1f", x(n), y(v.median)))
				}
			}
			thick := 1.5
			if c == ours {
				thick = 3
			}
			fmt.Fprintf(&s, `<polyline points="%s" fill="none" stroke="%s" stroke-width="%g"/>`+"\n", strings.Join(points, " "), curveColours[c], thick)
		}
	}
	s.WriteString("</svg>\n")
	return s.String()
}

// svgStyle follows the colour scheme of the reader. A text on a field has a light ground in both.
const svgStyle = `<style>
.page { fill: #fff } text { fill: #1f2328 } .soft { fill: #59636e } .range { stroke: #1f2328 } .grid { stroke: #e4e4e4 } text.on { fill: #1f2328 }
@media (prefers-color-scheme: dark) {
.page { fill: #0d1117 } text { fill: #e6edf3 } .soft { fill: #9198a1 } .range { stroke: #e6edf3 } .grid { stroke: #30363d }
[fill="#444444"] { fill: #9198a1 } [stroke="#444444"] { stroke: #9198a1 }
}
</style>
`

// beginSVG says which values are better.
func beginSVG(s *strings.Builder, width, height int, title, better string) {
	fmt.Fprintf(s, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" font-family="sans-serif" font-size="12">`+"\n", width, height)
	s.WriteString(svgStyle)
	fmt.Fprintf(s, `<rect class="page" width="100%%" height="100%%"/>`+"\n"+`<text x="10" y="20" font-size="14" font-weight="bold">%s</text>`+"\n", html.EscapeString(title))
	fmt.Fprintf(s, `<text class="soft" x="%d" y="20" text-anchor="end">%s is better</text>`+"\n", width-10, better)
}

func fieldText(s *strings.Builder, x, y int, text string) {
	fmt.Fprintf(s, `<text x="%d" y="%d" text-anchor="middle" class="on">%s</text>`+"\n", x, y, text)
}

func svgText(s *strings.Builder, x, y int, anchor, text string) {
	fmt.Fprintf(s, `<text x="%d" y="%d" text-anchor="%s">%s</text>`+"\n", x, y, anchor, html.EscapeString(text))
}
