package wasm

import (
	"time"

	"golang.org/x/sys/unix"
)

// processorTime returns the time for which this thread has run. The caller is locked to it.
func processorTime() (time.Duration, bool) {
	var ran unix.Timespec
	err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &ran)
	return time.Duration(ran.Nano()), err == nil
}
