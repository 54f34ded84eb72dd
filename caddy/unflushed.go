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
	hooks := flushOnly(func() bool { return written > limit || isStream(w.Header()) })
	hooks.Write = func(next httpsnoop.WriteFunc) httpsnoop.WriteFunc {
		return func(p []byte) (int, error) {
			n, err := next(p)
			written += int64(n)
			return n, err
		}
	}
	hooks.WriteString = func(next httpsnoop.WriteStringFunc) httpsnoop.WriteStringFunc {
		return func(s string) (int, error) {
			n, err := next(s)
			written += int64(n)
			return n, err
		}
	}
	hooks.ReadFrom = func(next httpsnoop.ReadFromFunc) httpsnoop.ReadFromFunc {
		return func(src io.Reader) (int64, error) {
			n, err := next(src)
			written += n
			return n, err
		}
	}
	return httpsnoop.Wrap(w, hooks)
}

// flushOnly returns hooks that drop a flush unless it is wanted.
func flushOnly(wanted func() bool) httpsnoop.Hooks {
	return httpsnoop.Hooks{
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
	}
}

// isStream reports whether each part of an answer is awaited.
func isStream(answer http.Header) bool {
	kind, _, _ := mime.ParseMediaType(answer.Get("Content-Type"))
	return kind == "text/event-stream"
}
