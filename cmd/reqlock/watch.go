package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"strings"
	"time"

	"github.com/reqlock/reqlock/inspect"
)

// watch is reqlock watch.
type watch struct {
	list
	every time.Duration
}

func (c *watch) flags(fs *flag.FlagSet) {
	c.list.flags(fs)
	fs.DurationVar(&c.every, "every", time.Second, "how often to look")
}

// stamp has the date and the zone: lines are read later, and beside logs in UTC.
const stamp = "2006-01-02 15:04:05 MST"

// A picture is what one look has found.
type picture struct {
	at    time.Time
	locks []inspect.Lock
	more  bool
	err   error
}

// A viewer shows pictures until ctx ends.
type viewer interface {
	show(p picture)
	close()
}

func (c *watch) run(ctx context.Context, s *session, args []string) error {
	opts, err := c.options(args)
	if err != nil {
		return err
	}
	if c.every < 10*time.Millisecond {
		return usageError("--every is %s; use at least 10ms", c.every)
	}
	return s.with(func(rdb *client) error {
		first := s.picture(ctx, rdb, opts)
		if first.err != nil {
			return first.err
		}
		empty, near := "no locks", false
		if len(first.locks) == 0 {
			ctx, cancel := s.bound(ctx)
			defer cancel()
			if empty, near, err = none(ctx, rdb, opts); err != nil {
				return err
			}
		}
		ctx, leave := context.WithCancel(ctx)
		defer leave()
		var v viewer
		switch {
		case !s.json && s.screen.terminal:
			v = newScreenViewer(s, rdb.String(), opts.Prefix, empty, leave)
		case s.json:
			v = &lineViewer{write: s.jsonLine}
		default:
			v = &lineViewer{write: s.textLine}
		}
		if _, lines := v.(*lineViewer); lines && near {
			fmt.Fprintln(s.err, empty)
		}
		defer v.close()
		v.show(first)
		tick := time.NewTicker(c.every)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
			case <-ctx.Done():
				return nil
			}
			p, ok := s.await(ctx, v, rdb, opts)
			if !ok {
				return nil
			}
			v.show(p)
		}
	})
}

// errSilent is shown while Redis takes long to answer.
var errSilent = errors.New("no reply so far")

// await looks at Redis, and shows each second that it waits. ok is false if ctx ends first. The
// look then ends within the timeout of the Redis client.
func (s *session) await(ctx context.Context, v viewer, rdb *client, opts inspect.ListOptions) (p picture, ok bool) {
	next := make(chan picture, 1)
	go func() { next <- s.picture(ctx, rdb, opts) }()
	late := time.NewTicker(time.Second)
	defer late.Stop()
	for {
		select {
		case p := <-next:
			return p, ctx.Err() == nil
		case now := <-late.C:
			if screen, ok := v.(*screenViewer); ok {
				screen.show(picture{at: now, err: errSilent})
			}
		case <-ctx.Done():
			return picture{}, false
		}
	}
}

func (s *session) picture(ctx context.Context, rdb *client, opts inspect.ListOptions) picture {
	ctx, cancel := s.bound(ctx)
	defer cancel()
	p := picture{at: time.Now()}
	p.locks, p.more, p.err = inspect.List(ctx, rdb.UniversalClient, opts)
	return p
}

// A screenViewer redraws a terminal. It uses the alternate screen, so that what was there comes
// back.
type screenViewer struct {
	s     *session
	title string
	// empty is shown while there are no locks.
	empty string
	// last is the last picture without an error.
	last    picture
	failed  time.Time
	restore func()
}

// newScreenViewer takes over the terminal, and calls leave when q or Ctrl-C is pressed.
func newScreenViewer(s *session, redis, prefix, empty string, leave func()) *screenViewer {
	title := "locks on " + redis
	if prefix != "" {
		title += " that begin with " + printable(prefix)
	}
	v := &screenViewer{s: s, title: title, empty: empty, restore: s.keys(leave)}
	fmt.Fprint(s.out, "\x1b[?1049h\x1b[?25l")
	return v
}

func (v *screenViewer) close() {
	fmt.Fprint(v.s.out, "\x1b[?25h\x1b[?1049l")
	v.restore()
}

func (v *screenViewer) show(p picture) {
	if p.err == nil {
		v.last, v.failed = p, time.Time{}
	} else if v.failed.IsZero() {
		v.failed = p.at
	}
	columns, rows := v.s.screen.size()
	lines := v.lines(p, columns)
	if rows > 0 && len(lines) > rows {
		hidden := len(lines) - rows + 1
		lines = append(lines[:rows-1], v.s.screen.paint(dim, fmt.Sprintf("and %d more; enlarge the window, or give a prefix", hidden)))
	}
	fmt.Fprint(v.s.out, "\x1b[H", strings.Join(lines, "\x1b[K\r\n"), "\x1b[K\x1b[J")
}

func (v *screenViewer) lines(p picture, columns int) []string {
	paint := v.s.screen.paint
	status := fmt.Sprintf("%s  q leaves  %s", v.last.at.Format(stamp), count(int64(len(v.last.locks)), "lock"))
	if v.last.more {
		status += " and more"
	}
	lines := []string{paint(bold, cut(v.title, max(columns-len(status)-2, narrowest))) + "  " + paint(dim, status)}
	if p.err != nil {
		lines = append(lines, paint(red, cut(fmt.Sprintf("no answer for %s: %s", short(p.at.Sub(v.failed).Milliseconds()),
			explain(p.err)), max(columns, narrowest))), paint(dim, "this is the last picture:"))
	} else {
		lines = append(lines, "")
	}
	if len(v.last.locks) == 0 {
		return append(lines, paint(dim, cut(v.empty, max(columns, narrowest))))
	}
	return append(lines, tableOf(v.last.locks).lines(v.s.screen, columns)...)
}

// A lineViewer prints what has changed since the last picture.
type lineViewer struct {
	write func(change)
	known map[string]inspect.Lock
	down  bool
	// cut is true if there are more locks than it sees.
	cut bool
}

// A change is one line of output.
type change struct {
	Time time.Time `json:"time"`
	// Event is "held", "passed", "changed", "freed", "failed", "answers", "cut" or "complete".
	Event string        `json:"event"`
	Lock  *inspect.Lock `json:"lock,omitempty"`
	Error string        `json:"error,omitempty"`
	// Seen is how many locks it sees, in "cut" and "complete".
	Seen int `json:"seen,omitempty"`
}

func (v *lineViewer) close() {}

func (v *lineViewer) show(p picture) {
	if p.err != nil {
		if !v.down {
			v.write(change{Time: p.at, Event: "failed", Error: explain(p.err)})
		}
		v.down = true
		return
	}
	if v.down {
		v.write(change{Time: p.at, Event: "answers"})
		v.down = false
	}
	if p.more != v.cut {
		event := "complete"
		if p.more {
			event = "cut"
		}
		v.write(change{Time: p.at, Event: event, Seen: len(p.locks)})
		v.cut = p.more
	}
	now := make(map[string]inspect.Lock)
	for _, l := range p.locks {
		now[l.Name] = l
		old, ok := v.known[l.Name]
		if event := eventOf(&old, &l, ok); event != "" {
			v.write(change{Time: p.at, Event: event, Lock: &l})
		}
	}
	for name, l := range v.known {
		if _, ok := now[name]; !ok && !p.more {
			l.Holders, l.TTL, l.Queue, l.Listeners = []inspect.Holder{}, 0, nil, 0
			if l.Semaphore != nil {
				l.Semaphore = &inspect.Semaphore{Permits: l.Permits, Free: max(l.Permits, 0)}
			}
			v.write(change{Time: p.at, Event: "freed", Lock: &l})
		}
	}
	v.known = now
}

// eventOf returns what has happened to a lock, or an empty string.
func eventOf(old, now *inspect.Lock, known bool) string {
	was, is := strings.Join(owners(old), " "), strings.Join(owners(now), " ")
	switch {
	case was == "" && is != "":
		return "held"
	case !known:
		return "changed" // a queue for a free lock
	case was != "" && is == "":
		return "freed"
	case was != is && now.Semaphore == nil:
		return "passed"
	case was != is || permits(old) != permits(now):
		return "changed" // an owner has come or gone, and others may stay
	case waiting(old) != waiting(now) || entered(old) != entered(now):
		return "changed"
	}
	return ""
}

func permits(l *inspect.Lock) int64 {
	if l.Semaphore == nil {
		return 0
	}
	return l.Permits
}

func (s *session) jsonLine(c change) {
	_ = json.NewEncoder(s.out).Encode(c)
}

func (s *session) textLine(c change) {
	at := c.Time.Format(stamp)
	switch {
	case c.Error != "":
		fmt.Fprintf(s.out, "%s failed   %s\n", at, c.Error)
	case c.Event == "cut":
		fmt.Fprintf(s.out, "%s cut      there are more locks than the %d watched, and none is reported as freed; give a longer prefix\n", at, c.Seen)
	case c.Event == "complete":
		fmt.Fprintf(s.out, "%s complete all locks are watched again\n", at)
	case c.Lock == nil:
		fmt.Fprintf(s.out, "%s answers  Redis answers again\n", at)
	default:
		fmt.Fprintf(s.out, "%s %-8s %s\n", at, c.Event, summary(c.Lock))
	}
}

// summary describes a lock in one line.
func summary(l *inspect.Lock) string {
	text := printable(l.Name) + " " + l.Kind
	if l.Held() {
		text += " by " + holders(l)
	}
	if l.Semaphore != nil {
		text += ", " + permitsText(l.Semaphore)
	} else if n := entered(l); n > 1 {
		text += fmt.Sprintf(", entered %d times", n)
	}
	if w := waiting(l); w != "0" {
		text += ", waiting " + w
	}
	return text
}
