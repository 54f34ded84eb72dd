// Package adapter has the functions that the adapter of a web framework needs in addition to
// packages guard and idempotency. Those of this repository use nothing else. Package adaptertest
// checks an adapter.
//
// For each request, an adapter for locks
//
//   - goes on without a guard if the framework has not matched a route,
//   - copies what the router has matched into the request with [SetRoute], so that
//     keyfuncs.PathValue and keyfuncs.Pattern work as in every framework, with the path of
//     [Spelling.Canonical] if the router ignores case or a slash at the end,
//   - calls guard.Guard.Serve with that copy and the framework's http.ResponseWriter. In next, it
//     hands the handler the request that next was given, whose context ends when the lock is lost,
//     and calls guard.SetStatus when the handler has returned,
//   - puts the framework's original request back, and calls [KeepForm],
//   - stops the framework's chain if next was not called: the guard has answered.
//
// The handler must have returned when next returns: the guard releases the lock then. A panic must
// pass through. An adapter for idempotency calls idempotency.Guard.Serve in the same way, and has
// the handler write to Recorder.Wrap of the writer.
//
// A framework whose handlers have a context that does not hand on the values of the request's
// context needs [RegisterContext] as well.
package adapter
