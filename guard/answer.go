package guard

import (
	"net/http"
	"sync"
	"time"

	"github.com/reqlock/reqlock/internal/request"
)

// An answer ends the writing of the answer to one request. All guards of the request share it: the
// connection has one write deadline, and goes on with the server's only when no guard ends it.
type answer struct {
	// server is when Server.WriteTimeout ends. Zero: it never does.
	server time.Time

	mu    sync.Mutex
	parts map[*section]answerPart
}

// An answerPart is what one section has of an answer.
type answerPart struct {
	// deadline sets the write deadline of the connection.
	deadline func(time.Time) error
	ended    bool
}

// newAnswer returns the answer to a request that was received at that time. server may be nil.
func newAnswer(server *http.Server, received time.Time) *answer {
	a := &answer{parts: make(map[*section]answerPart)}
	if server != nil && server.WriteTimeout > 0 {
		a.server = received.Add(server.WriteTimeout)
	}
	return a
}

// enter lets s end the answer, until leave. It must be called before the handler runs. It has no
// effect if the writer of the connection has no deadlines.
func (a *answer) enter(s *section, w http.ResponseWriter) {
	conn, ok := request.Innermost[interface{ SetWriteDeadline(time.Time) error }](w)
	if !ok {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.parts[s] = answerPart{deadline: conn.SetWriteDeadline}
}

// end lets all writing of the answer fail, including a Write that is under way, until s leaves.
func (a *answer) end(s *section) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if p, entered := a.parts[s]; entered {
		a.parts[s] = answerPart{p.deadline, true}
		_ = p.deadline(time.Now()) // fails only if the connection is gone
	}
}

// leave takes back what end has done, unless another section has ended the answer too. What HTTP/2
// has ended stays so.
func (a *answer) leave(s *section) {
	a.mu.Lock()
	defer a.mu.Unlock()
	p := a.parts[s]
	delete(a.parts, s)
	if !p.ended {
		return
	}
	for _, other := range a.parts {
		if other.ended {
			return
		}
	}
	_ = p.deadline(a.server) // fails only if the connection is gone
}
