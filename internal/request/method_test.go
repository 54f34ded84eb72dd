package request

import (
	"net/http"
	"strings"
	"testing"
)

// A client cannot choose what logs and labels hold.
func TestMethod(t *testing.T) {
	t.Parallel()
	for method, want := range map[string]string{
		"GET": "GET", "DELETE": "DELETE", "": "GET", "get": OtherMethod, "X1": OtherMethod, strings.Repeat("A", 10_000): OtherMethod,
	} {
		if got := Method(&http.Request{Method: method}); got != want {
			t.Errorf("%.10q: %q, want %q", method, got, want)
		}
	}
}
