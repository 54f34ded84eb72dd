package keyfuncs

import (
	"errors"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"
)

// Adapters, policies and error handlers outside can tell clients and logs what guard tells them.
func TestDetailAndRemedy(t *testing.T) {
	t.Parallel()
	r := httptest.NewRequest("GET", "/", nil)
	r.Pattern = "/orders/{order}"
	_, missing := Header("X-Tenant")(r)
	_, noWildcard := PathValue("id")(r)
	for name, test := range map[string]struct {
		err            error
		detail, remedy string
	}{
		"another's":     {errors.New("secret"), "", ""},
		"a sentinel":    {ErrMissing, "", ""},
		"no remedy":     {missing, "header X-Tenant is missing", ""},
		"wrapped":       {fmt.Errorf("tenant: %w", missing), "header X-Tenant is missing", ""},
		"with a remedy": {noWildcard, `path value "id" is unknown`, `the route's pattern "/orders/{order}" are "order"`},
	} {
		detail, ok := Detail(test.err)
		if ok != (test.detail != "") || !strings.HasPrefix(detail, test.detail) {
			t.Errorf("%s: Detail: %q, %v; want %q", name, detail, ok, test.detail)
		}
		remedy, ok := Remedy(test.err)
		if ok != (test.remedy != "") || !strings.Contains(remedy, test.remedy) {
			t.Errorf("%s: Remedy: %q, %v; want %q", name, remedy, ok, test.remedy)
		}
	}
}
