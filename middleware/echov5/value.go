package echolock

import (
	"net/http"

	"github.com/labstack/echo/v5"
	"github.com/reqlock/reqlock/adapter"
	"github.com/reqlock/reqlock/keyfuncs"
)

// Value is a key of the value that middleware has put into Echo's context with c.Set(name, value),
// such as the authenticated user: a string, an integer or a fmt.Stringer. It works in the guards of
// this package; that middleware must run before them.
//
// A missing or empty value is keyfuncs.ErrMissing: the request is answered 400, and the answer does
// not say what is missing. In any other guard it is keyfuncs.ErrNoRoute, 500. Value panics if name
// is empty.
func Value(name string) keyfuncs.Func {
	return adapter.Value("echo.Context", name, (*echo.Context).Get)
}

// Get returns the value that middleware has put into Echo's context with c.Set(name, value), for
// key functions and scopes that read more than Value does, such as the claims of a token. nil:
// there is none, or r did not come from a guard of this package, or its handler has returned.
func Get(r *http.Request, name string) any {
	c, ok := adapter.Find[*echo.Context](r)
	if !ok {
		return nil
	}
	return c.Get(name)
}
