package coalesce

import (
	"flag"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

var plotFile = flag.String("plot", "", "write the answers of BenchmarkServe_Stampede over time to this SVG file")

// A curve is one way to serve a stampede, and when each request was answered.
type curve struct {
	name, colour string
	answered     []time.Duration
}

// The plot's size and its axes. Time is logarithmic: one way takes hundreds of times as long as the other.
const (
	plotWide, plotHigh  = 720, 300
	plotLeft, plotRight = 60, 700
	plotTop, plotBottom = 60, 250
	plotFrom, plotTo    = 0.001, 100.0 // s
)

// plot writes how many requests of a stampede are answered over time.
func plot(b *testing.B, file string, curves []curve) {
	b.Helper()
	var s strings.Builder
	fmt.Fprintf(&s, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" font-family="sans-serif" font-size="12">
<style>
.page { fill: #fff } text { fill: #1f2328 } .grid { stroke: #e4e4e4 }
@media (prefers-color-scheme: dark) { .page { fill: #0d1117 } text { fill: #e6edf3 } .grid { stroke: #30363d } }
</style>
<rect class="page" width="100%%" height="100%%"/>
<text x="10" y="20" font-size="14" font-weight="bold">%d requests at once, over 3 clients: how many are answered</text>
`, plotWide, plotHigh, stampedeSize)
	x := func(at float64) float64 {
		return plotLeft + math.Log10(at/plotFrom)/math.Log10(plotTo/plotFrom)*(plotRight-plotLeft)
	}
	y := func(n int) float64 { return plotBottom - float64(n)/stampedeSize*(plotBottom-plotTop) }
	for at := plotFrom; at <= plotTo*1.01; at *= 10 {
		fmt.Fprintf(&s, `<line x1="%.1f" y1="%d" x2="%.1f" y2="%d" class="grid"/><text x="%.1f" y="%d" text-anchor="middle">%s</text>`+"\n",
			x(at), plotTop, x(at), plotBottom, x(at), plotBottom+18, time.Duration(math.Round(at*1000))*time.Millisecond)
	}
	for n := 0; n <= stampedeSize; n += stampedeSize / 4 {
		fmt.Fprintf(&s, `<text x="%d" y="%.1f" text-anchor="end">%d</text>`+"\n", plotLeft-8, y(n)+4, n)
	}
	for i, c := range curves {
		slices.Sort(c.answered)
		var points []string
		for n, at := range c.answered {
			points = append(points, fmt.Sprintf("%.1f,%.1f", x(max(at.Seconds(), plotFrom)), y(n+1)))
		}
		fmt.Fprintf(&s, `<polyline points="%s" fill="none" stroke="%s" stroke-width="3"/>`+"\n", strings.Join(points, " "), c.colour)
		fmt.Fprintf(&s, `<rect x="%d" y="34" width="14" height="4" fill="%s"/><text x="%d" y="41">%s</text>`+"\n", plotLeft+200*i, c.colour, plotLeft+20+200*i, c.name)
	}
	s.WriteString("</svg>\n")
	if err := os.WriteFile(file, []byte(s.String()), 0o644); err != nil {
		b.Fatal(err)
	}
}
