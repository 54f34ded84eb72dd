package adaptertest

import (
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// With this variable, Run also runs the tests that are exceptions.
const exceptionVariable = "REQLOCK_CONFORMANCE_EXCEPTION"

// checkExceptions refuses an exception without a reason, and one from no test.
func (a Adapter) checkExceptions(suite []scenario) error {
	for name, reason := range a.Exceptions {
		if reason == "" {
			return fmt.Errorf("reqlock: adaptertest: %s: the exception from %q has no reason; say why it cannot hold", a.Name, name)
		}
		if !slices.ContainsFunc(suite, func(s scenario) bool { return s.name == name }) {
			return fmt.Errorf("reqlock: adaptertest: %s: there is no test %q to make an exception from; the table of the results has the names", a.Name, name)
		}
	}
	return nil
}

// mustFail runs this test again in a process of its own, where it is no exception, and fails the
// test unless it fails there. A failure may end that process.
func mustFail(t *testing.T) {
	t.Helper()
	binary, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), binary, "-test.run="+onlyThis(t.Name()), "-test.v", "-test.timeout=5m")
	cmd.Env = append(os.Environ(), exceptionVariable+"=1")
	cmd.WaitDelay = time.Second // for its servers, if it ended without them
	output, err := cmd.CombinedOutput()
	switch text := string(output); {
	case err == nil && strings.Contains(text, "--- PASS: "+t.Name()):
		t.Error("the test holds, but the adapter has an exception from it; remove the exception")
	case err == nil, !strings.Contains(text, "--- FAIL: "+t.Name()) && !strings.Contains(text, "panic: ") && !strings.Contains(text, "fatal error: "):
		t.Errorf("the test did not run (%v):\n%s", err, text)
	}
}

// onlyThis returns what -run must be for one test.
func onlyThis(name string) string {
	levels := strings.Split(name, "/")
	for i, level := range levels {
		levels[i] = "^" + regexp.QuoteMeta(level) + "$"
	}
	return strings.Join(levels, "/")
}
