package adapter

import (
	"errors"
	"net/http/httptest"
	"testing"

	"github.com/reqlock/reqlock/keyfuncs"
)

func TestSpelling_Canonical(t *testing.T) {
	t.Parallel()
	none, both := Spelling{}, Spelling{AnyCase: true, AnySlash: true}
	for _, test := range []struct {
		spelling    Spelling
		path, route string
		values      []string
		canonical   string
		ok          bool
	}{
		{both, "/orders/42/pay", "/orders/:id/pay", []string{"42"}, "/orders/42/pay", true},
		{both, "/ORDERS/a/PAY//", "/orders/:id/pay", []string{"a"}, "/orders/a/pay", true},
		{both, "/orders/A/pay", "/Orders/:id/Pay/", []string{"A"}, "/Orders/A/Pay/", true},
		{both, "/", "/", nil, "/", true},
		{both, "/F/x-Y.json/", "/f/:from-:to.json", []string{"x", "Y"}, "/f/x-Y.json", true},
		{both, "/F/x-id", "/f/:order-id", []string{"x"}, "/f/x-id", true},
		{both, "/u/1/x/2/3", "/U/*/x/+", []string{"1", "2/3"}, "/U/1/x/2/3", true},
		{both, "/NAME:verb/1", `/name\:verb/:id`, []string{"1"}, "/name:verb/1", true},
		{both, "/api/orders", "/api", nil, "/api/orders", false},
		{both, "/api/1/orders", "/api/:id", []string{"1"}, "/api/1/orders", false},
		{both, "/a/1", "/a/:id/:of", []string{"1"}, "/a/1", false},
		{both, "/a/1", "/a/1", []string{"1"}, "/a/1", false},
		{both, "/\u212A", "/k", nil, "/\u212A", false},
		{Spelling{AnyCase: true}, "/A/", "/a", nil, "/A/", false},
		{Spelling{AnyCase: true}, "/A/", "/a/", nil, "/a/", true},
		{Spelling{AnySlash: true}, "/a/", "/a", nil, "/a", true},
		{Spelling{AnySlash: true}, "/A/", "/a", nil, "/A/", false},
		{none, "/A/", "/a", nil, "/A/", true},
		{none, "/u/a", "/u/:id", []string{"a"}, "/u/a", true},
		{none, "/opt", "/opt/:id?", []string{""}, "/opt/", true},
	} {
		canonical, ok := test.spelling.Canonical(test.path, test.route, test.values)
		if canonical != test.canonical || ok != test.ok {
			t.Errorf("%+v: %s of %s: %q, %v; want %q, %v", test.spelling, test.path, test.route, canonical, ok, test.canonical, test.ok)
		}
	}
}

// Only the request without a path has none, and not one of another URL with its context.
func TestWithoutPath(t *testing.T) {
	t.Parallel()
	r := httptest.NewRequest("GET", "/Orders/1", nil)
	without := SetRoute(r.Context(), r, "/", nil, nil)
	without = WithoutPath(without)
	if key, err := keyfuncs.Path()(without); !errors.Is(err, keyfuncs.ErrNoRoute) {
		t.Errorf("key %q, error %v", key, err)
	}
	other := httptest.NewRequest("GET", "/orders/1", nil).WithContext(without.Context())
	if key, err := keyfuncs.Path()(other); key != "/orders/1" || err != nil {
		t.Errorf("another URL: key %q, error %v", key, err)
	}
}
