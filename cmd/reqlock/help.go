package main

import (
	"flag"
	"fmt"
	"io"
	"strings"
)

var entries = []*entry{
	{name: "ls", args: " [PREFIX] ", most: 1, new: func() command { return new(list) },
		summary: "list locks: who holds them, for how long, who waits",
		long: `Lists the locks and semaphores whose names begin with PREFIX: those that are held, and fair locks
with a queue. It looks at every key of Redis by SCAN, a thousand at a time. It exits with 1 if no lock
begins with PREFIX, but some do with reqlock: before it, or without that.`},
	{name: "show", args: " NAME ", most: 1, new: func() command { return new(show) },
		summary: "show one lock",
		long: `Shows the holders, the queue and the record of one lock, or the permits of one semaphore. The name
is as in Redis: the guard puts "reqlock:" before its keys, and a NameMapper may change it.`},
	{name: "watch", args: " [PREFIX] ", most: 1, new: func() command { return new(watch) },
		summary: "show locks live",
		long: `Lists locks again and again. On a terminal it redraws the list; otherwise it prints a line for
each lock that is acquired, passed on or freed. q or Ctrl-C ends it.`},
	{name: "unlock", args: " NAME ", most: 1, new: func() command { return new(unlock) },
		summary: "free a lock that is stuck",
		long: `Takes a lock, or the permits of a semaphore, from its holders, or from the one that --owner names.
They learn it: the context of their work ends. It prints a line for the audit to stderr, with the
reason. On a terminal it asks first; elsewhere it needs --yes.`},
	{name: "run", args: " NAME -- COMMAND ", most: 1, plain: true, new: func() command { return new(run) },
		summary: "run a command under a lock",
		long: `Acquires a lock, runs COMMAND with its arguments, and releases the lock: at most one of a fleet runs
it at a time, or with --limit that many. NAME is as in Redis. If the lock is lost, the command is
told to end, and killed after --grace. INT, TERM and HUP are passed on. The command gets
REQLOCK_NAME, and with --fenced REQLOCK_TOKEN, which is greater each time.
Exit codes: that of the command, 128+n if signal n has ended it; 2 wrong usage, 69 Redis failed,
75 not acquired, 76 the lock was lost, 126 the command cannot be run, 127 it was not found, 130
interrupted while it waited.`},
	{name: "doctor", new: func() command { return new(doctor) },
		summary: "check that Redis is fit for locks",
		long: `Checks version, permissions, eviction, memory, persistence, replication, latency and clock, and
says what to change. It acquires and releases a lock named reqlock:ping:RANDOM.
Exit codes: 0 no check failed, though some may warn; 3 a check failed, or Redis cannot be reached.`},
	{name: "bench", new: func() command { return new(bench) },
		summary: "measure a round trip: acquire and release",
		long:    `Acquires and releases locks named reqlock:bench:RANDOM, and prints how long that takes.`},
	{name: "completion", args: " SHELL ", words: "bash zsh fish", most: 1, local: true, plain: true, new: func() command { return new(completion) },
		summary: "print a script that completes command lines",
		long: `For bash, zsh or fish. It completes commands and options. Add this to ~/.bashrc, or the same for zsh
to ~/.zshrc:
  source <(reqlock completion bash)
For fish: reqlock completion fish > ~/.config/fish/completions/reqlock.fish`},
	{name: "version", local: true, new: func() command { return new(version) },
		summary: "print the version"},
}

// find returns a command, or an error with the command that may be meant.
func find(name string) (*entry, error) {
	hint, nearest := "try reqlock help", min(3, len(name))
	for _, e := range entries {
		if e.name == name {
			return e, nil
		}
		if d := typos(name, e.name); d < nearest {
			hint, nearest = "did you mean "+e.name+"?", d
		}
	}
	return nil, usageError("there is no command %q; %s", name, hint)
}

// typos is how many characters have to be inserted, left out, replaced or swapped with the next to
// make b of a.
func typos(a, b string) int {
	d := make([][]int, len(a)+1)
	for i := range d {
		d[i] = make([]int, len(b)+1)
		for j := range d[i] {
			if i == 0 || j == 0 {
				d[i][j] = i + j
				continue
			}
			replaced := d[i-1][j-1]
			if a[i-1] != b[j-1] {
				replaced++
			}
			d[i][j] = min(replaced, d[i-1][j]+1, d[i][j-1]+1)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				d[i][j] = min(d[i][j], d[i-2][j-2]+1)
			}
		}
	}
	return d[len(a)][len(b)]
}

func (a *app) help(w io.Writer) {
	fmt.Fprintln(w, "reqlock shows and frees the locks on a Redis, and runs commands under them.")
	fmt.Fprintln(w)
	for _, e := range entries {
		fmt.Fprintf(w, "  reqlock %-20s %s\n", strings.TrimSpace(e.name+e.args), e.summary)
	}
	fmt.Fprint(w, `
Set REDIS_URL or --redis:
  redis://user:password@host:6379/0                                         one server; rediss:// for TLS
  redis+cluster://user:password@node-1:6379?addr=node-2:6379                a cluster; rediss+cluster:// for TLS
  redis+sentinel://sentinel-1:26379/0?addr=sentinel-2:26379&master_name=m   Sentinel; &username= and &password= of Redis

reqlock help COMMAND lists the options of a command.
Exit codes: 0 done, 1 not found or not held, 2 wrong usage, 3 Redis failed, 130 interrupted.
`)
}

func (a *app) helpOf(e *entry) {
	fmt.Fprintf(a.out, "%s\n\n%s.\n", e.usage(), e.summary)
	if e.long != "" {
		fmt.Fprintf(a.out, "%s\n", e.long)
	}
	own, shared := newFlags(e.name), newFlags(e.name)
	e.new().flags(own)
	s := session{app: a, connection: connection{timeout: standardTimeout}}
	e.shared(shared, &s)
	fmt.Fprintln(a.out)
	own.VisitAll(a.option)
	shared.VisitAll(a.option)
}

func (a *app) option(f *flag.Flag) {
	value, text := flag.UnquoteUsage(f)
	if f.DefValue != "" && f.DefValue != "false" && f.DefValue != "0" && f.DefValue != "0s" {
		text += " (" + f.DefValue + ")"
	}
	fmt.Fprintf(a.out, "  --%-20s %s\n", strings.TrimSpace(f.Name+" "+value), text)
}
