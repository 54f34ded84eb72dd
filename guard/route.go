package guard

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"github.com/reqlock/reqlock/internal/ctxvalue"
	"github.com/reqlock/reqlock/internal/lineage"
	"github.com/reqlock/reqlock/internal/request"
)

// A routedContext is the context that a request acquires its locks with. It lets core.Client.Holds
// tell the route of the request. The route is asked for only then, so it costs requests nothing.
//
// In the outermost guard it also begins the lineage of the request: leases and owners that a
// BaseContext has are not the request's.
type routedContext struct {
	context.Context
	r         *http.Request
	outermost bool
	origin    lineage.Link
}

// Value returns the context itself for ctxvalue.RouteKey.
func (c *routedContext) Value(key any) any {
	switch {
	case key == ctxvalue.RouteKey{}:
		return c
	case c.outermost && key == lineage.Key{}:
		return &c.origin
	}
	return c.Context.Value(key)
}

// Route returns the method and the pattern of the request.
func (c *routedContext) Route() string {
	if c.r.Pattern == "" || strings.Contains(c.r.Pattern, " ") {
		return c.r.Pattern
	}
	return request.Method(c.r) + " " + c.r.Pattern
}

// String avoids a data race when fmt prints the context, whose request may change meanwhile.
func (c *routedContext) String() string { return fmt.Sprint(c.Context, ".guard") }
