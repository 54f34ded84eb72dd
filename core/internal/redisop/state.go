package redisop

import "github.com/reqlock/reqlock/core/internal/machine"

// A state is that of an operation.
type state uint8

const (
	prepared state = iota
	sent
	left
	ended
)

func (s state) String() string { return [...]string{"prepared", "sent", "left", "ended"}[s] }

var opStates = machine.New("an operation",
	machine.Transition[state]{From: prepared, To: sent, When: "Run"},
	machine.Transition[state]{From: sent, To: prepared, When: "no reply, or Redis asks for another try (TRYAGAIN, LOADING), or the connection leads " +
		"to a replica (READONLY): it is sent again after a pause"},
	machine.Transition[state]{From: sent, To: ended, When: "a reply that ends it, or its time is over, or its caller has gone and it was not written yet"},
	machine.Transition[state]{From: sent, To: left, When: "its caller has gone, and Await reads the reply"},
	machine.Transition[state]{From: left, To: ended, When: "the reply has arrived, or will not come"},
	machine.Transition[state]{From: prepared, To: ended, When: "its server is known to be silent, or between two tries its time is over or its caller has gone"},
	machine.Transition[state]{From: ended, To: prepared, When: "another call takes its place, before the same deadline"},
)

func (x *Op) move(to state) { opStates.Move(&x.state, to) }
