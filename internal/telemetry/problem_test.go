package telemetry

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"testing"

	"github.com/reqlock/reqlock/guard"
)

// A plugin chooses the problem types of its answers, perhaps by what clients send. They make no
// series of their own.
func TestProblems_OfAPlugin(t *testing.T) {
	t.Parallel()
	var r Recorder
	for i := range 8000 {
		for _, prefix := range []string{problemPrefix, "https://shop.example/", problemPrefix + "locked/"} {
			o := guard.Outcome{Err: &guard.Error{Type: fmt.Sprint(prefix, i), Status: 403}}
			r.Observe(httptest.NewRequest(http.MethodGet, "/", nil), o)
			r.ObserveIdempotent(httptest.NewRequest(http.MethodGet, "/", nil), o)
		}
	}
	requests, idempotents := 0, 0
	for range r.requests.all() {
		requests++
	}
	for range r.idempotents.all() {
		idempotents++
	}
	if requests != 1 || idempotents != 1 {
		t.Errorf("there are %d and %d series, want one each", requests, idempotents)
	}
}

// All problem types of guard and idempotency are known.
func TestProblems_Known(t *testing.T) {
	t.Parallel()
	types := make(map[string]bool)
	for file, pattern := range map[string]string{
		"../../guard/problem.go":       `Problem\w+ += "urn:reqlock:problem:([a-z-]+)"`,
		"../../idempotency/problem.go": `(?m)^\t\w+ += "([a-z-]+)"$`,
	} {
		source, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		found := regexp.MustCompile(pattern).FindAllStringSubmatch(string(source), -1)
		if len(found) < 5 {
			t.Errorf("%s has %d problem types", file, len(found))
		}
		for _, match := range found {
			types[match[1]] = true
			if !problemTypes[match[1]] {
				t.Errorf("%s of %s is not known", match[1], file)
			}
		}
	}
	if len(types) != len(problemTypes) {
		t.Errorf("there are %d problem types, and %d are known", len(types), len(problemTypes))
	}
}
