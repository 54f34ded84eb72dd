package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/reqlock/reqlock/internal/lab/mutants/table"
)

// A result is what became of one mutant.
type result struct {
	table.Mutant
	// line is that of the mutation in the file.
	line int
	// caught are the tests that failed. A mutant that survived has none.
	caught []string
	// whole says that only a test that is none of its nets caught the mutant.
	whole bool
	took  time.Duration
	// err is why the mutant could not be tested.
	err error
}

func (r result) String() string {
	verdict := "caught  "
	switch {
	case r.err != nil:
		return fmt.Sprintf("MISTAKE %s  [%s]  %v", r.Promise, r.File, r.err)
	case len(r.caught) == 0:
		verdict = "SURVIVED"
	}
	return fmt.Sprintf("%s %6.1f s  %s  [%s:%d]  %s", verdict, r.took.Seconds(), r.Promise, r.File, r.line, r.by())
}

// by names the tests that caught the mutant.
func (r result) by() string {
	switch {
	case len(r.caught) == 0:
		return "by no test"
	case r.whole:
		return "by none of its nets, but by " + r.tests()
	}
	return "by " + r.tests()
}

// tests names the first tests that caught the mutant.
func (r result) tests() string {
	const most = 3
	if more := len(r.caught) - most; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(r.caught[:most], ", "), more)
	}
	return strings.Join(r.caught, ", ")
}

// toMarkdown returns the table for the docs.
func toMarkdown(results []result) string {
	var b strings.Builder
	b.WriteString("| Promise | Broken in | Caught by | Seconds |\n|---|---|---|---|\n")
	for _, r := range results {
		fmt.Fprintf(&b, "| %s | `%s` | %s | %.0f |\n", r.Promise, r.File, r.tests(), r.took.Seconds())
	}
	return b.String()
}
