//go:build interop

package redisson

import (
	"fmt"
	"slices"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(withMatrix{m}) }

// withMatrix prints the matrix when the tests are done.
type withMatrix struct{ *testing.M }

func (w withMatrix) Run() int {
	code := w.M.Run()
	fmt.Print(results.String())
	return code
}

// TestRedisson runs all tests in one topology after the other.
func TestRedisson(t *testing.T) {
	jar, err := buildPeer()
	if err != nil {
		t.Fatal(err)
	}
	for _, topo := range topologies {
		t.Run(topo.name, func(t *testing.T) {
			topo.start(t, jar)
			t.Run("handover", topo.testHandover) // alone: what it measures is not to be the load
			t.Run("others", topo.testOthers)
		})
	}
	for _, hole := range results.holes() {
		t.Errorf("the matrix has a hole: %s", hole)
	}
}

// testOthers runs what takes no time, all at once, for the kinds that there are here.
func (topo *topology) testOthers(t *testing.T) {
	for _, test := range []struct {
		name string
		of   []kind
		run  func(t *testing.T)
	}{
		{"held by the JVM", one, topo.testHeldByJVM},
		{"held by Go", one, topo.testHeldByGo},
		{"forced", one, topo.testForced},
		{"members", many, topo.testMembers},
		{"majority", []kind{red}, topo.testMajority},
		{"fair order", []kind{fair}, topo.testFairOrder},
		{"fair leavers", []kind{fair}, topo.testFairLeavers},
		{"fencing tokens", []kind{fenced}, topo.testTokens},
		{"hammer", slices.Concat(one, many), topo.testHammer},
	} {
		if slices.ContainsFunc(test.of, func(k kind) bool { return topo.without(k) == "" }) {
			t.Run(test.name, func(t *testing.T) {
				t.Parallel()
				test.run(t)
			})
		}
	}
}
