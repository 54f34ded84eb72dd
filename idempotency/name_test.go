package idempotency

import (
	"net/http"
	"net/http/httptest"
	"testing"
)

// Each of these requests has its own name.
func TestName_Differs(t *testing.T) {
	t.Parallel()
	names := make(map[string]int)
	for i, parts := range [][5]string{ // scope, method, path, pattern, key
		{"anna", "POST", "/a", "", "k"},
		{"annaP", "OST", "/a", "", "k"},
		{"bert", "POST", "/a", "", "k"},
		{"anna", "PATCH", "/a", "", "k"},
		{"anna", "POST", "/b", "", "k"},
		{"anna", "POST", "/", "/{x}", "k"},
		{"anna", "POST", "/a", "", "ak"},
		{"anna", "POST", "/ak", "", ""},
		{"anna/a", "POST", "/", "", "k"},
	} {
		r := httptest.NewRequest(parts[1], parts[2], nil)
		r.Pattern = parts[3]
		n := new(Config).name(r, parts[0], parts[4])
		if len(n) != 64 {
			t.Errorf("name %q", n)
		}
		if j, taken := names[n]; taken {
			t.Errorf("%d and %d have one name", i, j)
		}
		names[n] = i
	}
}

func TestName_SameRoute(t *testing.T) {
	t.Parallel()
	request := func(path string) *http.Request {
		r := httptest.NewRequest("POST", path, nil)
		r.Pattern = "/orders/{id}"
		return r
	}
	if new(Config).name(request("/orders/1"), "anna", "k") != new(Config).name(request("/orders/2?x=1"), "anna", "k") {
		t.Error("two paths of a route have two names: another request with a key would run")
	}
}

// Two routers with equal patterns can be mounted under two prefixes.
func TestRoute_Mounted(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ prefix, path, mount string }{
		{"", "/orders/1", ""},
		{"/v1", "/v1/orders/1", "/v1"},
		{"/v1", "/v1/orders/a%2Fb?x=/y", "/v1"},
	} {
		var got, own string
		http.StripPrefix(test.prefix, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			r.Pattern = "/orders/{id}"
			got, own = mount(r), new(Config).name(r, "anna", "k")
		})).ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("POST", test.path, nil))
		if got != test.mount {
			t.Errorf("mount of %s without %s: %q, want %q", test.path, test.prefix, got, test.mount)
		}
		bare := httptest.NewRequest("POST", "/orders/1", nil)
		bare.Pattern = "/orders/{id}"
		if (own == new(Config).name(bare, "anna", "k")) != (test.mount == "") {
			t.Errorf("%s without %s: the name is that of another mount", test.path, test.prefix)
		}
	}
	rewritten := httptest.NewRequest("POST", "/old", nil)
	rewritten.URL.Path = "/new"
	if got := mount(rewritten); got != "" {
		t.Errorf("mount of a rewritten path: %q", got)
	}
	if got := mount(&http.Request{URL: rewritten.URL}); got != "" {
		t.Errorf("mount of a request without RequestURI: %q", got)
	}
}
