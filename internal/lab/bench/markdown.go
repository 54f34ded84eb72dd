package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// A page is a part of the report, which a run rewrites if it has measured some of its scenarios.
type page string

const (
	near page = "bench"
	away page = "bench-far"
)

var pages = []page{near, away}

func pageOf(scenario string) page {
	for _, s := range scenarios {
		if s.flag == scenario {
			return s.page
		}
	}
	return near
}

func (p page) begins() string { return fmt.Sprintf("<!-- %s: the tables of a run begin -->", p) }
func (p page) ends() string   { return fmt.Sprintf("<!-- %s: the tables of a run end -->", p) }
func (p page) csv() string    { return map[page]string{near: "results.csv", away: "far.csv"}[p] }

// has says whether the results have some of a page.
func (r *results) has(p page) bool {
	return slices.ContainsFunc(r.order, func(s series) bool { return pageOf(s.scenario) == p })
}

// writeMarkdown replaces the tables of the last run in a file with those of this run.
func (b *bench) writeMarkdown(run description, out, path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	plots := ""
	if out != "" {
		from, errFrom := filepath.Abs(filepath.Dir(path))
		to, errTo := filepath.Abs(out)
		if errFrom == nil && errTo == nil {
			plots, err = filepath.Rel(from, to)
		}
		if err != nil {
			return err
		}
	}
	for _, p := range pages {
		if !b.has(p) {
			continue
		}
		if text, err = replaceRun(text, p, b.tables(p, run, filepath.ToSlash(plots))); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
	}
	return os.WriteFile(path, text, 0o644)
}

// replaceRun replaces the text between two lines.
func replaceRun(text []byte, p page, tables string) ([]byte, error) {
	before, rest, ok := bytes.Cut(text, []byte(p.begins()))
	_, after, ended := bytes.Cut(rest, []byte(p.ends()))
	if !ok || !ended {
		return nil, fmt.Errorf("want a line %s and a later line %s, with the tables between them", p.begins(), p.ends())
	}
	return slices.Concat(before, []byte(p.begins()+"\n\n"+tables+"\n"+p.ends()), after), nil
}

// tables returns the checks and the tables of each scenario of a page. plots is the directory of
// the plots; empty means there are none.
func (b *bench) tables(p page, run description, plots string) string {
	var t strings.Builder
	fmt.Fprintf(&t, "Run of %s. Each number is the median of the rounds, with the minimum and maximum.\n\n", run.line())
	b.writeChecks(&t, p)
	scenario := ""
	for _, part := range b.parts() {
		if pageOf(part.scenario) != p {
			continue
		}
		if part.scenario != scenario {
			scenario = part.scenario
			fmt.Fprintf(&t, "\n### %s\n", titles[scenario])
			for _, p := range plotted {
				if plots != "" && p.scenario == scenario && len(b.rows(p)) > 0 {
					fmt.Fprintf(&t, "\n![%s](%s/%s)\n", p.title, plots, p.file)
				}
			}
			if scenario == far {
				b.writeGrid(&t, plots)
			}
		}
		if scenario == far {
			continue
		}
		fmt.Fprintf(&t, "\n%s:\n\n| | %s |\n|---%s|\n", part.variant, strings.Join(part.metrics, " | "), strings.Repeat("|---", len(part.metrics)))
		for _, contender := range part.contenders {
			fmt.Fprintf(&t, "| %s | %s |\n", contender, strings.Join(b.cells(part, contender), " | "))
		}
	}
	for _, note := range b.notes {
		fmt.Fprintf(&t, "\n%s\n", note)
	}
	return t.String()
}

// writeChecks writes the checks of a page. Of the grid, which has three for each cell, it writes
// only those that do not hold.
func (b *bench) writeChecks(t *strings.Builder, p page) {
	var rows strings.Builder
	counts := make(map[verdict]int)
	for _, c := range checks() {
		value, v := c.measure(b.results)
		if pageOf(c.scenario) != p || v == notMeasured {
			continue
		}
		counts[v]++
		if p == near || v != holds {
			fmt.Fprintf(&rows, "| %s | %s | %s | %s |\n", c.scenario, c.must, value, v)
		}
	}
	heading := map[page]string{near: "Checks", away: "Checks of distance"}[p]
	fmt.Fprintf(t, "### %s\n\n%d hold, %d do not hold, %d have no verdict.", heading, counts[holds], counts[doesNotHold], counts[tooFew])
	if p == away {
		t.WriteString(" The table has those that do not hold.")
	}
	fmt.Fprintf(t, "\n\n| scenario | check | reqlock | |\n|---|---|---|---|\n%s", rows.String())
}

// writeGrid writes a table for each line, with a row for each number of callers.
func (b *bench) writeGrid(t *strings.Builder, plots string) {
	for _, d := range drawings {
		if plots != "" {
			fmt.Fprintf(t, "\n![%s](%s/%s)\n", d.title, plots, d.file)
		}
	}
	others := slices.DeleteFunc(slices.Clone(b.grid.contenders), func(c string) bool { return c == ours })
	for _, l := range b.grid.lines {
		fmt.Fprintf(t, "\n%s:\n\n| callers | reqlock, cycles/s | of the best peer | of the raw pair | %s | p50, ms: reqlock, raw pair | p99, ms | client CPU us/cycle |\n|---%s|\n",
			l.name, strings.Join(others, " | "), strings.Repeat("|---", 6+len(others)))
		for _, n := range b.grid.callers {
			cell := callersOn(l, n)
			if b.spread(ourSeries(far, cell, throughput)).rounds == 0 {
				continue
			}
			row := []string{fmt.Sprint(n), b.spread(ourSeries(far, cell, throughput)).String()}
			for _, rival := range []string{b.best(far, cell, throughput, peers), rawPair} {
				ratio, _ := b.ratio(ourSeries(far, cell, throughput), series{far, cell, rival, throughput})
				row = append(row, ratio.String()+"x")
			}
			for _, c := range others {
				row = append(row, number(b.spread(series{far, cell, c, throughput}).median))
			}
			for _, metric := range []string{cycleP50, cycleP99, clientMicros} {
				row = append(row, fmt.Sprintf("%s, %s", number(b.spread(ourSeries(far, cell, metric)).median), number(b.spread(series{far, cell, rawPair, metric}).median)))
			}
			fmt.Fprintf(t, "| %s |\n", strings.Join(row, " | "))
		}
	}
}

var titles = map[string]string{
	s1:          "S1: uncontended locks",
	scriptCosts: "Scripts: their cost",
	s2:          "S2: 64 goroutines of one process, one lock",
	s2Two:       "S2: two processes, one lock",
	s3:          "S3: from one client to another",
	s4:          "S4: 1000 goroutines wait",
	s5:          "S5: 10000 locks are held",
	s6:          "S6: an HTTP server, one lock per request",
	s7:          "S7: permits, 256 goroutines",
	s8:          "S8: 256 goroutines want one result",
	names:       "Names",
	far:         "Far: own locks, by the number of callers and the line to Redis",
	pools:       "Pools: few connections",
	slow:        "Slow: one master of three is far away",
	arrivals:    "Arrivals: an open loop",
}

// A part is the results in one table.
type part struct {
	scenario, variant   string
	contenders, metrics []string
}

func (r *results) parts() (parts []*part) {
	for _, s := range r.order {
		var p *part
		for _, q := range parts {
			if q.scenario == s.scenario && q.variant == s.variant {
				p = q
			}
		}
		if p == nil {
			p = &part{scenario: s.scenario, variant: s.variant}
			parts = append(parts, p)
		}
		if !slices.Contains(p.contenders, s.contender) {
			p.contenders = append(p.contenders, s.contender)
		}
		if !slices.Contains(p.metrics, s.metric) {
			p.metrics = append(p.metrics, s.metric)
		}
	}
	return parts
}
