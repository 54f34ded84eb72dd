package locktest

import "sync/atomic"

// A Twice is a request that is sent twice.
type Twice struct {
	Path string
	Send func() Answer
	Runs *atomic.Int64
	// Mark is the header of an answer that no run of the handler has made, and Value its value.
	Mark, Value string
}

// WantTwice checks the first answer, and returns it. If one is true, the second answer comes from no run and is the
// same but for the mark; otherwise it is the same, from another run.
func (s *Server) WantTwice(x Twice, status int, body string, one bool) (first Answer) {
	s.Helper()
	x.Runs.Store(0)
	first, again := x.Send(), x.Send()
	if first.Status != status || first.Body != body || first.Header.Get(x.Mark) != "" {
		s.Errorf("%s: answer %v, want %d %q", x.Path, first, status, body)
	}
	runs := int64(2)
	if one {
		runs = 1
		first.Header.Set(x.Mark, x.Value)
	}
	if !again.Equal(first) {
		s.Errorf("%s: the second request gets\n%v, want\n%v", x.Path, again, first)
	}
	if x.Runs.Load() != runs {
		s.Errorf("%s: the handler ran %d times, want %d", x.Path, x.Runs.Load(), runs)
	}
	return first
}

// Shared is a GET whose second answer is that of the first, by coalesce.
func (s *Server) Shared(path string, runs *atomic.Int64) Twice {
	return Twice{path, func() Answer { return s.Do(s.NewRequest("GET", path, "")) }, runs, "Reqlock-Shared", "1"}
}

// Repeated is a POST with one idempotency key.
func (s *Server) Repeated(path string, runs *atomic.Int64) Twice {
	return Twice{path, func() Answer { return s.PostWithKey(path, path) }, runs, "Idempotent-Replayed", "true"}
}
