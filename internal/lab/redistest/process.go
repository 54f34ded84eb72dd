package redistest

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
)

// process is one run of redis-server. A Server may have several, one after the other.
type process struct {
	*os.Process
	gone chan struct{} // closed when the process has ended
}

// spawn starts redis-server with dir/redis.conf. Output before it opens its log goes to dir/output.
func spawn(binary, dir string, flags ...string) (*process, error) {
	output, err := os.Create(filepath.Join(dir, outputFile))
	if err != nil {
		return nil, err
	}
	defer output.Close()
	cmd := exec.Command(binary, append([]string{filepath.Join(dir, configFile)}, flags...)...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, output, output
	cmd.SysProcAttr = dieWithParent()

	started := make(chan error)
	gone := make(chan struct{})
	go func() {
		// The kernel kills the server when the thread that forked it ends. Go may end any thread
		// that is not locked, so lock this one until the server is gone.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // the log says how it ended
			close(gone)
		}
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	return &process{Process: cmd.Process, gone: gone}, nil
}

func (p *process) alive() bool {
	select {
	case <-p.gone:
		return false
	default:
		return true
	}
}

// kill ends the process, frozen or not, and waits until it is gone.
func (p *process) kill() {
	_ = p.Kill() // fails only if it has already ended
	<-p.gone
}
