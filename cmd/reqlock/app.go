package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
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
}

func newApp() *app {
	a := &app{in: os.Stdin, out: os.Stdout, err: os.Stderr, getenv: os.Getenv}
	a.screen = screenOf(os.Stdout, os.Getenv)
	a.asks = isTerminal(os.Stdin) && isTerminal(os.Stderr)
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
	most                      int // arguments
	local                     bool
	new                       func() command
}

func (e *entry) least() int { return strings.Count(e.args, " NAME ") }

// A session is one run of a command.
type session struct {
	*app
	connection
	json bool
}

func (s *session) flags(fs *flag.FlagSet) {
	s.connection.flags(fs)
	fs.BoolVar(&s.json, "json", s.json, "print JSON")
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
	fmt.Fprintf(a.err, "reqlock: %s\n", explain(err))
	return code
}

func (a *app) run(ctx context.Context, args []string) error {
	s := &session{app: a, connection: connection{url: a.getenv("REDIS_URL"), timeout: standardTimeout}}
	global := newFlags("reqlock")
	s.flags(global)
	if err := global.Parse(args); err != nil {
		return a.usage(nil, err)
	}
	if global.NArg() == 0 {
		a.help(a.err)
		return usageError("which command?")
	}
	word, rest := global.Arg(0), global.Args()[1:]
	if word == "help" {
		return a.explainCommand(rest)
	}
	e := find(word)
	if e == nil {
		return usageError("there is no command %q; try reqlock help", word)
	}
	c := e.new()
	fs := newFlags(e.name)
	if !e.local {
		s.flags(fs)
	} else {
		fs.BoolVar(&s.json, "json", s.json, "print JSON")
	}
	c.flags(fs)
	names, err := parse(fs, rest)
	if err != nil {
		return a.usage(e, err)
	}
	if len(names) < e.least() || len(names) > e.most {
		return usageError("usage: reqlock %s%s[options]", e.name, cmp.Or(e.args, " "))
	}
	return c.run(ctx, s, names)
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
	e := find(words[0])
	if e == nil {
		return usageError("there is no command %q; try reqlock help", words[0])
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
