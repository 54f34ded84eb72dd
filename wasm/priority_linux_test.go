package wasm

import (
	"os"
	"strconv"
	"sync"
	"syscall"
	"testing"
)

// nice returns the nice value of a thread; 0: the calling one.
func nice(t *testing.T, thread int) (value int, exists bool) {
	t.Helper()
	priority, err := syscall.Getpriority(syscall.PRIO_PROCESS, thread)
	if err != nil && err != syscall.ESRCH {
		t.Fatal(err)
	}
	return 20 - priority, err == nil
}

// A new version is compiled at low priority. No thread keeps it.
func TestReload_LowersPriority(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles for seconds")
	}
	usual, _ := nice(t, os.Getpid())
	lowered := func() (n int) {
		threads, err := os.ReadDir("/proc/self/task")
		if err != nil {
			t.Fatal(err)
		}
		for _, thread := range threads {
			id, _ := strconv.Atoi(thread.Name())
			if value, exists := nice(t, id); exists && value != usual {
				n++
			}
		}
		return n
	}
	f := watchFile(t, keyed(t, "a"))
	eventually(t, "the end of an earlier reload's thread", func() bool { return lowered() == 0 })
	f.replace(slow())
	eventually(t, "a thread of low priority", func() bool { return lowered() == 1 })
	f.awaitLog("new version of the plugin failed to load", 1) // it traps
	eventually(t, "the end of the thread", func() bool { return lowered() == 0 })
}

// The main thread, which cannot end, keeps its priority.
func TestAtLowPriority(t *testing.T) {
	t.Parallel()
	usual, _ := nice(t, os.Getpid())
	var threads sync.Map
	var calls sync.WaitGroup
	for range 100 {
		calls.Go(func() {
			atLowPriority(func() {
				if lower, _ := nice(t, 0); lower != min(usual+lowerBy, 19) {
					t.Errorf("the nice value is %d; that of the process is %d", lower, usual)
				}
				threads.Store(syscall.Gettid(), true)
			})
		})
	}
	calls.Wait()
	threads.Range(func(thread, _ any) bool {
		eventually(t, "the end of a thread", func() bool {
			value, exists := nice(t, thread.(int))
			return !exists || value == usual // another thread has its number by now
		})
		return true
	})
	if value, _ := nice(t, os.Getpid()); value != usual {
		t.Errorf("the main thread has the nice value %d; it was %d", value, usual)
	}
}
