//go:build interop

package redisson

import (
	"fmt"
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
			t.Run("others", func(t *testing.T) {
				for name, test := range map[string]func(t *testing.T){
					"held by the JVM": topo.testHeldByJVM,
					"held by Go":      topo.testHeldByGo,
					"forced":          topo.testForced,
					"hammer":          topo.testHammer,
					"fair order":      topo.testFairOrder,
					"fair leavers":    topo.testFairLeavers,
					"fencing tokens":  topo.testTokens,
					"multi lock":      topo.testMulti,
				} {
					t.Run(name, func(t *testing.T) {
						t.Parallel()
						test(t)
					})
				}
			})
		})
	}
	for _, hole := range results.holes() {
		t.Errorf("the matrix has a hole: %s", hole)
	}
}
