package coalesce_test

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"

	"github.com/reqlock/reqlock/coalesce"
	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/embedded"
)

// A hundred callers want the same report. One of them computes it.
func ExampleDo() {
	redis, err := embedded.Start() // in production, a Redis that all servers share
	if err != nil {
		log.Fatal(err)
	}
	defer redis.Close()
	locks, err := core.New(redis.Client(), core.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close(context.Background())

	type Report struct{ Sold int }
	var runs atomic.Int32
	var all sync.WaitGroup
	for range 100 {
		all.Go(func() {
			report, _, err := coalesce.Do(context.Background(), locks, "report:2026-11", coalesce.Options{}, func(context.Context) (Report, error) {
				runs.Add(1)
				return Report{Sold: 7}, nil // in production, the query that takes seconds
			})
			if err != nil || report.Sold != 7 {
				log.Fatal(report, err)
			}
		})
	}
	all.Wait()
	fmt.Println("runs:", runs.Load())
	// Output: runs: 1
}

// Runs shows what callers of this process wait for together.
func ExampleRuns() {
	redis, err := embedded.Start() // in production, a Redis that all servers share
	if err != nil {
		log.Fatal(err)
	}
	defer redis.Close()
	locks, err := core.New(redis.Client(), core.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close(context.Background())

	_, _, err = coalesce.Do(context.Background(), locks, "report:2026-11", coalesce.Options{}, func(context.Context) (int, error) {
		for _, run := range coalesce.Runs(locks) {
			fmt.Printf("%s runs, and %d callers wait\n", run.Key, run.Waiting)
		}
		return 7, nil
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("runs after the end:", len(coalesce.Runs(locks)))
	// Output:
	// report:2026-11 runs, and 0 callers wait
	// runs after the end: 0
}

// An adapter gives the handler the writer of the Recorder. Those for frameworks do it as this one.
func ExampleNew() {
	redis, err := embedded.Start() // in production, a Redis that all servers share
	if err != nil {
		log.Fatal(err)
	}
	defer redis.Close()
	locks, err := core.New(redis.Client(), core.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close(context.Background())

	g, err := coalesce.New(locks, coalesce.Config{User: coalesce.Everyone})
	if err != nil {
		log.Fatal(err)
	}
	report := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		g.Serve(w, r, func(_ *http.Request, rec *coalesce.Recorder) {
			fmt.Fprint(rec.Wrap(w), "sold: 7") // in production, the query that takes seconds
		})
	})
	for range 2 {
		w := httptest.NewRecorder()
		report.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/report", nil))
		fmt.Printf("%s, shared: %q\n", w.Body, w.Header().Get("Reqlock-Shared"))
	}
	// Output:
	// sold: 7, shared: ""
	// sold: 7, shared: "1"
}
