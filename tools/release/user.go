package main

import (
	"embed"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
)

// programs are what a user might write after installing a module. A file has the name of the last
// element of the module's path.
//
//go:embed programs/*.txt
var programs embed.FS

// xcaddy is the version that builds Caddy with our module.
const xcaddy = "github.com/caddyserver/xcaddy/cmd/xcaddy@v0.4.5"

// A user runs the documented commands in new directories, with a module cache that has nothing of
// ours.
type user struct {
	dir     string
	env     []string
	version string
	tries   int
}

// environment returns variables that make the go command take our modules from the proxy in dir, and
// all others from the module cache of this machine, or else from where it always does.
func environment(dir string) ([]string, error) {
	get := func(name string) (string, error) {
		out, err := exec.Command("go", "env", name).Output()
		return strings.TrimSpace(string(out)), err
	}
	proxies, err := get("GOPROXY")
	if err != nil {
		return nil, err
	}
	cache, err := get("GOMODCACHE")
	if err != nil {
		return nil, err
	}
	unchecked, err := get("GONOSUMDB")
	if err != nil {
		return nil, err
	}
	local := "file://" + filepath.ToSlash(filepath.Join(dir, "proxy")) + ",file://" + filepath.ToSlash(filepath.Join(cache, "cache", "download"))
	return append(os.Environ(),
		"GOPROXY="+local+","+proxies,
		"GONOSUMDB="+strings.Trim(unchecked+","+root+","+root+"/*", ","), // the checksum database does not know this version
		"GOMODCACHE="+filepath.Join(dir, "modules"),
		"GOBIN="+filepath.Join(dir, "bin"),
		"GOFLAGS=-modcacherw",
		"GOWORK=off",
	), nil
}

// try runs a command in an empty module, and then what it has installed.
func (u *user) try(c command) error {
	u.tries++
	dir := filepath.Join(u.dir, fmt.Sprint("user", u.tries))
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	target := c.ours()[0]
	switch words := strings.Fields(c.text); words[0] + " " + words[1] {
	case "go install":
		if err := u.run(dir, words...); err != nil {
			return err
		}
		return u.run(dir, filepath.Join(u.dir, "bin", path.Base(target)), "help")
	case "xcaddy build":
		built := filepath.Join(dir, "caddy")
		words = append([]string{"go", "run", xcaddy}, append(words[1:], "--output", built)...)
		if err := u.run(dir, words...); err != nil {
			return err
		}
		return u.run(dir, built, "list-modules")
	default: // go get
		program, err := programs.ReadFile("programs/" + path.Base(target) + ".txt")
		if err != nil {
			return fmt.Errorf("tools/release/programs has no program for it: %w", err)
		}
		if err := u.run(dir, "go", "mod", "init", "example.test/shop"); err != nil {
			return err
		}
		if err := u.run(dir, words...); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, "main.go"), program, 0o644); err != nil {
			return err
		}
		for _, step := range [][]string{{"go", "mod", "tidy"}, {"go", "build", "-o", "shop", "."}} {
			if err := u.run(dir, step...); err != nil {
				return err
			}
		}
		return u.required(dir)
	}
}

// required checks that the program was built with the version that was published.
func (u *user) required(dir string) error {
	list := exec.Command("go", "list", "-m", "-f", "{{.Version}}{{with .Replace}} replaced{{end}}", root)
	list.Dir, list.Env = dir, u.env
	out, err := list.Output()
	if got := strings.TrimSpace(string(out)); err != nil || got != u.version {
		return fmt.Errorf("built with %s of %s, want %s: %v", got, root, u.version, err)
	}
	return nil
}

// run runs a command, and returns its output with the error.
func (u *user) run(dir string, words ...string) error {
	run := exec.Command(words[0], words[1:]...)
	run.Dir, run.Env = dir, u.env
	if out, err := run.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", strings.Join(words, " "), err, out)
	}
	return nil
}
