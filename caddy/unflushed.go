package caddylock

import (
	"io"
	"mime"
	"net/http"

	"github.com/felixge/httpsnoop"
)

// unflushed returns a writer that drops flushes of the first limit bytes, except for a stream of
// events. Caddy flushes every answer without a Content-Length after each write, and a recorder lets
// a flushed answer pass, so it would record only answers with a Content-Length.
func unflushed(w http.ResponseWriter, limit int64) http.ResponseWriter {
	written := int64(0)
	wanted := func() bool { return written > limit || isStream(w.Header()) }
	return httpsnoop.Wrap(w, httpsnoop.Hooks{
		Write: func(next httpsnoop.WriteFunc) httpsnoop.WriteFunc {
			return func(p []byte) (int, error) {
				n, err := next(p)
				written += int64(n)
				return n, err
			}
		},
		WriteString: func(next httpsnoop.WriteStringFunc) httpsnoop.WriteStringFunc {
			return func(s string) (int, error) {
				n, err := next(s)
				written += int64(n)
				return n, err
			}
		},
		ReadFrom: func(next httpsnoop.ReadFromFunc) httpsnoop.ReadFromFunc {
			return func(src io.Reader) (int64, error) {
				n, err := next(src)
				written += n
				return n, err
			}
		},
		Flush: func(next httpsnoop.FlushFunc) httpsnoop.FlushFunc {
			return func() {
				if wanted() {
					next()
				}
			}
		},
		FlushError: func(next httpsnoop.FlushErrorFunc) httpsnoop.FlushErrorFunc {
			return func() error {
				if wanted() {
					return next()
				}
				return nil
			}
		},
	})
}

// isStream reports whether each part of an answer is awaited.
func isStream(answer http.Header) bool {
	kind, _, _ := mime.ParseMediaType(answer.Get("Content-Type"))
	return kind == "text/event-stream"
}
