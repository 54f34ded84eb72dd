//go:build interop

package redisson

import (
	"fmt"
	"slices"
	"testing"

	"github.com/reqlock/reqlock/internal/lab/redistest"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(redistest.Settled(withMatrices{m})) }

// withMatrices prints the matrices after the tests.
type withMatrices struct{ *testing.M }

func (w withMatrices) Run() int {
	code := w.M.Run()
	for _, m := range matrices {
		fmt.Print(m)
	}
	return code
}

// TestRedisson runs all tests with each version of Redisson, one topology after the other.
func TestRedisson(t *testing.T) {
	vs, err := versions()
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range vs {
		t.Run(v.String(), func(t *testing.T) {
			jar, err := buildPeer(v)
			if err != nil {
				t.Fatal(err)
			}
			var all []*topology
			for _, topo := range topologies {
				topo.version, topo.jar = v, jar
				all = append(all, &topo)
			}
			m := newMatrix(v, all)
			for _, topo := range all {
				if topo.without(plain) == "" || topo.without(multi) == "" {
					t.Run(topo.name, func(t *testing.T) {
						topo.start(t)
						// Not in parallel, because it measures.
						t.Run("handover", func(t *testing.T) { topo.testHandover(t, m) })
						t.Run("others", topo.testOthers)
					})
				}
			}
			for _, hole := range m.holes() {
				t.Errorf("the matrix has no time for %s", hole)
			}
		})
	}
}

// testOthers runs the tests that mostly wait, in parallel, for the available kinds.
func (topo *topology) testOthers(t *testing.T) {
	single := topo.name == "single"
	for _, test := range []struct {
		name string
		of   []kind
		here bool
		run  func(t *testing.T)
	}{
		{"held by the JVM", one, true, topo.testHeldByJVM},
		{"held by Go", one, true, topo.testHeldByGo},
		{"forced", one, true, topo.testForced},
		{"members", many, true, topo.testMembers},
		{"majority", []kind{red}, true, topo.testMajority},
		{"master down", []kind{red}, topo.apart, topo.testMasterDown},
		{"fair order", []kind{fair}, true, topo.testFairOrder},
		{"fair leavers", []kind{fair}, true, topo.testFairLeavers},
		{"fair crowd", []kind{fair}, true, topo.testFairCrowd},
		{"fair, take-over", []kind{fair}, single && !topo.version.before(fairWaitsLong), topo.testFairTakeOver},
		{"fair, dropped", []kind{fair}, single, topo.testFairDropped},
		{"fair, dead JVM", []kind{fair}, topo.seesListeners(), topo.testFairDeadJVM},
		{"fair, dead Go", []kind{fair}, single, topo.testFairDeadGo},
		{"fair, reconnecting", []kind{fair}, single, topo.testFairReconnecting},
		{"fair, frozen", []kind{fair}, single, topo.testFairFrozen},
		{"readers", []kind{read}, single, topo.testReaders},
		{"guests", one, !topo.apart, topo.testGuests},
		{"fencing tokens", []kind{fenced}, true, topo.testTokens},
		{"permits", []kind{semaphore}, true, topo.testPermits},
		{"latch", []kind{plain}, !topo.apart, topo.testLatch},
		{"name mapper", one, single && !topo.version.before(hasNameMapper), topo.testNameMapper},
		{"hammer", slices.Concat(one, many), true, topo.testHammer},
	} {
		if test.here && slices.ContainsFunc(test.of, func(k kind) bool { return topo.without(k) == "" }) {
			t.Run(test.name, func(t *testing.T) {
				t.Parallel()
				test.run(t)
			})
		}
	}
}
