//go:build unix

package redistest

import "syscall"

// The signals that suspend and resume a process.
const (
	StopSignal     = syscall.SIGSTOP
	ContinueSignal = syscall.SIGCONT
)
