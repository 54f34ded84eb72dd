package redistest

import (
	"slices"
	"strings"
	"sync"
)

const journalLength = 100_000

// journal records the commands that have arrived.
type journal struct {
	mu     sync.Mutex
	total  int
	counts map[string]int
	// names are at least the last journalLength ones.
	names []string
}

func newJournal() *journal {
	return &journal{counts: make(map[string]int)}
}

func (j *journal) note(cmd string) {
	cmd = strings.ToUpper(cmd)
	j.mu.Lock()
	defer j.mu.Unlock()
	j.total++
	j.counts[cmd]++
	if j.names = append(j.names, cmd); len(j.names) >= 2*journalLength {
		j.names = slices.Clone(j.names[len(j.names)-journalLength:])
	}
}

func (j *journal) count(cmd string) int {
	j.mu.Lock()
	defer j.mu.Unlock()
	if cmd == "" {
		return j.total
	}
	return j.counts[strings.ToUpper(cmd)]
}

func (j *journal) last() []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Clone(j.names[max(0, len(j.names)-journalLength):])
}
