package idempotency

import (
	"bytes"
	"sync"

	"github.com/reqlock/reqlock/internal/request"
)

// answers are the recorded answers that this process is sending, each of them once, however many
// repeats get it. They count towards the budget for bodies.
//
//	stored -> sending   take, for its first repeat
//	sending -> sending  take, for another repeat of the same record; drop, if others still send it
//	sending -> gone     drop, by the last repeat
type answers struct {
	sealed bool // A record is in memory twice: as stored, and opened.
	mu     sync.Mutex
	byName map[string]*answer // nil: none is sent
}

// An answer is a record that repeats are sending. All but its users is constant.
type answer struct {
	name string
	// data is the record as Redis has it.
	data    []byte
	rec     *record
	account request.Account
	users   int // The mutex of answers guards it.
}

// take returns the answer in data, which open decodes unless it is being sent already. The caller
// must drop it.
func (s *answers) take(name string, data []byte, open func([]byte) (*record, error)) (*answer, error) {
	if a := s.join(name, data); a != nil {
		return a, nil
	}
	rec, err := open(data)
	if err != nil {
		return nil, err
	}
	own := &answer{name: name, data: data, rec: rec}
	size := len(data)
	if s.sealed {
		size += len(rec.body)
	}
	if err := own.account.Hold(size); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if a := s.joinLocked(name, data); a != nil { // another repeat was faster
		own.account.Close()
		return a, nil
	}
	if s.byName == nil {
		s.byName = make(map[string]*answer)
	}
	own.users = 1
	s.byName[name] = own // in place of an older record of the name, which its users go on sending
	return own, nil
}

func (s *answers) join(name string, data []byte) *answer {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.joinLocked(name, data)
}

func (s *answers) joinLocked(name string, data []byte) *answer {
	a := s.byName[name]
	if a == nil || !bytes.Equal(a.data, data) {
		return nil
	}
	a.users++
	return a
}

// drop ends the use of an answer by one repeat.
func (s *answers) drop(a *answer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if a.users--; a.users > 0 {
		return
	}
	a.account.Close()
	if s.byName[a.name] == a {
		delete(s.byName, a.name)
	}
}
