//go:build !linux

package redistest

import (
	"bytes"
	"os/exec"
	"strconv"
	"syscall"
)

// dieWithParent has nothing to offer here: a server outlives a test binary that is killed.
func dieWithParent() *syscall.SysProcAttr {
	return nil
}

// stopped says whether the process is stopped by a signal.
func stopped(pid int) (bool, error) {
	state, err := exec.Command("ps", "-o", "state=", "-p", strconv.Itoa(pid)).Output()
	return bytes.HasPrefix(bytes.TrimSpace(state), []byte("T")), err
}
