package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// A page is where a scenario is reported.
type page string

const (
	near page = "bench"
	away page = "bench-far"
)

func pageOf(scenario string) page {
	for _, s := range scenarios {
		if s.flag == scenario {
			return s.page
		}
	}
	return near
}

// The program rewrites the text between these two lines of a file.
const (
	runBegins = "<!-- bench: the tables of a run begin -->"
	runEnds   = "<!-- bench: the tables of a run end -->"
)

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
	replaced, err := replaceRun(text, b.tables(run, filepath.ToSlash(plots)))
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return os.WriteFile(path, replaced, 0o644)
}

func replaceRun(text []byte, tables string) ([]byte, error) {
	before, rest, ok := bytes.Cut(text, []byte(runBegins))
	_, after, ended := bytes.Cut(rest, []byte(runEnds))
	if !ok || !ended {
		return nil, fmt.Errorf("want a line %s and a later line %s, with the tables between them", runBegins, runEnds)
	}
	return slices.Concat(before, []byte(runBegins+"\n\n"+tables+"\n"+runEnds), after), nil
}

// tables returns the checks and a table for each variant of each scenario. plots is the directory
// of the plots; empty means there are none.
func (b *bench) tables(run description, plots string) string {
	var t strings.Builder
	fmt.Fprintf(&t, "Run of %s. Each number is the median of the rounds, with the minimum and maximum.\n\n", run.line())
	fmt.Fprintf(&t, "### Checks\n\n| scenario | check | reqlock | |\n|---|---|---|---|\n")
	for _, c := range checks() {
		value, v := c.measure(b.results)
		fmt.Fprintf(&t, "| %s | %s | %s | %s |\n", c.scenario, c.must, value, v)
	}
	scenario := ""
	for _, part := range b.parts() {
		if part.scenario != scenario {
			scenario = part.scenario
			fmt.Fprintf(&t, "\n### %s\n", titles[scenario])
			for _, p := range plotted {
				if plots != "" && p.scenario == scenario && len(b.rows(p)) > 0 {
					fmt.Fprintf(&t, "\n![%s](%s/%s)\n", p.title, plots, p.file)
				}
			}
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

var titles = map[string]string{
	s1:          "S1: uncontended locks",
	scriptCosts: "Scripts: their cost",
	s2:          "S2: 64 goroutines of one process, one lock",
	s2Two:       "S2: two processes, one lock",
	s3:          "S3: from one client to another",
	s4:          "S4: 1000 goroutines wait",
	s5:          "S5: 10000 locks are held",
	s6:          "S6: an HTTP server, one lock per request",
	names:       "Names",
	far:         "Far: own locks, by the number of callers and the line to Redis",
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
