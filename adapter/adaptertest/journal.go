package adaptertest

import (
	"bytes"
	"strings"
	"sync"
)

// A journal is a log that can be read while it is written to.
type journal struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (j *journal) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.buf.Write(p)
}

func (j *journal) text() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.buf.String()
}

// count returns how many lines contain word.
func (j *journal) count(word string) (n int) {
	for line := range strings.Lines(j.text()) {
		if strings.Contains(line, word) {
			n++
		}
	}
	return n
}
