package main

import (
	"context"
	"flag"
	"fmt"

	"github.com/reqlock/reqlock/inspect"
)

// show is reqlock show.
type show struct{}

func (*show) flags(*flag.FlagSet) {}

func (*show) run(ctx context.Context, s *session, args []string) error {
	return s.with(func(rdb *client) error {
		l, err := s.look(ctx, rdb, args[0])
		if err != nil {
			return err
		}
		if s.json {
			return s.print(l)
		}
		s.describe(l)
		return nil
	})
}

// describe prints all that is known about a lock.
func (s *session) describe(l *inspect.Lock) {
	fmt.Fprintln(s.out, s.screen.paint(bold, printable(l.Name)))
	facts := &table{}
	fact := func(name, text string) { facts.add(cell{"  " + name, dim}, cell{text, plain}) }
	fact("kind", kindText(l))
	fact("state", stateText(l))
	if l.Token > 0 {
		fact("token", fmt.Sprintf("%d, the last one drawn", l.Token))
	}
	if l.Record != nil {
		fact("record", recordText(l.Record))
	}
	fact("waiting", waitingText(l))
	if l.Stalled {
		facts.add(cell{"  fault", dim}, cell{firstInQueue(l) + " is " + l.Stall(), red})
		fact("", "drop it: "+dropCommand(l))
	}
	s.printTable(facts)
	if l.Held() {
		s.printTable(holderTable(l))
	}
	if len(l.Queue) > 0 {
		s.printTable(queueTable(l))
	}
}

// printTable prints a table; one with a heading has an empty line before it.
func (s *session) printTable(t *table) {
	if len(t.rows[0]) > 2 {
		fmt.Fprintln(s.out)
	}
	s.printLines(t)
}

func (s *session) printLines(t *table) {
	columns, _ := s.screen.size()
	for _, line := range t.lines(s.screen, columns) {
		fmt.Fprintln(s.out, line)
	}
}

func kindText(l *inspect.Lock) string {
	switch {
	case l.Kind == "once" && !l.Held():
		return "once, done"
	case l.Kind == "read":
		return "read/write lock, held for reading"
	case l.Kind == "write":
		return "read/write lock, held for writing"
	}
	return l.Kind
}

func stateText(l *inspect.Lock) string {
	switch {
	case l.Semaphore != nil:
		return permitsText(l.Semaphore)
	case l.TTL < 0:
		return "held, and it never expires: no holder can still be renewing it"
	case l.Held():
		return fmt.Sprintf("held, expires in %s unless its holder renews it", short(l.TTL))
	case l.Stalled:
		return "free, but the first in its queue does not take it"
	case len(l.Queue) > 0:
		return "free, and the first in its queue is about to take it"
	}
	return "free"
}

// firstInQueue names the process that is first in the queue.
func firstInQueue(l *inspect.Lock) string {
	return processOf(l.Queue[0].Client, l.Queue[0].Owner)
}

// dropCommand is the command that drops the first waiter of a lock.
func dropCommand(l *inspect.Lock) string {
	return fmt.Sprintf("reqlock unlock %s --waiter %s --reason TEXT", printable(l.Name), printable(l.Queue[0].Owner))
}

func permitsText(s *inspect.Semaphore) string {
	switch {
	case s.Permits < 0:
		return count(s.Taken, "permit") + " taken; Redis does not have how many there are"
	case s.Taken == 0:
		return "all free: " + count(s.Permits, "permit")
	case s.Taken > s.Permits:
		return fmt.Sprintf("%d permits taken; their number was lowered to %d", s.Taken, s.Permits)
	}
	return fmt.Sprintf("%d of %s taken, %d free", s.Taken, count(s.Permits, "permit"), s.Free)
}

func recordText(r *inspect.Record) string {
	what := size(r.Size)
	if r.Marker {
		what += ", the marker of a holder"
	}
	if r.Age > 0 {
		what += fmt.Sprintf(", stored %s ago", short(r.Age))
	}
	return what + fmt.Sprintf(", expires in %s", short(r.TTL))
}

func waitingText(l *inspect.Lock) string {
	n := int64(len(l.Queue)) + l.MoreQueue
	switch {
	case n > 0:
		return count(n, "waiter") + " in the queue"
	case l.Listeners < 0:
		return "unknown: this user may not run PUBSUB NUMSUB"
	case l.Listeners == 0:
		return "no client"
	}
	return count(l.Listeners, "client") + ", each with one waiter or more"
}

func holderTable(l *inspect.Lock) *table {
	t := &table{shrink: []shrink{{0, narrowest}, {1, narrowest}}}
	entered := "ENTERED"
	if l.Semaphore != nil {
		entered = "PERMITS"
	}
	t.head("HOLDER", "PROCESS", entered, "EXPIRES")
	for _, h := range l.Holders {
		end := cell{orDash(""), dim}
		switch {
		case h.Expired:
			end = cell{"expired: it holds nothing, but keeps writers out", red}
		case h.TTL < 0:
			end = cell{"never", red}
		case h.TTL > 0:
			end = cell{"in " + short(h.TTL), plain}
		}
		t.add(cell{printable(h.Owner), blue}, cell{processOf(h.Client, h.Owner), plain}, cell{fmt.Sprint(h.Count), plain}, end)
	}
	if l.MoreHolders > 0 {
		more := fmt.Sprintf("and %d more", l.MoreHolders)
		if l.Semaphore != nil {
			more = fmt.Sprintf("and others, with %s", count(l.MoreHolders, "permit"))
		}
		t.add(cell{more, dim})
	}
	return t
}

func queueTable(l *inspect.Lock) *table {
	t := &table{shrink: []shrink{{1, narrowest}, {2, narrowest}}}
	t.head("PLACE", "WAITER", "PROCESS", "PLACE EXPIRES")
	for _, w := range l.Queue {
		end := cell{"in " + short(w.Deadline), plain}
		if w.Deadline <= 0 {
			end = cell{"now", red}
		}
		if w.Absent {
			end = cell{end.text + "; no client listens: it may be dead", red}
		}
		t.add(cell{fmt.Sprint(w.Place), plain}, cell{printable(w.Owner), blue}, cell{processOf(w.Client, w.Owner), plain}, end)
	}
	if l.MoreQueue > 0 {
		t.add(cell{"", plain}, cell{fmt.Sprintf("and %d more", l.MoreQueue), dim})
	}
	return t
}
