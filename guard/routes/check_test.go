package routes_test

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/reqlock/reqlock/guard/routes"
)

const checked = `{"routes": [
	{"method": "POST", "pattern": "/orders/{id}/pay", "key": "k"},
	{"method": "GET", "pattern": "/files/{rest...}", "key": "k"},
	{"method": "HEAD", "pattern": "/files/:rest", "key": "k"},
	{"pattern": "/accounts/{a}/to/{b}", "key": "k"},
	{"method": "DELETE", "pattern": "/any/{id}", "key": "k"},
	{"method": "POST", "pattern": "/exact/{$}", "key": "k"},
	{"method": "POST", "pattern": "shop.example/pay", "key": "k"}
]}`

// wantMistakes fails the test unless an error has these places and no other.
func wantMistakes(t *testing.T, err error, places ...string) {
	t.Helper()
	var lines []string
	if err != nil {
		lines = strings.Split(err.Error(), "\n")
	}
	if len(lines) != len(places) {
		t.Fatalf("%v, want %d mistakes", err, len(places))
	}
	for i, place := range places {
		if !strings.Contains(lines[i], "locks.json:"+place) {
			t.Errorf("%s, want the place %s", lines[i], place)
		}
	}
}

func TestCheck_Served(t *testing.T) {
	t.Parallel()
	table := newFile(t, checked).open(func(*routes.Options) {})
	mux := http.NewServeMux()
	for _, pattern := range []string{
		"POST /orders/{order}/pay", "GET /files/{path...}", "GET /files/{name}", "PUT /accounts/{from}/to/{to}", "/any/{id}", "POST /exact/{$}", "POST shop.example/pay",
	} {
		mux.HandleFunc(pattern, func(http.ResponseWriter, *http.Request) {})
	}
	wantMistakes(t, table.Check(routes.Served(mux)))

	mux = http.NewServeMux()
	for _, pattern := range []string{"GET /orders/{id}/pay", "GET /orders/", "GET /files/{name}", "/accounts/{from}", "GET /any/{id}", "POST /exact/", "POST /pay"} {
		mux.HandleFunc(pattern, func(http.ResponseWriter, *http.Request) {})
	}
	err := table.Check(routes.Served(mux))
	wantMistakes(t, err, "2:2: ", "3:2: ", "5:2: ", "6:2: ", "7:2: ", "8:2: ")
	var mistake *routes.Error
	if want := `the program has no route "POST /orders/{id}/pay", so the row does nothing`; !errors.As(err, &mistake) || !strings.HasPrefix(mistake.Text, want) {
		t.Errorf("%v, want %s", err, want)
	}
}

func TestCheck_Listed(t *testing.T) {
	t.Parallel()
	f := newFile(t, checked)
	table := f.open(func(*routes.Options) {})
	list := func(patterns ...string) func(routes.Route) bool {
		return routes.Listed(patterns, func(route string) (method, pattern string) {
			method, pattern, _ = strings.Cut(route, " ")
			return method, pattern
		})
	}
	wantMistakes(t, table.Check(list("POST /orders/:order/pay", "GET /files/*", "GET /files/:name", "PUT /accounts/:from/to/:to", " /any/:id", "POST /exact/{$}", "POST shop.example/pay")))
	wantMistakes(t, table.Check(list("PUT /orders/:id/pay", "GET /files/:name", "PUT /accounts/:from/to/:to", "GET /any/:id", "POST /exact/{$}", "POST shop.example/pay")),
		"2:2: ", "3:2: ", "6:2: ")
}

// A later version of the file is checked as well, and the log has what is wrong.
func TestCheck_Reload(t *testing.T) {
	t.Parallel()
	f := newFile(t, keyed("one"))
	table := f.open(func(opts *routes.Options) { opts.Watch = true })
	calls := 0
	has := func(row routes.Route) bool { calls++; return row.Pattern == "/x" }
	table.CheckOnce(func() func(routes.Route) bool { return has })
	table.CheckOnce(func() func(routes.Route) bool { t.Error("CheckOnce checks twice"); return nil })
	if calls != 1 || strings.Contains(f.log.text(), "rows that do nothing") {
		t.Errorf("%d rows were checked:\n%s", calls, f.log.text())
	}
	f.put(`{"routes": [{"pattern": "/y", "key": "two"}]}`)
	eventually(t, "the log names the row", func() bool {
		return strings.Contains(f.log.text(), "the new version of the file has rows that do nothing") && strings.Contains(f.log.text(), `the program has no route \"/y\"`)
	})
	if got := found(table, "GET", "/x"); got != "-" {
		t.Errorf("the new version is not in use: %s", got)
	}
}

// CheckOnce logs what Check would return, unless that was called.
func TestCheckOnce(t *testing.T) {
	t.Parallel()
	none := func(routes.Route) bool { return false }
	for _, before := range []bool{false, true} {
		f := newFile(t, keyed("one"))
		table := f.open(func(*routes.Options) {})
		if before {
			wantMistakes(t, table.Check(none), "1:13: ")
		}
		table.CheckOnce(func() func(routes.Route) bool { return none })
		if logged := strings.Contains(f.log.text(), "rows that do nothing"); logged == before {
			t.Errorf("after Check %v, the log is %q", before, f.log.text())
		}
	}
}
