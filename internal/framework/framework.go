// Package framework finds the context of a request in the context of a framework. Gin's users pass
// *gin.Context as a context; by default it hands on neither the values nor the end of the
// request's.
package framework

import "context"

var finders []func(context.Context) context.Context

// Register adds a function that finds the context of the request in a framework's own context, or
// in one derived from it, and returns nil for all others. It is for init functions.
func Register(find func(ctx context.Context) context.Context) { finders = append(finders, find) }

// RequestContext returns what the first function finds; nil: none does.
func RequestContext(ctx context.Context) context.Context {
	for _, find := range finders {
		if request := find(ctx); request != nil {
			return request
		}
	}
	return nil
}

// Value returns the value of ctx, or else that of the context of its request.
func Value(ctx context.Context, key any) any {
	if value := ctx.Value(key); value != nil {
		return value
	}
	if request := RequestContext(ctx); request != nil {
		return request.Value(key)
	}
	return nil
}
