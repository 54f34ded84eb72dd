package demotest

import (
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
)

// CheckOrders checks the output of demo.Orders.
func CheckOrders(t *testing.T, output string) (missed string) {
	t.Helper()
	all := make(map[string]Row)
	for _, r := range Rows(t, output, 7) {
		all[r.Name] = r
	}
	// Any request may be first. If the machine stalls for as long as a handler runs, more than one
	// may run.
	ran, refused := 0, 0
	for _, name := range []string{"A", "B", "C"} {
		switch r := all[name]; {
		case r.What == "order 42" && r.Status == http.StatusOK && strings.HasSuffix(r.Bar, "##########"):
			ran++
		case r.What == "order 42" && r.Status == http.StatusConflict && strings.HasSuffix(r.Bar, "x"):
			refused++
		default:
			t.Errorf("row %+v", r)
		}
	}
	if ran == 0 {
		t.Error("order 42 was paid by no request")
	}
	if d := all["D"]; d.What != "order 43" || d.Status != http.StatusOK {
		t.Errorf("the request for another order: %+v", d)
	}
	if refused == 0 {
		return "no payment was refused"
	}
	for _, want := range []string{
		"    HTTP/1.1 409 Conflict\n",
		"    Retry-After: 1\n",
		"    Content-Type: application/problem+json\n",
		`      "type": "urn:reqlock:problem:locked",` + "\n",
	} {
		if !strings.Contains(output, want) {
			t.Errorf("no %q", want)
		}
	}

	var waits []int
	for _, name := range []string{"E", "F", "G"} {
		r := all[name]
		if r.What == "order 42" && r.Status == http.StatusConflict {
			return "an order was not shipped in time"
		}
		if r.What != "order 42" || r.Status != http.StatusOK || strings.Count(r.Bar, "#") < 10 {
			t.Errorf("row %+v", r)
		}
		waits = append(waits, r.Waited)
	}
	slices.Sort(waits)
	// Less than the 500ms and 1s of the others, because requests are not sent at exactly the same
	// time.
	if waits[1] < 250 || waits[2] < 750 {
		return fmt.Sprintf("waits of %v ms for handlers that run 500ms each, one after another", waits)
	}
	return ""
}

// OrdersByHand checks that the commands to try by hand work.
func OrdersByHand(t *testing.T) {
	t.Helper()
	p := Start(t, "")
	p.Until(t, "Serving until Ctrl-C.")
	url := p.Find(t, `(?m)^  curl -i -X POST (http://\S+/orders/42/pay) & curl -i -X POST http://\S+/orders/42/pay; wait$`)
	AwaitFree(t, p.Redis(t))
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	if a := <-Post(client, url, ""); a.Status != http.StatusOK || a.Body != "order 42 is paid\n" {
		t.Errorf("answer %+v", a)
	}
	p.Signal(t, os.Interrupt)
	p.End(t, 0)
}
