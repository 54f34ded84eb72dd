package core

// An Annotation says for which request a lock is held or waited for. Options.Annotate returns it.
// Empty fields are unknown.
type Annotation struct {
	Route     string // such as "POST /orders/{id}"; a guard fills it in
	RequestID string
	TraceID   string
}
