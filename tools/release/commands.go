package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// A command is one that the documentation gives for installing something of ours.
type command struct {
	file string // that has it
	text string
}

// installs finds such commands: in blocks, where a line ends them, and in running text, where a
// backquote does.
var installs = regexp.MustCompile("(?:go get|go install|xcaddy build)[^`\n]*" + regexp.QuoteMeta(root) + "[^`\n]*")

// documented returns the commands in README.md and docs, each once.
func documented(dir string) (all []command, err error) {
	pages, err := filepath.Glob(filepath.Join(dir, "docs", "*", "*.md"))
	if err != nil {
		return nil, err
	}
	for _, page := range append([]string{filepath.Join(dir, "README.md")}, pages...) {
		text, err := os.ReadFile(page)
		if err != nil {
			return nil, err
		}
		for _, found := range installs.FindAllString(string(text), -1) {
			found = strings.TrimSpace(found)
			if !slices.ContainsFunc(all, func(c command) bool { return c.text == found }) {
				all = append(all, command{filepath.Base(page), found})
			}
		}
	}
	return all, nil
}

// ours returns the module paths and package paths of ours in a command.
func (c command) ours() (paths []string) {
	for word := range strings.FieldsSeq(c.text) {
		if word == root || strings.HasPrefix(word, root+"/") {
			path, _, _ := strings.Cut(word, "@")
			paths = append(paths, path)
		}
	}
	return paths
}

// checkDocumented refuses a published module that no command installs.
func checkDocumented(modules []*goModule, commands []command) error {
	for _, m := range modules {
		if m.published() && !slices.ContainsFunc(commands, func(c command) bool { return slices.Contains(c.ours(), m.path) }) {
			return fmt.Errorf("neither README.md nor a page in docs says how to install %s", m.path)
		}
	}
	return nil
}
