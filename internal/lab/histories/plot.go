package histories

import (
	"fmt"
	"html"
	"strconv"
	"strings"
	"time"
)

// A Curve is one line of a chart, with its points in order of time.
type Curve struct {
	Label  string
	Times  []time.Duration
	Values []float64
}

// A Chart shows curves over time, all on one scale from 0.
type Chart struct {
	Title  string
	Curves []Curve
}

// The dimensions of charts, in pixels.
const (
	chartWidth  = 860
	chartHeight = 180
	plotLeft    = 80
	plotRight   = 680
	plotTop     = 34
	plotBottom  = 150
)

var colours = []string{"#c8552d", "#3c6e91", "#7a9a3a", "#8a5a9c"}

// Draw returns charts as one SVG, one below the other.
func Draw(charts []Chart) string {
	var s strings.Builder
	fmt.Fprintf(&s, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" font-family="sans-serif" font-size="12">`+"\n", chartWidth, chartHeight*len(charts))
	s.WriteString(`<rect width="100%" height="100%" fill="white"/>` + "\n")
	for i, c := range charts {
		fmt.Fprintf(&s, `<g transform="translate(0 %d)">`+"\n", chartHeight*i)
		c.draw(&s)
		s.WriteString("</g>\n")
	}
	s.WriteString("</svg>\n")
	return s.String()
}

func (c Chart) draw(s *strings.Builder) {
	last, greatest := time.Duration(1), 0.0
	for _, curve := range c.Curves {
		for i, v := range curve.Values {
			last, greatest = max(last, curve.Times[i]), max(greatest, v)
		}
	}
	if greatest == 0 {
		greatest = 1
	}
	fmt.Fprintf(s, `<text x="10" y="20" font-size="14" font-weight="bold">%s</text>`+"\n", html.EscapeString(c.Title))
	for _, part := range []float64{0, 0.5, 1} {
		y := plotBottom - part*(plotBottom-plotTop)
		fmt.Fprintf(s, `<line x1="%d" y1="%.1f" x2="%d" y2="%.1f" stroke="#ddd"/>`+"\n", plotLeft, y, plotRight, y)
		fmt.Fprintf(s, `<text x="%d" y="%.1f" text-anchor="end">%s</text>`+"\n", plotLeft-6, y+4, strconv.FormatFloat(part*greatest, 'g', 4, 64))
		fmt.Fprintf(s, `<text x="%.1f" y="%d" text-anchor="middle">%v</text>`+"\n", plotLeft+part*(plotRight-plotLeft), plotBottom+16,
			time.Duration(part*float64(last)).Round(time.Second))
	}
	for i, curve := range c.Curves {
		var points strings.Builder
		for j, v := range curve.Values {
			x := plotLeft + float64(curve.Times[j])/float64(last)*(plotRight-plotLeft)
			fmt.Fprintf(&points, "%.1f,%.1f ", x, plotBottom-v/greatest*(plotBottom-plotTop))
		}
		colour := colours[i%len(colours)]
		fmt.Fprintf(s, `<polyline points="%s" fill="none" stroke="%s"/>`+"\n", strings.TrimSpace(points.String()), colour)
		fmt.Fprintf(s, `<text x="%d" y="%d" fill="%s">%s</text>`+"\n", plotRight+12, plotTop+10+18*i, colour, html.EscapeString(curve.Label))
	}
}

// CSV returns the points of charts: chart, curve, seconds, value.
func CSV(charts []Chart) string {
	var s strings.Builder
	s.WriteString("chart,curve,seconds,value\n")
	for _, c := range charts {
		for _, curve := range c.Curves {
			for i, v := range curve.Values {
				fmt.Fprintf(&s, "%q,%q,%.1f,%s\n", c.Title, curve.Label, curve.Times[i].Seconds(), strconv.FormatFloat(v, 'f', -1, 64))
			}
		}
	}
	return s.String()
}

// Grown returns how far the mean of the last quarter of a curve is above that of the second. The
// first quarter is the warm-up.
func (c Curve) Grown() (from, to float64) {
	n := len(c.Values)
	return mean(c.Values[n/4 : n/2]), mean(c.Values[n-n/4:])
}

func mean(values []float64) float64 {
	sum := 0.0
	for _, v := range values {
		sum += v
	}
	return sum / float64(max(1, len(values)))
}
