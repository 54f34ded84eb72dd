package wasm

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/reqlock/reqlock/guard"
)

// guestsDir lets make wasm-guests run the same tests on guests it has just built.
var guestsDir = flag.String("guests", "testdata", "`directory` of the guests' binaries; those that are not there are taken from testdata")

// languages lists the guests with the policy of testdata/README.md.
var languages = []string{"go", "c", "c2", "rust", "assemblyscript", "wat"}

// patience is a timeout for what must succeed, even on a busy machine.
const patience = time.Minute

// loading is the InitTimeout of what must succeed. The compilation of a guest in Go takes ten
// seconds of a processor under the race detector, and minutes if other tests use all of them.
const loading = 5 * time.Minute

func binary(t testing.TB, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(*guestsDir, name+".wasm"))
	if errors.Is(err, os.ErrNotExist) {
		b, err = os.ReadFile(filepath.Join("testdata", name+".wasm"))
	}
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// start creates a plugin and closes it at the end of the test.
func start(t testing.TB, guest string, cfg Config) *Plugin {
	t.Helper()
	return startBinary(t, binary(t, guest), cfg)
}

func startBinary(t testing.TB, code []byte, cfg Config) *Plugin {
	t.Helper()
	if cfg.Timeout == 0 {
		cfg.Timeout = patience
	}
	if cfg.InitTimeout == 0 {
		cfg.InitTimeout = loading
	}
	if cfg.CacheDir == "" {
		cfg.CacheDir = compiled
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	p, err := New(context.Background(), code, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closePlugin(t, p) })
	return p
}

func closePlugin(t testing.TB, p *Plugin) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := p.Close(ctx); err != nil {
		t.Error(err)
	}
}

// initial is the policy before the guest runs.
var initial = guard.Policy{Mode: guard.ModeExclusive, WaitTime: 7 * time.Second, LeaseTime: 8 * time.Second}

// nativePolicy implements the guests' policy in Go.
func nativePolicy(r *http.Request, p *guard.Policy) error {
	uri := r.URL.RequestURI()
	path, _, _ := strings.Cut(uri, "?")
	tenants := r.Header["X-Tenant"]
	switch {
	case len(uri) > 1024:
		return denied(http.StatusRequestURITooLong, "the URI is too long")
	case path == "/health":
		p.Skip = true
		return nil
	case len(tenants) != 1 || tenants[0] == "" || len(tenants[0]) > 64:
		return denied(http.StatusBadRequest, "X-Tenant is missing")
	}
	p.Keys = []string{tenants[0] + ":" + path}
	if r.Method == http.MethodGet || r.Method == http.MethodHead {
		p.Mode, p.WaitTime = guard.ModeRead, time.Second
		return nil
	}
	p.Mode, p.WaitTime, p.LeaseTime = guard.ModeWrite, 250*time.Millisecond, 5*time.Second
	if r.Method == http.MethodPut {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return err
		}
		if len(body) > 0 {
			p.Keys = append(p.Keys, string(body[:min(len(body), 64)]))
		}
	}
	return nil
}

// table returns 200 requests, each created by a call.
func table() []func() *http.Request {
	var requests []func() *http.Request
	add := func(method, target, body string, tenants ...string) {
		requests = append(requests, func() *http.Request { return request(method, target, body, tenants...) })
	}
	methods := []string{"GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "G", "GETS", "put"}
	targets := []string{
		"/", "/orders/42", "/orders/42?tenant=b&x=%3F", "/orders/%34%32", "/health", "/health?deep=1", "/healthy", "/a%2Fb/ü%20c",
		"/" + strings.Repeat("long/", 200), "/" + strings.Repeat("p", 1022) + "?", "/" + strings.Repeat("p", 1024), "//double//slash/", "/?a?b",
	}
	for i, method := range methods {
		for j, target := range targets {
			add(method, target, strings.Repeat("body ", (i+j)%17), []string{"acme", "globex:1", "ütf-8", "t"}[(i+2*j)%4])
		}
	}
	for _, method := range []string{"GET", "POST", "PUT", "HEAD", "OPTIONS"} {
		add(method, "/orders/1", "x")           // no tenant
		add(method, "/orders/1", "x", "")       // an empty one
		add(method, "/orders/1", "x", "a", "b") // two
		add(method, "/health", "x")             // skipped without one
		add(method, "/orders/1", "x", strings.Repeat("t", 63))
		add(method, "/orders/1", "x", strings.Repeat("t", 64))
		add(method, "/orders/1", "x", strings.Repeat("t", 65))
		add(method, "/orders/1", "x", strings.Repeat("t", 5000))
		add(method, "/"+strings.Repeat("p", 1024), "x") // neither
	}
	for length := 0; len(requests) < 200; length += 5 {
		add("PUT", fmt.Sprintf("/documents/%d", length), strings.Repeat("ab12-", 26)[:length], "acme")
	}
	return requests
}

func request(method, target, body string, tenants ...string) *http.Request {
	r := httptest.NewRequest("GET", target, strings.NewReader(body))
	r.Method = method
	for _, tenant := range tenants {
		r.Header.Add("x-tenant", tenant)
	}
	return r
}

// verdict is the comparable result of a request.
type verdict struct {
	Policy guard.Policy
	Denial guard.Error
}

func ask(t testing.TB, policy guard.PolicyFunc, r *http.Request) verdict {
	t.Helper()
	v := verdict{Policy: initial}
	err := policy(r, &v.Policy)
	var denial *guard.Error
	switch {
	case err == nil:
	case errors.As(err, &denial) && errors.Is(err, errDenied):
		v.Denial = *denial
	default:
		t.Errorf("%s %.80s: %v", r.Method, r.URL, err)
	}
	return v
}

func TestGuests_MatchNativeCode(t *testing.T) {
	t.Parallel()
	requests := table()
	if len(requests) != 200 {
		t.Fatalf("%d requests", len(requests))
	}
	for _, guest := range languages {
		t.Run(guest, func(t *testing.T) {
			t.Parallel()
			p := start(t, guest, Config{})
			seen := make(map[string]int)
			for _, make := range requests {
				want := ask(t, nativePolicy, make())
				r := make()
				if got := ask(t, p.Policy, r); !reflect.DeepEqual(got, want) {
					t.Errorf("%s %.80s %.70q:\n got %+v\nwant %+v", r.Method, r.URL, r.Header, got, want)
				}
				seen[fmt.Sprint(want.Denial.Status, want.Policy.Skip, want.Policy.Mode, len(want.Policy.Keys))]++
				sent, _ := io.ReadAll(make().Body)
				if left, err := io.ReadAll(r.Body); err != nil || !bytes.Equal(left, sent) {
					t.Errorf("the handler read %q of %q, %v", left, sent, err)
				}
			}
			if len(seen) != 6 { // 400, 414, skip, read, write with one key and with two
				t.Errorf("the table has %v", seen)
			}
		})
	}
}

func TestGuests_Documentation(t *testing.T) {
	t.Parallel()
	p := start(t, "docs", Config{})
	if v := ask(t, p.Policy, request("GET", "/orders/1?x=2", "")); !reflect.DeepEqual(v.Policy.Keys, []string{"/orders/1?x=2"}) {
		t.Errorf("%+v", v)
	}
	if v := ask(t, p.Policy, request("GET", "/"+strings.Repeat("p", 1024), "")); v.Denial.Detail != "the URI is too long" {
		t.Errorf("%+v", v)
	}
}
