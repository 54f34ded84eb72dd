//go:build !linux

package redistest

import (
	"bytes"
	"os/exec"
	"strconv"
	"syscall"
)

// dieWithParent returns nil: on this system a server outlives a killed test binary.
func dieWithParent() *syscall.SysProcAttr {
	return nil
}

// stopped reports whether the process is stopped by a signal.
func stopped(pid int) (bool, error) {
	state, err := exec.Command("ps", "-o", "state=", "-p", strconv.Itoa(pid)).Output()
	return bytes.HasPrefix(bytes.TrimSpace(state), []byte("T")), err
}
