package main

import (
	"testing"

	"github.com/reqlock/reqlock/examples/internal/demotest"
)

func TestMain(m *testing.M) { demotest.Main(m) }

func TestDemonstration(t *testing.T) {
	t.Parallel()
	demotest.OnEachRedis(t, demotest.CheckOrders)
}

// The commands to try by hand work.
func TestInvitation(t *testing.T) {
	t.Parallel()
	demotest.OrdersByHand(t)
}

func TestSignalWhileServing(t *testing.T) {
	t.Parallel()
	demotest.Signals(t,
		demotest.Probe{Path: "/orders/7/ship", Lock: "reqlock:order:7"},
		demotest.Probe{Path: "/orders/8/pay", Lock: "reqlock:order:8", Want: "order 8 is paid\n"})
}

func TestSignalDuringDemonstration(t *testing.T) {
	t.Parallel()
	demotest.SignalDuringDemonstration(t)
}

func TestFailures(t *testing.T) {
	t.Parallel()
	demotest.Failures(t)
}
