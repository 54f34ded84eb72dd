//go:build !unix

package main

import (
	"os"
	"os/exec"
	"time"
)

// A process is a command that runs under a lock. Windows sends Ctrl-C and the end of the console to
// the command itself, and has no other signals.
type process struct {
	*exec.Cmd
	group bool
}

func (p *process) prepare(string)          {}
func (p *process) passOn(os.Signal)        {}
func (p *process) terminate() bool         { return false }
func (p *process) kill()                   { _ = p.Process.Kill() }
func (p *process) finish(<-chan time.Time) {}
func (p *process) exitCode() int           { return p.ProcessState.ExitCode() }
