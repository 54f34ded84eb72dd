// Code generated from middleware/echo by make echov5 WRITE=1. DO NOT EDIT.

package echolock

import (
	"net/http"

	"github.com/labstack/echo/v5"
	"github.com/reqlock/reqlock/adapter"
	"github.com/reqlock/reqlock/keyfuncs"
)

// Value returns a key function for what middleware has stored in Echo's context with c.Set(name,
// value), such as the authenticated user. The value is a string, an integer or a fmt.Stringer.
// Value works in the guards of this package, and the middleware must run before them.
//
// A missing or empty value is keyfuncs.ErrMissing: the request gets 400, and the answer does
// not say what is missing. In any other guard it is keyfuncs.ErrNoRoute, 500. Value panics if name
// is empty.
func Value(name string) keyfuncs.Func {
	return adapter.Value("echo.Context", name, (*echo.Context).Get)
}

// Get returns the value that middleware has stored in Echo's context with c.Set(name, value). It is
// for key functions and scopes that need more than Value, such as the claims of a token. It returns
// nil if there is no value, if r did not come from a guard of this package, or if its handler has
// returned.
func Get(r *http.Request, name string) any {
	c, ok := adapter.Find[*echo.Context](r)
	if !ok {
		return nil
	}
	return c.Get(name)
}
