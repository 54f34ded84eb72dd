package adaptertest

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// behaviourVariable tells TestException what it is about.
const behaviourVariable = "REQLOCK_CONFORMANCE_BEHAVIOUR"

// An exception from a test that holds fails. One from a test that fails, or that ends its process,
// does not.
func TestMustFail(t *testing.T) {
	t.Parallel()
	for behaviour, says := range map[string]string{
		"holds":  "the test holds, but the adapter has an exception from it",
		"fails":  "--- PASS: TestException",
		"panics": "--- PASS: TestException",
		"exits":  "the test did not run",
	} {
		t.Run(behaviour, func(t *testing.T) {
			t.Parallel()
			binary, err := os.Executable()
			if err != nil {
				t.Fatal(err)
			}
			cmd := exec.CommandContext(t.Context(), binary, "-test.run=^TestException$", "-test.v")
			cmd.Env = append(os.Environ(), behaviourVariable+"="+behaviour)
			output, err := cmd.CombinedOutput()
			if passes := strings.HasPrefix(says, "--- PASS"); passes != (err == nil) || !strings.Contains(string(output), says) {
				t.Errorf("want %q: %v\n%s", says, err, output)
			}
		})
	}
}

// TestException is an exception when TestMustFail runs it.
func TestException(t *testing.T) {
	behaviour := os.Getenv(behaviourVariable)
	if behaviour != "" && os.Getenv(exceptionVariable) == "" {
		mustFail(t)
		return
	}
	switch behaviour {
	case "fails":
		t.Error("it cannot hold")
	case "panics":
		panic("it cannot hold")
	case "exits":
		os.Exit(3)
	}
}

func TestOnlyThis(t *testing.T) {
	t.Parallel()
	if got, want := onlyThis("TestX/My_(new)_one/once:_a|b"), `^TestX$/^My_\(new\)_one$/^once:_a\|b$`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
