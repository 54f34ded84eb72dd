package main

import (
	"context"
	"flag"
	"fmt"
	"strings"

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
		if s.json {
			if err := s.print(inspect.Listing{Locks: locks, Truncated: more}); err != nil {
				return err
			}
		} else if len(locks) > 0 {
			s.printLines(tableOf(locks))
		}
		if more {
			fmt.Fprintf(s.err, "there are more than %s; give a prefix, or raise --limit\n", count(int64(opts.Limit), "lock"))
		}
		if len(locks) > 0 {
			return nil
		}
		text, near, err := none(ctx, rdb, opts)
		if near {
			return notHeldError("%s", text)
		}
		fmt.Fprintln(s.err, text)
		return err
	})
}

// guardPrefix is what guards put before their keys, unless they are told otherwise.
const guardPrefix = "reqlock:"

// nearby returns the name or prefix that may be meant instead, or an empty string.
func nearby(name string) string {
	if rest, ok := strings.CutPrefix(name, guardPrefix); ok {
		return rest
	}
	return guardPrefix + name
}

// none says that a list is empty. near is true if the prefix is probably wrong: there are locks that
// have it after the one of guards, or without that.
func none(ctx context.Context, rdb *client, opts inspect.ListOptions) (text string, near bool, err error) {
	if opts.Prefix == "" {
		return "no locks", false, nil
	}
	text = "no locks begin with " + printable(opts.Prefix)
	if opts.Prefix = nearby(opts.Prefix); opts.Prefix == "" {
		return text, false, nil
	}
	locks, more, err := inspect.List(ctx, rdb.UniversalClient, opts)
	if len(locks) == 0 {
		return text, false, err
	}
	verb, most := "begin", ""
	if more {
		most = "more than "
	} else if len(locks) == 1 {
		verb = "begins"
	}
	return fmt.Sprintf("%s; %s%d %s with %s", text, most, len(locks), verb, printable(opts.Prefix)), true, err
}

// tableOf shows locks, one in each row.
func tableOf(locks []inspect.Lock) *table {
	// At 80 columns, a process shows whole beside a name of 24.
	t := &table{shrink: []shrink{{0, 24}, {3, 18}, {0, narrowest}, {3, narrowest}}}
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
