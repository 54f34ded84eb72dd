package lua

import (
	_ "embed"
	"strconv"
	"time"
)

var (
	//go:embed latch_read.lua
	latchRead string
	//go:embed latch_set.lua
	latchSetSource string
	//go:embed latch_count_down.lua
	latchCountDownSource string
	//go:embed latch_count.lua
	latchCountSource string
	//go:embed latch_forget.lua
	latchForgetSource string

	latchSet       = script("latch_set", latchRead+latchSetSource, 0)
	latchCountDown = script("latch_count_down", latchRead+latchCountDownSource, 0)
	latchCount     = script("latch_count", latchRead+latchCountSource, 0)
	latchForget    = script("latch_forget", latchForgetSource, 0)
)

// A LatchMark is the key that tells later tries of one call from the first, and how long it stays.
type LatchMark struct {
	Key string
	TTL time.Duration
}

// LatchSet sets the count of a latch that has none; see latch_set.lua. ReadUpdate reads its reply,
// which is false if there was a count.
func LatchSet(key string, count int, m LatchMark, a Announcement) Call {
	c := call(latchSet, 2, 6)
	c.add(key, m.Key, count, m.TTL.Milliseconds())
	a.addTo(&c)
	return c
}

// LatchCountDown counts a latch down by one; see latch_count_down.lua. ReadUpdate reads its reply,
// which is false if there was no count.
func LatchCountDown(key string, m LatchMark, a Announcement) Call {
	c := call(latchCountDown, 2, 5)
	c.add(key, m.Key, m.TTL.Milliseconds())
	a.addTo(&c)
	return c
}

// LatchCount returns the count of a latch; see latch_count.lua. ReadLatchCount reads its reply.
func LatchCount(key string) Call {
	c := call(latchCount, 1, 0)
	c.add(key)
	return c
}

// LatchForget removes the mark of a call; see latch_forget.lua. ReadUpdate reads its reply.
func LatchForget(mark string) Call {
	c := call(latchForget, 1, 0)
	c.add(mark)
	return c
}

// ReadLatchCount reads the reply of a LatchCount call. A count below 0, which another program has
// made, is 0.
func ReadLatchCount(reply any) (int, error) {
	text, ok := reply.(string)
	if !ok {
		return 0, unexpected(latchCount, reply)
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		return 0, unexpected(latchCount, reply)
	}
	return max(0, n), nil
}
