package lua

import (
	_ "embed"
	"time"
)

//go:embed enter.lua
var enterSource string

var enter = script("enter", enterSource, acquires)

// An Entry is how a guest enters the hold of another owner.
type Entry struct {
	Key     string
	Timeout string // of a read side: time-out key of the guest's first read level; "": none
	Host    string // field of the hold that it is the guest of
	Guest   string // field of the guest
}

// Enter enters a lock as the guest of a hold; see enter.lua. ReadAcquire reads its reply.
func Enter(e Entry, lease time.Duration) Call {
	c := call(enter, 2, 3)
	if e.Timeout == "" {
		c = call(enter, 1, 3)
		c.add(e.Key)
	} else {
		c.add(e.Key, e.Timeout)
	}
	c.add(e.Host, e.Guest, lease.Milliseconds())
	return c
}
