//go:build !unix

package redistest

import "os"

// This system has no such signals: sending one fails.
const (
	StopSignal     = noSignal("stop")
	ContinueSignal = noSignal("continue")
)

type noSignal string

func (s noSignal) String() string { return string(s) }
func (noSignal) Signal()          {}

var _ os.Signal = noSignal("")
