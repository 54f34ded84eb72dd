package core

// An Annotation says for which request a lock is held or waited for. Options.Annotate returns it.
// Empty fields are unknown.
type Annotation struct {
	Route     string // such as "POST /orders/{id}"; a guard fills it in
	RequestID string
	TraceID   string
}

// all yields the fields that are known, as the log names them.
func (a Annotation) all(yield func(name, value string) bool) {
	for _, f := range [][2]string{{"route", a.Route}, {"request_id", a.RequestID}, {"trace_id", a.TraceID}} {
		if f[1] != "" && !yield(f[0], f[1]) {
			return
		}
	}
}

// Annotates reports whether Options.Annotate is set. Without it, no request has an ID in the log, in
// Losses, Holds and Waits.
func (c *Client) Annotates() bool { return c.opts.Annotate != nil }
