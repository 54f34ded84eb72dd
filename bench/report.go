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
	"text/tabwriter"
)

// report prints the checks and writes the requested files.
func (b *bench) report(w io.Writer, run description, out, markdown string) error {
	fmt.Fprintln(w, run.line())
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "scenario\tcheck\treqlock: median (min-max)\t")
	counts := make(map[verdict]int)
	for _, c := range checks() {
		value, v := c.measure(b.results)
		counts[v]++
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", c.scenario, c.must, value, v)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(w, "%d hold, %d do not hold, %d without a verdict\n",
		counts[holds], counts[doesNotHold], counts[tooFew]+counts[notMeasured])
	for _, note := range b.notes {
		fmt.Fprintln(w, note)
	}
	if out != "" {
		if err := errors.Join(os.MkdirAll(out, 0o755), b.writeCSV(filepath.Join(out, "results.csv")), b.writePlots(out)); err != nil {
			return err
		}
	}
	if markdown != "" {
		return b.writeMarkdown(run, out, markdown)
	}
	return nil
}

// writeCSV writes a line for each value of each round.
func (r *results) writeCSV(path string) error {
	var text bytes.Buffer
	w := csv.NewWriter(&text)
	lines := [][]string{{"scenario", "variant", "contender", "metric", "round", "value"}}
	for _, s := range r.order {
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
