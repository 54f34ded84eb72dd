// Package framework knows the contexts of requests that hide in a framework's own. Gin's users pass *gin.Context where a context is
// wanted; it holds the request, but as a rule hands on neither its values nor its end.
package framework

import "context"

var finders []func(context.Context) context.Context

// Register adds a function that finds the context of the request in a context that is a framework's own, or was made of one; nil: it is
// none. It is for init functions.
func Register(find func(ctx context.Context) context.Context) { finders = append(finders, find) }

// RequestContext is what a function finds; nil: none does.
func RequestContext(ctx context.Context) context.Context {
	for _, find := range finders {
		if request := find(ctx); request != nil {
			return request
		}
	}
	return nil
}

// Value is ctx.Value, or else that of the context of the request.
func Value(ctx context.Context, key any) any {
	if value := ctx.Value(key); value != nil {
		return value
	}
	if request := RequestContext(ctx); request != nil {
		return request.Value(key)
	}
	return nil
}
