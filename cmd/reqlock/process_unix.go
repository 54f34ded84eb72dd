//go:build unix

package main

import (
	"os"
	"os/exec"
	"syscall"
	"time"
)

// A process is a command that runs under a lock.
type process struct {
	*exec.Cmd
	// group is true if the command leads a process group, which gets its signals.
	group bool
}

func (p *process) prepare(onLost string) {
	p.SysProcAttr = &syscall.SysProcAttr{Setpgid: p.group}
	endWithParent(p.SysProcAttr, onLost)
}

// passOn passes a signal on. A terminal sends Ctrl-C to both.
func (p *process) passOn(sig os.Signal) {
	if p.group || sig != os.Interrupt {
		p.send(sig.(syscall.Signal))
	}
}

// terminate reports whether it can ask the command to end.
func (p *process) terminate() bool {
	p.send(syscall.SIGTERM)
	return true
}

func (p *process) kill() { p.send(syscall.SIGKILL) }

// finish waits for what the command has left in its group, and kills it when it is overdue.
func (p *process) finish(overdue <-chan time.Time) {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for p.group && syscall.Kill(-p.Process.Pid, 0) == nil {
		select {
		case <-tick.C:
		case <-overdue:
			p.kill()
			return
		}
	}
}

// send fails only if the command has ended.
func (p *process) send(sig syscall.Signal) {
	if p.group {
		_ = syscall.Kill(-p.Process.Pid, sig)
		return
	}
	_ = p.Process.Signal(sig)
}

// exitCode is the exit code as shells have it.
func (p *process) exitCode() int {
	if status, ok := p.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return 128 + int(status.Signal())
	}
	return p.ProcessState.ExitCode()
}
