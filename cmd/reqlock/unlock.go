package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/user"
	"slices"
	"strings"
	"time"

	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/inspect"
)

// unlock is reqlock unlock.
type unlock struct {
	owner  string
	waiter string
	reason string
	yes    bool
}

func (c *unlock) flags(fs *flag.FlagSet) {
	fs.StringVar(&c.owner, "owner", "", "take it from this `holder` only, as show prints it")
	fs.StringVar(&c.waiter, "waiter", "", "drop this `waiter` from the queue of a fair lock instead, as show prints it")
	fs.StringVar(&c.reason, "reason", "", "why, for the audit: `text`; required")
	fs.BoolVar(&c.yes, "yes", false, "do not ask")
}

func (c *unlock) run(ctx context.Context, s *session, args []string) error {
	if strings.TrimSpace(c.reason) == "" {
		return usageError("say why: --reason \"pod web-1 hangs\"; it becomes part of the audit line")
	}
	if c.owner != "" && c.waiter != "" {
		return usageError("--owner takes the lock from a holder, --waiter drops a waiter: use one of them")
	}
	if !c.yes && !s.asks {
		return usageError("there is no terminal to ask for confirmation; add --yes")
	}
	return s.with(func(rdb *client) error {
		l, err := s.look(ctx, rdb, args[0])
		if err != nil {
			return err
		}
		if c.waiter != "" {
			return c.drop(ctx, s, rdb, l)
		}
		if l.Stalled {
			return notHeldError("%s is not held; %s, first in its queue, is %s: %s", printable(l.Name), firstInQueue(l), l.Stall(), dropCommand(l))
		}
		if !l.Held() {
			return notHeldError("%s is not held", printable(l.Name))
		}
		from, err := c.choose(l)
		if err != nil {
			return err
		}
		if !c.yes {
			if err := c.confirm(ctx, s, from); err != nil {
				return err
			}
		}
		return c.free(ctx, s, rdb, l, from)
	})
}

// choose returns the lock with the holders to take it from. If there are too many to read them all, a
// holder that was named may be one of the others.
func (c *unlock) choose(l *inspect.Lock) (*inspect.Lock, error) {
	if c.owner == "" {
		return l, nil
	}
	client, _ := core.ClientOf(c.owner)
	named := inspect.Holder{Owner: c.owner, Client: client}
	i := slices.IndexFunc(l.Holders, func(h inspect.Holder) bool { return h.Owner == c.owner })
	switch {
	case i >= 0:
		named = l.Holders[i]
	case l.MoreHolders == 0:
		return nil, notHeldError("%s is not held by %s", printable(l.Name), printable(c.owner))
	}
	from := *l
	from.Holders, from.MoreHolders = []inspect.Holder{named}, 0
	if named.TTL != 0 {
		from.TTL = named.TTL
	}
	return &from, nil
}

func (s *session) look(ctx context.Context, rdb *client, name string) (*inspect.Lock, error) {
	ctx, cancel := s.bound(ctx)
	defer cancel()
	l, err := inspect.Show(ctx, rdb.UniversalClient, name)
	near := nearby(name)
	if !errors.Is(err, inspect.ErrNotFound) || near == "" {
		return l, err
	}
	if other, failure := inspect.Show(ctx, rdb.UniversalClient, near); failure == nil {
		state := "free"
		if other.Held() {
			state = "held by " + holders(other)
		}
		err = fmt.Errorf("%w; %s is there, %s", err, printable(near), state)
	}
	return l, err
}

// confirm asks whether to free the lock.
func (c *unlock) confirm(ctx context.Context, s *session, l *inspect.Lock) error {
	end := "expires in " + expires(l).text
	if l.TTL < 0 {
		end = "never expires"
	}
	fmt.Fprintf(s.err, "%s (%s) is held by %s and %s. Waiting: %s.\n", printable(l.Name), l.Kind, holders(l), end, waitingText(l))
	return ask(ctx, s, "Their work may be half done, and the next holder starts at once. Free it?", printable(l.Name)+" is still held")
}

// ask asks a question. Without the answer yes, the error says what is still so.
func ask(ctx context.Context, s *session, question, still string) error {
	fmt.Fprint(s.err, question+" Type yes: ")
	answer := make(chan string, 1)
	go func() { // it ends with the process if no answer comes
		line, _ := bufio.NewReader(s.in).ReadString('\n')
		answer <- line
	}()
	select {
	case line := <-answer:
		if strings.TrimSpace(line) != "yes" {
			return notHeldError("%s: you did not say yes", still)
		}
		return nil
	case <-ctx.Done():
		fmt.Fprintln(s.err)
		return ctx.Err()
	}
}

func owners(l *inspect.Lock) (all []string) {
	for _, h := range l.Holders {
		all = append(all, h.Owner)
	}
	return all
}

// An audit is what unlock prints as JSON.
type audit struct {
	Time time.Time `json:"time"`
	Name string    `json:"name"`
	// Freed is true if at least one holder has lost the lock.
	Freed  bool   `json:"freed"`
	Reason string `json:"reason"`
	By     string `json:"by"`
	Redis  string `json:"redis"`
	// The lock was to be taken from Holders. Taken are the ones that have lost it.
	Holders []string `json:"holders"`
	Taken   []string `json:"taken"`
	// Left is how many other owners hold it still.
	Left int `json:"left"`
	// Lock is what the lock was before.
	Lock inspect.Lock `json:"lock"`
}

// free takes the lock from the holders that were shown and chosen, and from no one who has it since.
func (c *unlock) free(ctx context.Context, s *session, rdb *client, l, from *inspect.Lock) error {
	locks, closeLocks, err := s.locks(rdb)
	if err != nil {
		return err
	}
	defer closeLocks()
	forced, err := locks.ForceUnlockOwners(core.WithReason(ctx, operator(), c.reason), l.Name, l.Kind, owners(from))
	a := audit{time.Now().UTC(), l.Name, len(forced.Owners) > 0, c.reason, operator(), rdb.String(), owners(from),
		append([]string{}, forced.Owners...), forced.Left, *l}
	c.log(s, a, err)
	switch {
	case err != nil:
		return err
	case !a.Freed:
		return c.missed(ctx, s, rdb, l)
	case s.json:
		return s.print(a)
	}
	losers := *from
	losers.Holders = slices.DeleteFunc(slices.Clone(from.Holders), func(h inspect.Holder) bool { return !slices.Contains(a.Taken, h.Owner) })
	losers.MoreHolders = 0
	switch {
	case a.Left > 0 && l.Semaphore != nil:
		fmt.Fprintf(s.out, "%s has lost its permits of %s; others have %s\n", holders(&losers), printable(l.Name), count(int64(a.Left), "permit"))
	case a.Left > 0:
		fmt.Fprintf(s.out, "%s is not free: it was taken from %s, and %s still\n", printable(l.Name), holders(&losers), heldBy(a.Left))
	default:
		fmt.Fprintf(s.out, "%s is free; it was held by %s; waiting: %s\n", printable(l.Name), holders(&losers), waitingText(l))
	}
	return nil
}

// A dropAudit is what unlock --waiter prints as JSON.
type dropAudit struct {
	Time time.Time `json:"time"`
	Name string    `json:"name"`
	// Dropped is true if the waiter was in the queue.
	Dropped bool   `json:"dropped"`
	Waiter  string `json:"waiter"`
	Reason  string `json:"reason"`
	By      string `json:"by"`
	Redis   string `json:"redis"`
	// Lock is what the lock was before.
	Lock inspect.Lock `json:"lock"`
}

// drop removes the waiter from the queue, and writes the audit line.
func (c *unlock) drop(ctx context.Context, s *session, rdb *client, l *inspect.Lock) error {
	i := slices.IndexFunc(l.Queue, func(w inspect.Waiter) bool { return w.Owner == c.waiter })
	if i < 0 && l.MoreQueue == 0 {
		return notHeldError("%s is not in the queue of %s", printable(c.waiter), printable(l.Name))
	}
	if !c.yes {
		client, _ := core.ClientOf(c.waiter)
		place := "is in the queue"
		if i >= 0 {
			place = fmt.Sprintf("is number %d of %d in the queue", i+1, int64(len(l.Queue))+l.MoreQueue)
		}
		fmt.Fprintf(s.err, "%s (%s) %s of %s.\n", printable(c.waiter), processOf(client, c.waiter), place, printable(l.Name))
		err := ask(ctx, s, "If its process runs again, it queues up at the end. Drop it?", printable(c.waiter)+" is still in the queue")
		if err != nil {
			return err
		}
	}
	locks, closeLocks, err := s.locks(rdb)
	if err != nil {
		return err
	}
	defer closeLocks()
	dropped, err := locks.DropWaiter(ctx, l.Name, c.waiter)
	a := dropAudit{time.Now().UTC(), l.Name, dropped, c.waiter, c.reason, operator(), rdb.String(), *l}
	result := slog.Bool("dropped", dropped)
	if err != nil {
		result = slog.String("error", bare(err))
	}
	s.auditLog().Info("reqlock: unlock", "name", a.Name, result, "waiter", a.Waiter, "reason", a.Reason, "by", a.By, "redis", a.Redis)
	switch {
	case err != nil:
		return err
	case !dropped:
		return notHeldError("%s has left the queue of %s meanwhile", printable(c.waiter), printable(l.Name))
	case s.json:
		return s.print(a)
	}
	fmt.Fprintf(s.out, "%s is dropped from the queue of %s\n", printable(c.waiter), printable(l.Name))
	return nil
}

func heldBy(n int) string {
	if n == 1 {
		return "1 other owner holds it"
	}
	return fmt.Sprintf("%d other owners hold it", n)
}

// missed says why nothing was taken from the holders that were shown.
func (c *unlock) missed(ctx context.Context, s *session, rdb *client, l *inspect.Lock) error {
	now, err := s.look(ctx, rdb, l.Name)
	switch {
	case errors.Is(err, inspect.ErrNotFound), err == nil && !now.Held():
		return notHeldError("%s has been released meanwhile", printable(l.Name))
	case err != nil:
		return err
	case c.owner != "":
		return notHeldError("%s is not held by %s any more", printable(l.Name), printable(c.owner))
	}
	return notHeldError("%s is held by another owner by now: %s; look again", printable(l.Name), holders(now))
}

// log writes the audit line to stderr, with --json as JSON. After an error the lock may be free or
// not: the reply may be lost.
func (c *unlock) log(s *session, a audit, err error) {
	result := slog.Bool("freed", a.Freed)
	if err != nil {
		result = slog.String("error", bare(err))
	}
	s.auditLog().Info("reqlock: unlock", "name", a.Name, "kind", a.Lock.Kind, result, "holders", strings.Join(a.Holders, " "),
		"taken", strings.Join(a.Taken, " "), "left", a.Left, "reason", a.Reason, "by", a.By, "redis", a.Redis)
}

// auditLog writes to stderr, with --json as JSON.
func (s *session) auditLog() *slog.Logger {
	if s.json {
		return slog.New(slog.NewJSONHandler(s.err, nil))
	}
	return slog.New(slog.NewTextHandler(s.err, nil))
}

// operator returns who runs the program, as user@host.
func operator() string {
	name, host := "unknown", "unknown"
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	if h, err := os.Hostname(); err == nil {
		host = h
	}
	return name + "@" + host
}
