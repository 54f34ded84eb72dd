// Command mutants breaks the library on purpose, in one small way at a time, and checks that a test
// fails each time. A mutant that no test catches is a promise without a test.
//
//	go run ./internal/lab/mutants                        all mutants
//	go run ./internal/lab/mutants -sample 8              some of them, other ones every day
//	go run ./internal/lab/mutants -match 'fair'          those whose promise or file matches
//	go run ./internal/lab/mutants -net 'core TestLoad_AllFaults'
//	go run ./internal/lab/mutants -net sim -match '^core/'
//	go run ./internal/lab/mutants -net 'world fair/queue' -match fair_
//
// The mutants are in package table. A mutant is compiled with go's -overlay, which covers the
// embedded Lua scripts as well, so the working tree stays as it is. Its nets are the tests that
// should catch it. They run first, all nets of one package together, and must pass without a
// mutant. If none of them catches it, all tests of their packages run. The net sim is the
// simulator, which simulates fresh seeds for a minute. A net such as "world fair/queue" searches
// one of the small worlds of core/internal/worlds.
//
// With -net, only the given nets run, for every mutant: it shows what a net finds without being
// told.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
	"sync"
	"time"

	"github.com/reqlock/reqlock/internal/lab/mutants/table"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Stdout, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

// repeatable is a flag that may be given several times.
type repeatable []string

func (r *repeatable) String() string     { return fmt.Sprint(*r) }
func (r *repeatable) Set(s string) error { *r = append(*r, s); return nil }

func run(ctx context.Context, out io.Writer, args []string) error {
	began := time.Now()
	var nets repeatable
	flags := flag.NewFlagSet("mutants", flag.ContinueOnError)
	match := flags.String("match", "", "run only mutants whose promise or file matches this regular `expression`")
	sample := flags.Int("sample", 0, "run only so many mutants, spread over the table; 0: all")
	day := flags.Int("day", int(began.Unix()/(24*60*60)), "which sample; the default changes every day")
	workers := flags.Int("workers", 2, "how many mutants to test at a time")
	every := flags.Bool("every", false, "run all nets of a mutant, and name each that catches it")
	whole := flags.Bool("whole", true, "run all tests of the packages of its nets, if none of them catches a mutant")
	markdown := flags.String("markdown", "", "also write the table as Markdown to this `file`")
	flags.Var(&nets, "net", "run this `net`, a package and a test, a world, or sim, in place of those of each mutant; may be repeated")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 || *workers < 1 || *sample < 0 || *day < 0 {
		return errors.New("want no arguments, at least one worker, and neither a negative sample nor a negative day")
	}
	matching, err := regexp.Compile("(?i)" + *match)
	if err != nil {
		return err
	}

	all := table.All()
	chosen := choose(all, matching, *sample, *day)
	if len(chosen) == 0 {
		return fmt.Errorf("no mutant matches %q", *match)
	}
	for i := range chosen {
		if nets != nil {
			chosen[i].Nets = nets
		}
	}
	t, err := newTester(*every, *whole && nets == nil)
	if err != nil {
		return err
	}
	defer t.close()

	fmt.Fprintf(out, "Testing %d of the %d mutants in the table.\n", len(chosen), len(all))
	if *sample > 0 {
		fmt.Fprintf(out, "Repeat this sample with -sample %d -day %d.\n", *sample, *day)
	}
	if err := t.baseline(ctx, chosen, *workers); err != nil {
		return err
	}
	fmt.Fprintf(out, "All nets of %d mutants pass without a mutant (%.0f s).\n", len(chosen), time.Since(began).Seconds())
	results, err := t.all(ctx, out, chosen, *workers)
	if err != nil {
		return err
	}
	if *markdown != "" {
		if err := os.WriteFile(*markdown, []byte(toMarkdown(results)), 0o644); err != nil {
			return err
		}
	}
	return summarize(out, results, time.Since(began))
}

// choose returns the mutants that match, or a sample of them.
func choose(all []table.Mutant, matching *regexp.Regexp, sample, day int) (chosen []table.Mutant) {
	for _, m := range all {
		if matching.MatchString(m.Promise) || matching.MatchString(m.File) {
			chosen = append(chosen, m)
		}
	}
	if sample == 0 || sample >= len(chosen) {
		return chosen
	}
	spread := make([]table.Mutant, sample)
	for i := range spread {
		spread[i] = chosen[(day+i*len(chosen)/sample)%len(chosen)]
	}
	return spread
}

// all tests the mutants, several at a time, and prints a line for each as soon as its result is
// there.
func (t *tester) all(ctx context.Context, out io.Writer, mutants []table.Mutant, workers int) ([]result, error) {
	results := make([]result, len(mutants))
	var printing sync.Mutex
	err := parallel(ctx, workers, len(mutants), func(ctx context.Context, i int) error {
		r, err := t.test(ctx, mutants[i])
		if ctx.Err() != nil {
			return ctx.Err()
		}
		r.err = err
		results[i] = r
		printing.Lock()
		defer printing.Unlock()
		fmt.Fprintln(out, r)
		return nil
	})
	return results, err
}

// parallel calls f for each number below n, on so many goroutines. It returns the first error, and
// begins nothing after that.
func parallel(ctx context.Context, workers, n int, f func(ctx context.Context, i int) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var running sync.WaitGroup
	next := make(chan int)
	for range workers {
		running.Go(func() {
			for i := range next {
				if err := f(ctx, i); err != nil {
					cancel(err)
				}
			}
		})
	}
	for i := range n {
		select {
		case next <- i:
		case <-ctx.Done():
		}
	}
	close(next)
	running.Wait()
	return context.Cause(ctx)
}

// summarize prints the totals. A mutant that survived is an error, and so is a mistake in the
// table.
func summarize(out io.Writer, results []result, took time.Duration) error {
	caught, mistakes, sum := 0, 0, 0.0
	for _, r := range results {
		switch {
		case r.err != nil:
			mistakes++
		case len(r.caught) > 0:
			caught++
		}
		sum += r.took.Seconds()
	}
	survivors := len(results) - caught - mistakes
	fmt.Fprintf(out, "%d mutants, %d caught, %d survived. %.1f s for each on average, %.0f s in all.\n",
		len(results), caught, survivors, sum/float64(len(results)), took.Seconds())
	switch {
	case mistakes > 0:
		return fmt.Errorf("%d mutants could not be tested: correct the table", mistakes)
	case survivors > 0:
		return fmt.Errorf("%d mutants survived: write the tests that catch them", survivors)
	}
	return nil
}
