package request

import "net/http"

// Outermost returns the first T among w and the writers that it unwraps to, as
// http.ResponseController finds it. Call it before the handler runs: a handler may replace the
// writer inside another one, as in Echo, while another goroutine unwraps it.
func Outermost[T any](w http.ResponseWriter) (found T, ok bool) {
	for ; w != nil && !ok; w = inner(w) {
		found, ok = w.(T)
	}
	return found, ok
}

// Innermost returns the last T among w and the writers that it unwraps to: that of the server,
// which other goroutines may use while the handler writes. That of a middleware may have state.
// Call it before the handler runs, as Outermost.
func Innermost[T any](w http.ResponseWriter) (found T, ok bool) {
	for ; w != nil; w = inner(w) {
		if t, is := w.(T); is {
			found, ok = t, true
		}
	}
	return found, ok
}

// inner returns the writer that w unwraps to; nil: none.
func inner(w http.ResponseWriter) http.ResponseWriter {
	outer, ok := w.(interface{ Unwrap() http.ResponseWriter })
	if !ok {
		return nil
	}
	return outer.Unwrap()
}
