package adaptertest

import (
	"bytes"
	"strings"
	"sync"
)

// A testLog is a log that can be read while it is written to.
type testLog struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (j *testLog) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.buf.Write(p)
}

func (j *testLog) text() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.buf.String()
}

// count returns how many lines contain word.
func (j *testLog) count(word string) (n int) {
	for line := range strings.Lines(j.text()) {
		if strings.Contains(line, word) {
			n++
		}
	}
	return n
}
