package keyfuncs

import (
	"net/http"

	"github.com/reqlock/reqlock/internal/request"
)

// Method returns the method of the request. The empty one means GET, as in net/http;
// an invalid one, such as "GET /", is [ErrInvalid].
func Method() Func {
	malformed := newError(ErrInvalid, "the request method is malformed")
	return func(r *http.Request) (string, error) {
		switch {
		case r.Method == "":
			return http.MethodGet, nil
		case !request.IsToken(r.Method):
			return "", malformed
		}
		return r.Method, nil
	}
}
