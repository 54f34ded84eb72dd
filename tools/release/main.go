// Release checks that what the documentation tells users to install can be installed, before a
// version is tagged.
//
//	go run -C tools ./release           publishes the modules, as the next version, in a directory
//	                                    that serves as a module proxy, runs each documented command
//	                                    against it, and builds a small program
//	go run -C tools ./release -write    writes reqlock.Version into the go.mod files
//
// Our modules require each other with a replace directive, so that they build from a clone. A build
// of another module ignores it, and takes the required version from the proxy.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

func main() {
	write := flag.Bool("write", false, "write the version into the go.mod files")
	only := flag.String("only", "", "run the documented commands that contain this `text`")
	flag.Parse()
	if err := run("..", *write, *only); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

// root is the path of the module whose directory is the root of the repository.
const root = "github.com/reqlock/reqlock"

func run(dir string, write bool, only string) error {
	version, err := versionIn(dir)
	if err != nil {
		return err
	}
	modules, err := findModules(dir)
	if err != nil {
		return err
	}
	if write {
		return setVersion(modules, version)
	}
	if err := checkVersion(modules, version); err != nil {
		return err
	}
	if err := checkNames(dir, version); err != nil {
		return err
	}
	commands, err := documented(dir)
	if err != nil {
		return err
	}
	if err := checkDocumented(modules, commands); err != nil {
		return err
	}
	work, err := os.MkdirTemp("", "reqlock-release")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	u := &user{dir: work, version: version}
	if u.env, err = environment(work); err != nil {
		return err
	}
	for _, m := range modules {
		if m.published() {
			if err := publish(m, dir, filepath.Join(work, "proxy"), version); err != nil {
				return fmt.Errorf("publish %s: %w", m.path, err)
			}
		}
	}
	for _, c := range commands {
		if !strings.Contains(c.text, only) {
			continue
		}
		if err := u.try(c); err != nil {
			return fmt.Errorf("%s: %s: %w", c.file, c.text, err)
		}
		fmt.Printf("ok %s\n", c.text)
	}
	fmt.Println("tags, in this order:", strings.Join(tags(modules, version), " "))
	return nil
}
