package wasm

import (
	"bytes"
	"context"
	"log/slog"
	"sync"
	"time"
)

// maxLines limits the lines a plugin may log per second.
const maxLines = 50

// A journal is a plugin's log. It is bounded whatever guests write: lines have at most maxText
// bytes, and calls log at most maxLines a second.
type journal struct {
	// plugin names the plugin.
	plugin string
	logger *slog.Logger

	mu sync.Mutex
	// second is the start of the current second.
	second time.Time
	// lines counts the lines that were logged in it.
	lines int
	// dropped counts lines since the last one that was logged.
	dropped int
}

func newJournal(logger *slog.Logger, plugin string) *journal {
	return &journal{plugin: plugin, logger: logger.With("plugin", plugin)}
}

// announce logs the result of a load. It is not rate-limited.
func (j *journal) announce(level slog.Level, message, text string) {
	j.logger.Log(context.Background(), level, message, "text", loggable(text))
}

// say logs the result of a call, rate-limited. A guest may have written the text.
func (j *journal) say(level slog.Level, message, text string, more ...any) {
	if !j.enabled(level) {
		return
	}
	dropped, ok := j.admit(time.Now())
	if !ok {
		return
	}
	attrs := append([]any{"text", loggable(text)}, more...)
	if dropped > 0 {
		attrs = append(attrs, "dropped", dropped)
	}
	j.logger.Log(context.Background(), level, message, attrs...)
}

func (j *journal) enabled(level slog.Level) bool {
	return j.logger.Enabled(context.Background(), level)
}

// admit reports whether a line may be logged now, and how many were dropped since the last one.
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

// An output is a guest's standard output or error. Each line becomes a line in the log, as does an
// unfinished line at the end of the call. It belongs to one instance and is not safe for concurrent
// use.
type output struct {
	journal  *journal
	name     string
	deadline *deadline
	partial  []byte
}

// maxWrite limits how many bytes of one write are logged.
const maxWrite = 16 << 10

// write ends the guest after its deadline. WASI's fd_write takes any number of buffers and calls
// write for each, empty or not, before the guest itself looks at the deadline.
func (o *output) write(p []byte) {
	o.deadline.check()
	for rest := p[:min(len(p), maxWrite)]; len(rest) > 0; {
		line, after, ended := bytes.Cut(rest, []byte{'\n'})
		room := maxText - len(o.partial)
		// Drops the rest of a long line.
		o.partial = append(o.partial, line[:min(len(line), room)]...)
		if ended {
			o.flush()
		}
		rest = after
	}
}

func (o *output) flush() {
	if len(o.partial) > 0 {
		o.journal.say(slog.LevelWarn, "reqlock: wasm: guest output on "+o.name, string(o.partial))
	}
	o.partial = o.partial[:0]
}
