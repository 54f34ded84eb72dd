package main

import (
	"net/http"
	"strings"
	"testing"

	"github.com/reqlock/reqlock/examples/internal/demotest"
)

func TestMain(m *testing.M) { demotest.Main(m) }

func TestDemonstration(t *testing.T) {
	t.Parallel()
	demotest.OnEachRedis(t, checkTimeline)
}

func checkTimeline(t *testing.T, output string) (missed string) {
	t.Helper()
	looked, sold, soldOut := 0, 0, 0
	for _, r := range demotest.Rows(t, output, lookers+buyers) {
		switch {
		case r.What == "a kettle" && r.Status == http.StatusOK && strings.HasSuffix(r.Bar, "#"):
			looked++
		case r.Status == http.StatusOK && strings.HasSuffix(r.Bar, "#"):
			sold++
		case r.Status == http.StatusGone && !strings.Contains(r.Bar, "#"):
			soldOut++
		default:
			t.Errorf("row %+v", r)
		}
	}
	if looked != lookers || sold != 5 || soldOut != 15 {
		t.Errorf("%d readers, %d sold, %d buyers sold out", looked, sold, soldOut)
	}
	const want = "\n  5 pieces before, 5 sold, 0 left; 15 buyers got 410 sold out"
	if !strings.HasSuffix(output, want) && !strings.Contains(output, want+"\n") {
		t.Errorf("no %q", want)
	}
	return ""
}

func TestSignalWhileServing(t *testing.T) {
	t.Parallel()
	demotest.Signals(t,
		demotest.Probe{Path: "/items/teapot/buy", Lock: "reqlock:item:teapot", Write: true},
		demotest.Probe{Path: "/items/kettle/buy", Lock: "reqlock:item:kettle", Want: "kettle bought, 2 left\n"})
}

// Reading needs the lock too. A missing item needs none.
func TestRoutes(t *testing.T) {
	t.Parallel()
	p := demotest.Start(t, "")
	p.Until(t, "Serving until Ctrl-C.")
	base, rdb := p.URL(t), p.Redis(t)
	demotest.AwaitFree(t, rdb)
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()

	demotest.HoldWrite(t, rdb, "reqlock:item:kettle")
	status := make(chan int, 1)
	go func() {
		response, err := client.Get(base + "/items/kettle")
		if err != nil {
			t.Error(err)
			status <- 0
			return
		}
		defer response.Body.Close()
		status <- response.StatusCode
	}()
	demotest.AwaitWaiter(t, rdb, "reqlock:item:kettle")
	// The last is a method the path does not have, which is 404 in an Echo group.
	for _, path := range []string{"/items/kettle/sell", "/items/umbrella/buy", "/items/kettle"} {
		if a := <-demotest.Post(client, base+path, ""); a.Status != http.StatusNotFound {
			t.Errorf("POST %s: %+v", path, a)
		}
	}
	demotest.Free(t, rdb, "reqlock:item:kettle")
	if got := <-status; got != http.StatusOK {
		t.Errorf("GET /items/kettle: %d", got)
	}
}

func TestSignalDuringDemonstration(t *testing.T) {
	t.Parallel()
	demotest.SignalDuringDemonstration(t)
}

func TestFailures(t *testing.T) {
	t.Parallel()
	demotest.Failures(t)
}
