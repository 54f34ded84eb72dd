package redistest

import (
	"fmt"
	"runtime"
	"sync"
	"testing"
)

// fakeT is a test that records its failure.
type fakeT struct {
	testing.TB
	mu      sync.Mutex
	failure string
}

func (f *fakeT) Helper() {}

func (f *fakeT) note(s string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.failure += s
}

func (f *fakeT) Errorf(format string, args ...any) { f.note(fmt.Sprintf(format, args...)) }
func (f *fakeT) Fatalf(format string, args ...any) { f.Errorf(format, args...); runtime.Goexit() }
func (f *fakeT) Fatal(args ...any)                 { f.note(fmt.Sprint(args...)); runtime.Goexit() }

func (f *fakeT) failed() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.failure
}

// failureOf runs a test that must fail and returns its failure message.
func failureOf(t *testing.T, test func(testing.TB)) string {
	t.Helper()
	NeedsServer(t) // what fails is always something about a server
	fake := &fakeT{TB: t}
	var wg sync.WaitGroup
	wg.Go(func() { test(fake) })
	wg.Wait()
	if fake.failed() == "" {
		t.Error("it did not fail")
	}
	return fake.failed()
}
