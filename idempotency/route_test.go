package idempotency

import (
	"net/http/httptest"
	"testing"
)

func TestRoute_Default(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ pattern, route string }{
		{"POST /pay/{id}", "/pay/{}"},
		{"POST \t/pay/{payment}", "/pay/{}"},
		{"POST\t/pay/{payment}", "/pay/{}"},
		{"/pay/{id}", "/pay/{}"},
		{"/pay/{id:[0-9]{1,3}}", "/pay/{}"},
		{"/pay/:id", "/pay/{}"},
		{"/pay/*rest", "/pay/{}"},
		{"/pay/*", "/pay/{}"},
		{"/pay/{rest...}", "/pay/{}"},
		{"/pay/{id}/items/{item}", "/pay/{}/items/{}"},
		{"/pay/:id/items/:item", "/pay/{}/items/{}"},
		{"/pay/{id}/*", "/pay/{}/{}"},
		{"/pay/{id}-{version}.json", "/pay/{}-{}.json"},
		{"/pay/{id}:capture", "/pay/{}:capture"},
		{`/pay\:capture`, "/pay:capture"},
		{`/pay\:capture/:id`, "/pay:capture/{}"},
		{"/file:name", "/file{}"},
		{"/pay/{$}", "/pay/"},
		{"/pay/", "/pay/"},
		{"/", "/"},
		{"POST example.com/pay/{id}", "example.com/pay/{}"},
		{"example.com:8080/pay/:id", "example.com:8080/pay/{}"},
		{"/pay/{id", "/pay/{id"},
		{"", "/pay/1"},
	} {
		r := httptest.NewRequest("POST", "/pay/1", nil)
		r.Pattern = test.pattern
		if route := routeOf(r); route != test.route {
			t.Errorf("the route of %q is %q, want %q", test.pattern, route, test.route)
		}
	}
}

// Config.Route can be set to the default of an earlier pattern, which keeps its keys.
func TestRoute_DefaultAsConfig(t *testing.T) {
	t.Parallel()
	r := httptest.NewRequest("POST", "/pay/1", nil)
	r.Pattern = "POST /pay/{id}"
	want := new(Config).name(r, "anna", "k")
	r.Pattern = "POST /{kind}/{id}"
	if got := (&Config{Route: "/pay/{}"}).name(r, "anna", "k"); got != want {
		t.Errorf("the name is %s, want %s", got, want)
	}
	if got := new(Config).name(r, "anna", "k"); got == want {
		t.Error("another pattern has the same name")
	}
}
