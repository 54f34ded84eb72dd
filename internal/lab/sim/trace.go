package sim

import (
	"fmt"
	"hash/fnv"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/reqlock/reqlock/internal/lab/memredis"
)

// A trace is the log of a simulation. Its lines are formatted only when it is printed.
type trace struct {
	mu    sync.Mutex
	lines []line
}

type line struct {
	at     time.Duration
	source string
	format string
	args   []any
}

func (t *trace) add(l line) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.lines = append(t.lines, l)
}

func stamp(at time.Duration) string {
	return fmt.Sprintf("%d.%06d", at/time.Second, at%time.Second/time.Microsecond)
}

func (l line) String() string {
	return fmt.Sprintf("%14s  %-12s %s", stamp(l.at), l.source, fmt.Sprintf(l.format, l.args...))
}

// print writes the lines about the given locks, and those about no lock, such as faults.
func (t *trace) print(to io.Writer, about []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	var all []string
	for i, l := range t.lines {
		text := l.String()
		if i > 0 && !concerns(text, about) {
			continue
		}
		all = append(all, text)
	}
	if cut := len(all) - tracedLines; cut > 0 {
		fmt.Fprintf(to, "%s\n… %d lines are left out\n", all[0], cut)
		all = all[cut:]
	}
	for _, text := range all {
		fmt.Fprintln(to, text)
	}
}

// tracedLines is how many lines of a trace are printed. Tests set it.
var tracedLines = 400

// concerns reports whether a line names one of the given locks, or no lock at all.
func concerns(text string, about []string) bool {
	if len(about) == 0 || !strings.Contains(text, "lock-") {
		return true
	}
	for _, name := range about {
		if strings.Contains(text, name) {
			return true
		}
	}
	return false
}

// digest returns a hash of the trace.
func (t *trace) digest() uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	h := fnv.New64a()
	for _, l := range t.lines {
		_, _ = io.WriteString(h, l.String())
	}
	return h.Sum64()
}

// note adds a line to the trace.
func (w *world) note(source, format string, args ...any) {
	w.trace.add(line{w.now(), source, format, args})
}

// log adds a command that a server executed to the trace.
func (w *world) log(n *node, c *conn, args []string, replies []any) {
	w.trace.add(line{w.now(), c.name, "%s", []any{exchange{args, replies}}})
}

// An exchange is a command with its replies.
type exchange struct {
	args    []string
	replies []any
}

func (x exchange) String() string {
	args := x.args
	words := args
	if name := strings.ToUpper(args[0]); name == "EVAL" || name == "EVALSHA" {
		sha := args[1]
		if name == "EVAL" {
			sha = memredis.SHA(sha)
		}
		script := ScriptName(sha)
		words = append([]string{script}, args[3:]...)
	}
	text := strings.Join(words, " ")
	for _, r := range x.replies {
		text += " -> " + formatReply(r)
	}
	return text
}

func formatReply(reply any) string {
	switch r := reply.(type) {
	case nil:
		return "nil"
	case memredis.Error:
		return "error " + string(r)
	}
	return fmt.Sprint(reply)
}

// ScriptName returns the name of a script in a trace. Tests set it.
var ScriptName = func(sha string) string { return "script-" + sha[:8] }
