package histories

import "golang.org/x/sys/unix"

// now returns the time on the monotonic clock that all processes of the machine share.
func now() int64 {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &t); err != nil {
		panic(err) // the clock exists on every Unix
	}
	return t.Nano()
}
