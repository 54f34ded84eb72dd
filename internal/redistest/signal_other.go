//go:build !unix

package redistest

import "os"

// There is nothing like that here: to send one fails.
const (
	StopSignal     = noSignal("stop")
	ContinueSignal = noSignal("continue")
)

type noSignal string

func (s noSignal) String() string { return string(s) }
func (noSignal) Signal()          {}

var _ os.Signal = noSignal("")
