package section

import (
	"net/http"
	"sync"
	"time"

	"github.com/reqlock/reqlock/internal/request"
)

// An Answer ends the writing of the answer to one request. All guards of the request share it: the
// connection has one write deadline, and goes on with the server's only when no guard ends it.
type Answer struct {
	// server is when Server.WriteTimeout ends. Zero: it never does.
	server time.Time

	mu    sync.Mutex
	parts map[*Section]part
}

// A part is what one section has of an answer.
type part struct {
	// deadline sets the write deadline of the connection.
	deadline func(time.Time) error
	ended    bool
}

// NewAnswer returns the Answer to a request that was received at that time. server may be nil.
func NewAnswer(server *http.Server, received time.Time) *Answer {
	a := &Answer{parts: make(map[*Section]part)}
	if server != nil && server.WriteTimeout > 0 {
		a.server = received.Add(server.WriteTimeout)
	}
	return a
}

// Enter lets s end the answer, until Leave. It must be called before the handler runs. It has no
// effect if the writer of the connection has no deadlines.
func (a *Answer) Enter(s *Section, w http.ResponseWriter) {
	conn, ok := request.Innermost[interface{ SetWriteDeadline(time.Time) error }](w)
	if !ok {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.parts[s] = part{deadline: conn.SetWriteDeadline}
}

// End lets all writing of the answer fail, including a Write that is under way, until s leaves.
func (a *Answer) End(s *Section) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if p, entered := a.parts[s]; entered {
		a.parts[s] = part{p.deadline, true}
		_ = p.deadline(time.Now()) // fails only if the connection is gone
	}
}

// Leave takes back what End has done, unless another section has ended the answer too. What HTTP/2
// has ended stays so.
func (a *Answer) Leave(s *Section) {
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
