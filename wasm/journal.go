package wasm

import (
	"bytes"
	"context"
	"log/slog"
	"sync"
	"time"
)

// maxLines is how many lines a plugin may log in a second.
const maxLines = 50

// A journal is a plugin's way to the log. It is bounded, whatever guests say: lines of maxText, and of what calls say maxLines a
// second.
type journal struct {
	logger *slog.Logger

	mu      sync.Mutex
	second  time.Time // when the current one began
	lines   int       // in it
	dropped int       // since the last line that was let through
}

func newJournal(logger *slog.Logger, plugin string) *journal {
	return &journal{logger: logger.With("plugin", plugin)}
}

// announce logs what comes of a load, not of calls: it is said, however much calls say.
func (j *journal) announce(level slog.Level, message, text string) {
	j.logger.Log(context.Background(), level, message, "text", loggable(text))
}

// say logs what comes of calls. A guest can have shaped the text.
func (j *journal) say(level slog.Level, message, text string) {
	if !j.enabled(level) {
		return
	}
	dropped, ok := j.admit(time.Now())
	if !ok {
		return
	}
	attrs := []any{"text", loggable(text)}
	if dropped > 0 {
		attrs = append(attrs, "dropped", dropped)
	}
	j.logger.Log(context.Background(), level, message, attrs...)
}

func (j *journal) enabled(level slog.Level) bool {
	return j.logger.Enabled(context.Background(), level)
}

// admit says whether there is room for a line, and how many were dropped since the last.
func (j *journal) admit(now time.Time) (dropped int, ok bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if now.Sub(j.second) >= time.Second {
		j.second, j.lines = now, 0
	}
	if j.lines == maxLines {
		j.dropped++
		return 0, false
	}
	j.lines++
	dropped, j.dropped = j.dropped, 0
	return dropped, true
}

// An output is a guest's standard output or error. It becomes one line in the log for each of its own; what is left without an
// end is one as well when the call is over. It belongs to one instance, and is written to by one goroutine at a time.
type output struct {
	journal  *journal
	name     string
	deadline *deadline
	partial  []byte
}

// maxWrite is how many bytes of one write are looked at.
const maxWrite = 64 << 10

// Write ends with the deadline: WASI's fd_write takes any number of buffers, and calls it for each of them before the guest can be
// stopped.
func (o *output) Write(p []byte) (int, error) {
	if err := o.deadline.Err(); err != nil {
		return 0, err
	}
	for rest := p[:min(len(p), maxWrite)]; len(rest) > 0; {
		line, after, ended := bytes.Cut(rest, []byte{'\n'})
		room := maxText - len(o.partial)
		o.partial = append(o.partial, line[:min(len(line), room)]...) // the rest of a longer one is lost
		if ended {
			o.flush()
		}
		rest = after
	}
	return len(p), nil
}

func (o *output) flush() {
	if len(o.partial) > 0 {
		o.journal.say(slog.LevelWarn, "reqlock: wasm: the guest writes to "+o.name, string(o.partial))
	}
	o.partial = o.partial[:0]
}
