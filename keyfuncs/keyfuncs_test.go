package keyfuncs

import (
	"errors"
	"fmt"
	"testing"
)

func TestDetail(t *testing.T) {
	t.Parallel()
	_, err := Header("X-Tenant")(get("/"))
	for name, test := range map[string]struct {
		err    error
		detail string
		ok     bool
	}{
		"nil":         {nil, "", false},
		"a source's":  {err, "header X-Tenant is missing", true},
		"wrapped":     {fmt.Errorf("tenant: %w", err), "header X-Tenant is missing", true},
		"a sentinel":  {ErrMissing, "", false},
		"the program": {errors.New("secret"), "", false},
	} {
		if detail, ok := Detail(test.err); detail != test.detail || ok != test.ok {
			t.Errorf("%s: Detail = %q, %v; want %q, %v", name, detail, ok, test.detail, test.ok)
		}
	}
}
