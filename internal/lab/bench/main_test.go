package main

import (
	"fmt"
	"os"
	"testing"

	"github.com/reqlock/reqlock/internal/lab/redistest"
	"go.uber.org/goleak"
)

// TestMain does the work of a child if a test started this binary as one.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "-child" {
		if err := runChild(os.Args[2:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	goleak.VerifyTestMain(redistest.Settled(m))
}
