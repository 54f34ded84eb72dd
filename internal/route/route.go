// Package route lets a lock tell on behalf of which route it is held. A guard puts a Route into the
// context that it acquires locks with, and core asks it when someone looks at the locks.
package route

// Key is the key of a Route in a context.
type Key struct{}

// A Route is the value in the context.
type Route interface {
	// Route returns the method and the pattern of the request, such as "POST /orders/{id}", or an
	// empty string if no route was matched.
	Route() string
}
