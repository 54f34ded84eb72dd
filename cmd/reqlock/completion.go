package main

import (
	"context"
	"flag"
	"fmt"
	"strings"
)

// completion is reqlock completion.
type completion struct{}

func (*completion) flags(*flag.FlagSet) {}

func (*completion) run(_ context.Context, s *session, args []string) error {
	write := map[string]func(*session){"bash": bashCompletion, "fish": fishCompletion, "zsh": func(s *session) {
		fmt.Fprintln(s.out, "autoload -U +X compinit && compinit\nautoload -U +X bashcompinit && bashcompinit")
		bashCompletion(s)
	}}[args[0]]
	if write == nil {
		return usageError("there is no completion for %q; use bash, zsh or fish", args[0])
	}
	write(s)
	return nil
}

// options calls fn with each option of a command.
func (e *entry) options(s *session, fn func(*flag.Flag)) {
	fs := newFlags(e.name)
	e.shared(fs, s)
	e.new().flags(fs)
	fs.VisitAll(fn)
}

func bashCompletion(s *session) {
	var names []string
	var cases strings.Builder
	for _, e := range entries {
		names = append(names, e.name)
		words := e.words
		e.options(s, func(f *flag.Flag) { words += " --" + f.Name })
		fmt.Fprintf(&cases, "    %s) known=%q ;;\n", e.name, strings.TrimSpace(words))
	}
	fmt.Fprintf(s.out, `_reqlock() {
  local known="" word="${COMP_WORDS[COMP_CWORD]}" i
  for ((i = 1; i < COMP_CWORD; i++)); do
    if [[ "${COMP_WORDS[i]}" == -- ]]; then
      ((i + 1 == COMP_CWORD)) && COMPREPLY=($(compgen -c -- "$word"))
      return
    fi
  done
  case "${COMP_WORDS[1]}" in
%s  esac
  ((COMP_CWORD == 1)) && known=%q
  COMPREPLY=($(compgen -W "$known" -- "$word"))
}
complete -o default -F _reqlock reqlock
`, cases.String(), "help "+strings.Join(names, " "))
}

func fishCompletion(s *session) {
	line := func(condition, what, text string) {
		fmt.Fprintf(s.out, "complete -c reqlock -n '%s' %s -d '%s'\n", condition, what, strings.ReplaceAll(text, "'", `\'`))
	}
	fmt.Fprintln(s.out, "complete -c reqlock -f")
	for _, e := range entries {
		line("__fish_use_subcommand", "-a "+e.name, e.summary)
		of := "__fish_seen_subcommand_from " + e.name
		for word := range strings.FieldsSeq(e.words) {
			line(of, "-a "+word, e.summary)
		}
		e.options(s, func(f *flag.Flag) {
			value, text := flag.UnquoteUsage(f)
			argument := ""
			if value != "" {
				argument = " -r"
			}
			line(of, "-l "+f.Name+argument, text)
		})
	}
	fmt.Fprintln(s.out, "complete -c reqlock -n '__fish_seen_subcommand_from run; and contains -- -- (commandline -opc)' -a '(__fish_complete_subcommand)'")
}
