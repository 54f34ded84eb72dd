// Package framework finds the request's context in a framework's context. Gin's users pass
// *gin.Context as a context, which by default has neither the values nor the end of the request's
// context.
package framework

import "context"

var finders []func(context.Context) context.Context

// Register adds a function that returns the request's context for a framework's context or one
// derived from it, and nil for all others. Call it from init functions.
func Register(find func(ctx context.Context) context.Context) { finders = append(finders, find) }

// RequestContext returns the result of the first function that finds one, or nil.
func RequestContext(ctx context.Context) context.Context {
	for _, find := range finders {
		if request := find(ctx); request != nil {
			return request
		}
	}
	return nil
}

// Value returns the value in ctx, or otherwise in its request's context.
func Value(ctx context.Context, key any) any {
	if value := ctx.Value(key); value != nil {
		return value
	}
	if request := RequestContext(ctx); request != nil {
		return request.Value(key)
	}
	return nil
}
