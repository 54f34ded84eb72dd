// Package ctxvalue is what packages tell each other by contexts, also by those that stand for another
// context but do not hand on its values or its end. Who knows such a type of context registers how
// to find the other one.
package ctxvalue

import "context"

var finders []func(context.Context) context.Context

// Register adds a function that returns the context which ctx, or a context that it is derived
// from, stands for, and nil if there is none. Call it from init functions.
func Register(find func(ctx context.Context) context.Context) { finders = append(finders, find) }

// Behind returns the result of the first function that finds a context, or nil.
func Behind(ctx context.Context) context.Context {
	for _, find := range finders {
		if other := find(ctx); other != nil {
			return other
		}
	}
	return nil
}

// Of returns the value in ctx, or otherwise in the context behind it.
func Of(ctx context.Context, key any) any {
	if value := ctx.Value(key); value != nil {
		return value
	}
	if other := Behind(ctx); other != nil {
		return other.Value(key)
	}
	return nil
}

// RouteKey is the key of a Router in a context. A guard puts one into the context that it acquires
// locks with, and core asks it when someone looks at the locks.
type RouteKey struct{}

// A Router says what a lock is held for.
type Router interface {
	// Route returns the Route of a core.Annotation: the method and the pattern of the request, such
	// as "POST /orders/{id}", or an empty string if no route was matched.
	Route() string
}
