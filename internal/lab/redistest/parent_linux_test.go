package redistest

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"
)

func TestServerDiesWithItsParent(t *testing.T) {
	t.Parallel()
	NeedsServer(t)
	binary, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	parent := exec.Command(binary)
	parent.Env = append(os.Environ(), parentVariable+"=yes")
	if _, err := parent.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := parent.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = parent.Process.Kill(); _ = parent.Wait() })

	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	var pid, port int
	var dir string
	if _, err := fmt.Sscan(line, &pid, &port, &dir); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	addr := fmt.Sprintf("127.0.0.1:%d", port)
	if _, err := ask(addr, "PING"); err != nil {
		t.Fatal(err)
	}
	if err := parent.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the server to die with its parent", func() bool {
		_, err := ask(addr, "PING")
		return err != nil
	})
	wantFreePort(t, port)
}
