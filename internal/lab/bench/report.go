package main

import (
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"text/tabwriter"
)

// report prints the checks and writes the requested files.
func (b *bench) report(w io.Writer, run description, out, markdown string) error {
	fmt.Fprintln(w, run.line())
	if err := b.printParts(w, away); err != nil {
		return err
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "scenario\tcheck\treqlock: median (min-max)\t")
	counts := make(map[verdict]int)
	for _, c := range checks() {
		value, v := c.measure(b.results)
		counts[v]++
		if v != notMeasured {
			fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", c.scenario, c.must, value, v)
		}
	}
	if err := t.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(w, "%d hold, %d do not hold, %d without a verdict, %d not measured\n",
		counts[holds], counts[doesNotHold], counts[tooFew], counts[notMeasured])
	for _, note := range b.notes {
		fmt.Fprintln(w, note)
	}
	if out != "" {
		if err := errors.Join(os.MkdirAll(out, 0o755), b.writePlots(out)); err != nil {
			return err
		}
		for _, p := range pages {
			if b.has(p) {
				if err := b.writeCSV(filepath.Join(out, p.csv()), p); err != nil {
					return err
				}
			}
		}
	}
	if markdown != "" {
		return b.writeMarkdown(run, out, markdown)
	}
	return nil
}

// printParts prints a table for each variant of a page's scenarios, with the ratio of reqlock's
// first metric to that of each contender.
func (b *bench) printParts(w io.Writer, of page) error {
	for _, part := range b.parts() {
		if pageOf(part.scenario) != of {
			continue
		}
		t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
		fmt.Fprintf(w, "\n%s, %s:\n", part.scenario, part.variant)
		fmt.Fprintf(t, "\treqlock is\t%s\t\n", strings.Join(part.metrics, "\t"))
		for _, contender := range part.contenders {
			first := series{part.scenario, part.variant, contender, part.metrics[0]}
			ratio := ""
			if s, ok := b.ratio(ourSeries(part.scenario, part.variant, part.metrics[0]), first); ok && contender != ours {
				ratio = number(s.median) + "x"
			}
			fmt.Fprintf(t, "%s\t%s\t%s\t\n", contender, ratio, strings.Join(b.cells(part, contender), "\t"))
		}
		if err := t.Flush(); err != nil {
			return err
		}
	}
	return nil
}

// cells returns a contender's numbers for each metric of a part.
func (b *bench) cells(p *part, contender string) (cells []string) {
	for _, metric := range p.metrics {
		cell := ""
		if s := b.spread(series{p.scenario, p.variant, contender, metric}); s.rounds > 0 {
			cell = s.String()
		}
		cells = append(cells, cell)
	}
	return cells
}

// writeCSV writes a line for each value of each round of a page's scenarios.
func (r *results) writeCSV(path string, of page) error {
	var text bytes.Buffer
	w := csv.NewWriter(&text)
	lines := [][]string{{"scenario", "variant", "contender", "metric", "round", "value"}}
	for _, s := range r.order {
		if pageOf(s.scenario) != of {
			continue
		}
		for i, v := range r.values[s] {
			if math.IsNaN(v) {
				continue
			}
			lines = append(lines, []string{s.scenario, s.variant, s.contender, s.metric, strconv.Itoa(i + 1), strconv.FormatFloat(v, 'g', 6, 64)})
		}
	}
	if err := w.WriteAll(lines); err != nil {
		return err
	}
	return os.WriteFile(path, text.Bytes(), 0o644)
}
