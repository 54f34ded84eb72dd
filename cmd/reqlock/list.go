package main

import (
	"context"
	"flag"
	"fmt"

	"github.com/reqlock/reqlock/inspect"
)

// list is reqlock ls.
type list struct {
	limit int
	free  bool
}

func (c *list) flags(fs *flag.FlagSet) {
	fs.IntVar(&c.limit, "limit", 1000, "print at most this `number` of locks")
	fs.BoolVar(&c.free, "free", false, "also print names that no one holds: records of a Once, semaphores, counters of fenced locks")
}

func (c *list) options(args []string) (inspect.ListOptions, error) {
	opts := inspect.ListOptions{Limit: c.limit, Free: c.free}
	if c.limit < 1 {
		return opts, usageError("--limit is %d; use at least 1", c.limit)
	}
	if len(args) > 0 {
		opts.Prefix = args[0]
	}
	return opts, nil
}

func (c *list) run(ctx context.Context, s *session, args []string) error {
	opts, err := c.options(args)
	if err != nil {
		return err
	}
	return s.with(func(rdb *client) error {
		ctx, cancel := s.bound(ctx)
		defer cancel()
		locks, more, err := inspect.List(ctx, rdb.UniversalClient, opts)
		if err != nil {
			return err
		}
		if more {
			fmt.Fprintf(s.err, "reqlock: there are more than %d locks; give a prefix, or raise --limit\n", opts.Limit)
		}
		if s.json {
			return s.print(locks)
		}
		if len(locks) == 0 {
			fmt.Fprintln(s.err, "no locks")
			return nil
		}
		columns, _ := s.screen.size()
		for _, line := range tableOf(locks).lines(s.screen, columns) {
			fmt.Fprintln(s.out, line)
		}
		return nil
	})
}

// tableOf shows locks, one in each row.
func tableOf(locks []inspect.Lock) *table {
	t := &table{shrink: []int{3, 0}}
	t.head("NAME", "KIND", "EXPIRES", "HOLDER", "ENTERED", "WAITING")
	for i := range locks {
		l := &locks[i]
		t.add(cell{printable(l.Name), plain}, cell{l.Kind, kindStyle(l)}, expires(l), holderCell(l),
			cell{enteredText(l), plain}, waitingCell(l))
	}
	return t
}

func kindStyle(l *inspect.Lock) style {
	if l.Held() {
		return blue
	}
	return dim
}

// holderCell has the holders, or the process that keeps a queue waiting for a free lock.
func holderCell(l *inspect.Lock) cell {
	switch {
	case l.Stalled:
		return cell{"stalled: free, not taken by " + firstInQueue(l), red}
	case l.Held():
		return cell{holders(l), plain}
	}
	return cell{orDash(holders(l)), dim}
}

func waitingCell(l *inspect.Lock) cell {
	text := waiting(l)
	if text != "0" && text != "?" {
		return cell{text, amber}
	}
	return cell{text, dim}
}

// expires is when the lock is free if its holder is dead, or when the record of a free one is gone.
func expires(l *inspect.Lock) cell {
	switch {
	case l.TTL < 0:
		return cell{"never", red}
	case l.Held():
		return cell{short(l.TTL), plain}
	case l.Record != nil:
		return cell{short(l.Record.TTL), dim}
	}
	return cell{"-", dim}
}
