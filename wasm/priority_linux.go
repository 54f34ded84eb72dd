package wasm

import (
	"os"
	"runtime"
	"syscall"
)

// lowerBy is what a thread that compiles a new version adds to its nice value: Linux then runs a
// thread with a request as soon as it wakes, in place of the compiler. More would serve requests
// hardly better. On a machine that lacks processors it would hold up the whole process, because a
// garbage collection waits until each running thread has got a processor once more.
const lowerBy = 5

// atLowPriority runs f on a thread of low priority. The thread ends with f, because only a
// privileged process can raise the priority again.
func atLowPriority(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // a goroutine that ends locked takes its thread along
		if syscall.Gettid() == os.Getpid() {
			atLowPriority(f) // on another thread: the main one cannot end
			runtime.UnlockOSThread()
			return
		}
		lowerPriority()
		f()
	}()
	<-done
}

// lowerPriority raises the nice value of this thread. A sandbox may refuse that, and then the
// priority stays.
func lowerPriority() {
	const thisThread = 0
	if priority, err := syscall.Getpriority(syscall.PRIO_PROCESS, thisThread); err == nil {
		nice := 20 - priority // the system call returns it like this, as a number above 0
		_ = syscall.Setpriority(syscall.PRIO_PROCESS, thisThread, min(nice+lowerBy, 19))
	}
}
