package adapter

import (
	"context"

	"github.com/reqlock/reqlock/internal/ctxvalue"
)

// RegisterContext lets handlers pass the framework's context to core and guard. find returns the
// request's context that a context of the framework holds, and nil for any other context. Only a
// framework whose context does not hand on the values of the request's context needs it, such as
// Gin. Call it from an init function.
func RegisterContext(find func(ctx context.Context) context.Context) { ctxvalue.Register(find) }
