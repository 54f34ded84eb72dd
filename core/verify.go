package core

import (
	"slices"
	"sync"

	"github.com/reqlock/reqlock/core/internal/claim"
	"github.com/reqlock/reqlock/core/internal/lua"
	"github.com/reqlock/reqlock/core/internal/redisop"
	"github.com/reqlock/reqlock/core/internal/wire"
)

// hear handles a message that holders of a key were forced off. A grant whose reply has not been
// read may be one of them, so it is verified once the reply is there.
func (n *names) hear(key string) (holds bool) {
	s := n.shard(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.eachLocked(key, func(e *entry) {
		e.eachPendingLocked(func(w *waiter) { w.troubledLocked().hinted = true })
		holds = holds || e.holds.len > 0
	})
	return holds
}

// verify asks Redis which holds of a key it has, and ends the others with the cause. Only holds that
// were granted before the question count: the reply says nothing about later ones.
func (n *names) verify(key string, cause error) {
	for _, counted := range []bool{false, true} {
		for _, some := range together(n.heldOf(key, counted)) {
			verifyHolds(some, cause)
		}
	}
}

// together groups the holds that one command asks for. A guest that uses permits is in their family.
func together(holds []*hold) (groups [][]*hold) {
	var others []*hold
	for _, h := range holds {
		if h.kind.Permit != "" {
			groups = append(groups, []*hold{h})
		} else {
			others = append(others, h)
		}
	}
	return slices.AppendSeq(groups, slices.Chunk(others, lua.MostPresent/2))
}

func verifyHolds(holds []*hold, cause error) {
	eng := holds[0].engine()
	fields := make([]string, 0, 2*len(holds))
	for _, h := range holds {
		fields = append(fields, h.wire, wire.WriteField(h.wire)) // a writer may have either or both
	}
	x := eng.ops.Op(holds[0].kind.Present(holds[0].entry.key, fields), eng.opts.CommandTimeout).UntilSent()
	reply, err := x.Run(redisop.Until{})
	if err == ErrWrongKind {
		for _, h := range holds {
			h.loseIfHeld(errOverwritten)
		}
	}
	if err != nil {
		return // an error is not a loss: the next renewal or the deadline decides
	}
	there, err := lua.ReadPresent(reply, len(fields))
	if err != nil {
		return
	}
	for i, h := range holds {
		if !there[2*i] && !there[2*i+1] && h.loseIfHeld(cause) {
			eng.counters.forced.Add(1)
		}
	}
}

// heldOf returns the holds of a key that are neither released nor lost: of its lock, or of its
// semaphore.
func (n *names) heldOf(key string, counted bool) (holds []*hold) {
	s := n.shard(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.named(counted)[key]; e != nil {
		for h := e.holds.first; h != nil; h = h.next {
			if h.claim.State() == claim.Held {
				holds = append(holds, h)
			}
		}
	}
	return holds
}

// loseIfHeld ends a hold that Redis does not have, unless it is being released: then its own
// release may be why. It reports whether it did.
func (h *hold) loseIfHeld(cause error) bool {
	h.entry.open()
	var l loss
	if h.claim.State() == claim.Held {
		l = h.endLocked(cause)
	}
	h.entry.close()
	l.finish()
	return l.hold != nil
}

const (
	// fewKeys is how many keys are verified one by one. Beyond that, the watchdog renews all holds,
	// a hundred in one script.
	fewKeys = 100
	// verifiers is how many keys are verified at a time.
	verifiers = 16
)

// verifyAll verifies all holds. It leaves those that the watchdog renews to it if there are many.
func (n *names) verifyAll() {
	var keys, renewed []string
	var dog func()
	n.each(func(e *entry) {
		e.eachPendingLocked(func(w *waiter) { w.troubledLocked().hinted = true })
		switch {
		case e.holds.first == nil:
		case e.allRenewedLocked():
			renewed, dog = append(renewed, e.key), e.shard.dog.RenewAll
		default:
			keys = append(keys, e.key)
		}
	})
	if len(renewed) > fewKeys {
		dog()
	} else {
		keys = append(keys, renewed...)
	}

	todo := make(chan string, len(keys))
	for _, key := range keys {
		todo <- key
	}
	close(todo)
	var workers sync.WaitGroup
	for range min(verifiers, len(keys)) {
		workers.Go(func() {
			for key := range todo {
				n.verify(key, n.shard(key).engine.inbox.cause(key, errGone))
			}
		})
	}
	workers.Wait()
}

// allRenewedLocked reports whether the watchdog renews every hold.
func (e *entry) allRenewedLocked() bool {
	for h := e.holds.first; h != nil; h = h.next {
		if !h.armed {
			return false
		}
	}
	return true
}
