// Package annotation lets a context say what a lock is held for. A guard puts a Source into the
// context that it acquires locks with, and core asks it when someone looks at the locks.
package annotation

// Key is the key of a Source in a context.
type Key struct{}

// A Source is the value in the context.
type Source interface {
	// Route returns the Route of a core.Annotation: the method and the pattern of the request, such
	// as "POST /orders/{id}", or an empty string if no route was matched.
	Route() string
}
