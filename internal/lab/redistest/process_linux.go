package redistest

import (
	"bytes"
	"fmt"
	"os"
	"syscall"
)

// dieWithParent makes the kernel kill the process when the thread that forked it ends.
func dieWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}

// stopped reports whether the process is stopped by a signal.
func stopped(pid int) (bool, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false, err
	}
	// pid (name) state ...: the name may contain anything, so search after the last parenthesis.
	_, state, ok := bytes.Cut(stat[bytes.LastIndexByte(stat, ')')+1:], []byte(" "))
	if !ok || len(state) == 0 {
		return false, fmt.Errorf("redistest: cannot read the state in /proc/%d/stat: %q", pid, stat)
	}
	return state[0] == 'T', nil
}
