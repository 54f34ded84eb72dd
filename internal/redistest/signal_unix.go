//go:build unix

package redistest

import "syscall"

// What stops a process, and has it go on.
const (
	StopSignal     = syscall.SIGSTOP
	ContinueSignal = syscall.SIGCONT
)
