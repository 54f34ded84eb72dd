package redisop

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/reqlock/reqlock/core/internal/batch"
	"github.com/reqlock/reqlock/core/internal/clock"
	"github.com/reqlock/reqlock/core/internal/lua"
)

// silences are the servers that have not answered for a whole CommandTimeout. Attempts to acquire on
// them fail at once, while a probe asks once a second. Holders go on trying: they have a lock to
// free or to renew. Any answer ends the silence of its server.
//
//	answering -> suspected   a try was not answered
//	suspected -> silent      the server was not heard for CommandTimeout since that try was sent
//	suspected -> answering   the server is heard, or was not asked for CommandTimeout
//	silent    -> answering   the server is heard, on any connection
//	silent    -> answering   no caller has asked for askedWithin: the next attempt finds out
type silences struct {
	r *Runner
	// n counts silent servers, so that callers need no mutex when there are none.
	n  atomic.Int32
	mu sync.Mutex
	of map[any]*silence
}

// A silence is one server's.
type silence struct {
	// began is when the first try was sent that was not answered.
	began clock.Moment
	// asked is when an operation last ended, or was refused.
	asked clock.Moment
	// proven is true if the server is silent, and a probe asks it.
	proven bool
	// fault is why the server seems silent. The pool may have no connection to ask it on.
	fault *Fault

	// known is closed when the server was asked once more before that. nil: it is not asked.
	known chan struct{}
}

const (
	// probePause is the time between two probes, and how long each waits for an answer.
	probePause = time.Second
	// confirmTime is how long a server has to answer before it counts as silent, on another
	// connection than the one that did not.
	confirmTime = 100 * time.Millisecond
	// askedWithin is how long the probe goes on after the last attempt to acquire.
	askedWithin = 10 * time.Second
)

// A silentError is the error of an attempt that was not sent. It matches ErrTimeout.
type silentError struct{ lasted time.Duration }

func (e *silentError) Error() string {
	return fmt.Sprintf("no reply from Redis for %s; it is asked once a second", e.lasted.Round(time.Millisecond))
}

func (e *silentError) Is(target error) bool { return target == ErrTimeout }

// refuse returns an error if the call would only wait for a server that is silent.
func (s *silences) refuse(c *batch.Call) error {
	if s.n.Load() == 0 {
		return nil
	}
	server, heard := s.r.batcher.Heard(c)
	s.mu.Lock()
	defer s.mu.Unlock()
	silent := s.of[server]
	if silent == nil || !silent.proven || heard > silent.began {
		return nil // the probe removes it
	}
	silent.asked = clock.Now()
	err := &silentError{silent.asked.Since(silent.began)}
	if silent.fault != faultSilent {
		return &FaultError{silent.fault, err}
	}
	return err
}

// note records that a try of an operation was not answered. sent is when the operation began. The
// channel is closed when it is known whether the server is silent. nil: there is nothing to find out.
func (s *silences) note(c *batch.Call, sent clock.Moment, f *Fault) <-chan struct{} {
	server, heard := s.r.batcher.Heard(c)
	if server == nil || heard >= sent {
		return nil
	}
	now := clock.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	silent := s.suspectLocked(server, heard, sent)
	silent.asked, silent.fault = now, f
	if silent.proven || now.Since(silent.began) < s.r.cfg.Timeout-leastTry {
		return nil
	}
	if silent.known == nil {
		key := c.Key()
		if !s.r.cfg.Background(func() { s.confirm(server, key, silent) }) {
			return nil
		}
		silent.known = make(chan struct{})
	}
	return silent.known
}

// confirm asks a suspected server once more, because it may have been one connection that failed.
// It probes the server if that is silent.
func (s *silences) confirm(server any, key string, silent *silence) {
	if s.judge(server, silent, s.ask(key, confirmTime)) {
		s.probe(server, key)
	}
}

// judge reports whether a suspected server is silent, and tells those who wait to know.
func (s *silences) judge(server any, silent *silence, answers bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(silent.known)
	silent.known = nil
	if answers || s.of[server] != silent {
		return false
	}
	silent.proven = true
	s.n.Add(1)
	return true
}

// suspectLocked returns the silence of a server, and begins a new one unless the server was asked
// all the time and never heard. It forgets other servers that were only suspected.
func (s *silences) suspectLocked(server any, heard, sent clock.Moment) *silence {
	for other, silent := range s.of {
		if old := sent.Since(silent.asked) > s.r.cfg.Timeout; !silent.proven && old {
			delete(s.of, other)
		}
	}
	silent := s.of[server]
	if silent == nil || !silent.proven && heard > silent.began {
		silent = &silence{began: sent}
		s.of[server] = silent
	}
	return silent
}

// probe asks a silent server until it answers, no caller has asked for a while, or the client closes.
func (s *silences) probe(server any, key string) {
	tick := time.NewTicker(probePause)
	defer tick.Stop()
	for !s.over(server) {
		if s.ask(key, probePause) {
			break
		}
		select {
		case <-tick.C:
		case <-s.r.cfg.Closing:
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.of, server)
	s.n.Add(-1)
}

// over reports whether a server need not be asked any more.
func (s *silences) over(server any) bool {
	select {
	case <-s.r.cfg.Closing:
		return true
	default:
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return clock.Now().Since(s.of[server].asked) > askedWithin
}

// ask sends a script that changes nothing, and reports whether it was answered.
func (s *silences) ask(key string, within time.Duration) bool {
	now := time.Now()
	c := batch.Call{Call: lua.Probe(key), Deadline: now.Add(within), Reply: make(chan batch.Reply, 1)}
	s.r.batcher.Send(&c, now)
	select {
	case r := <-c.Reply:
		s.r.slots.refreshAfter(s.r.classify(r.Err).end, r.Err) // another node may have taken over
		return r.Err == nil || IsAnswer(r.Err)
	case <-s.r.cfg.Closing:
		if !s.r.batcher.Withdraw(&c) {
			<-c.Reply
		}
		return false
	}
}
