package histories

import "golang.org/x/sys/unix"

// now returns the time on the monotonic clock, which all processes of a machine share.
func now() int64 {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &t); err != nil {
		panic(err) // every Unix has this clock
	}
	return t.Nano()
}
