package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
)

// An app is the program with what it knows of its surroundings.
type app struct {
	in     io.Reader
	out    io.Writer
	err    io.Writer
	getenv func(string) string
	// screen belongs to out.
	screen screen
	// asks is true if in and err are a terminal, so a person can be asked.
	asks bool
	// attended is true if any of in, out and err is a terminal.
	attended bool
	// tends is true once run has a lock: it ends when its command has ended.
	tends atomic.Bool
}

func newApp() *app {
	a := &app{in: os.Stdin, out: os.Stdout, err: os.Stderr, getenv: os.Getenv}
	a.screen = screenOf(os.Stdout, os.Getenv)
	a.asks = isTerminal(os.Stdin) && isTerminal(os.Stderr)
	a.attended = isTerminal(os.Stdin) || isTerminal(os.Stdout) || isTerminal(os.Stderr)
	return a
}

// A command is one word of the command line, with its options.
type command interface {
	flags(fs *flag.FlagSet)
	run(ctx context.Context, s *session, args []string) error
}

// An entry describes a command for help.
type entry struct {
	name, args, summary, long string
	// words are those that an argument can be.
	words string
	most  int // arguments
	// local is true if it needs no Redis, and plain if it has no JSON.
	local, plain bool
	new          func() command
}

func (e *entry) least() int {
	return strings.Count(e.args, " NAME ") + strings.Count(e.args, " SHELL ")
}

// split returns what is before "--", and the command after it if this one runs another.
func (e *entry) split(args []string) (before, command []string, ok bool) {
	if !strings.Contains(e.args, " -- ") {
		return args, nil, true
	}
	i := slices.Index(args, "--")
	if i < 0 {
		return args, nil, false
	}
	return args[:i], args[i+1:], i+1 < len(args)
}

// usage is how to write the command.
func (e *entry) usage() string {
	words, command, _ := strings.Cut(strings.TrimSpace(e.name+e.args), " -- ")
	return "usage: reqlock " + strings.TrimSuffix(words+" [options] -- "+command, " -- ")
}

// shared adds the options that commands have in common.
func (e *entry) shared(fs *flag.FlagSet, s *session) {
	if !e.local {
		s.connection.flags(fs)
	}
	if !e.plain {
		fs.BoolVar(&s.json, "json", s.json, "print JSON")
	}
}

// A session is one run of a command.
type session struct {
	*app
	connection
	json bool
}

// main runs the program and returns its exit code.
func (a *app) main(ctx context.Context, args []string) int {
	err := a.run(ctx, args)
	code := exitCode(ctx, err)
	switch {
	case err == nil, errors.Is(err, flag.ErrHelp):
		return done
	case code == interrupted:
		return code
	}
	if text := explain(err); text != "" {
		fmt.Fprintf(a.err, "reqlock: %s\n", text)
	}
	return code
}

func (a *app) run(ctx context.Context, args []string) error {
	s := &session{app: a, connection: connection{url: a.getenv("REDIS_URL"), timeout: standardTimeout}}
	global := newFlags("reqlock")
	new(entry).shared(global, s)
	asked := global.Bool("version", false, "print the version")
	if err := global.Parse(args); err != nil {
		return a.usage(nil, err)
	}
	if *asked {
		return new(version).run(ctx, s, nil)
	}
	if global.NArg() == 0 {
		a.help(a.err)
		return usageError("which command?")
	}
	word, rest := global.Arg(0), global.Args()[1:]
	if word == "help" {
		return a.explainCommand(rest)
	}
	e, err := find(word)
	if err != nil {
		return err
	}
	c := e.new()
	fs := newFlags(e.name)
	e.shared(fs, s)
	c.flags(fs)
	rest, command, complete := e.split(rest)
	names, err := parse(fs, rest)
	if err != nil {
		return a.usage(e, err)
	}
	if len(names) < e.least() || len(names) > e.most || !complete {
		return usageError("%s", e.usage())
	}
	return c.run(ctx, s, append(names, command...))
}

func newFlags(name string) *flag.FlagSet {
	fs := flag.NewFlagSet(name, flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	return fs
}

// parse reads options before, between and after the arguments. After "--" all are arguments.
func parse(fs *flag.FlagSet, args []string) (names []string, err error) {
	for {
		if err := fs.Parse(args); err != nil {
			return nil, err
		}
		ended := len(args) > fs.NArg() && args[len(args)-fs.NArg()-1] == "--"
		if fs.NArg() == 0 || ended {
			return append(names, fs.Args()...), nil
		}
		names = append(names, fs.Arg(0))
		args = fs.Args()[1:]
	}
}

// singleDash finds the names of options in errors of package flag.
var singleDash = regexp.MustCompile(`(: |flag )-`)

// usage returns the error of wrong options, or prints help if it was asked for.
func (a *app) usage(e *entry, err error) error {
	switch {
	case !errors.Is(err, flag.ErrHelp):
		return usageError("%v; try reqlock help", singleDash.ReplaceAllString(err.Error(), "$1--"))
	case e == nil:
		a.help(a.out)
	default:
		a.helpOf(e)
	}
	return err
}

func (a *app) explainCommand(words []string) error {
	if len(words) == 0 {
		a.help(a.out)
		return nil
	}
	e, err := find(words[0])
	if err != nil {
		return err
	}
	a.helpOf(e)
	return nil
}

// print writes a value as JSON.
func (a *app) print(v any) error {
	enc := json.NewEncoder(a.out)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}
