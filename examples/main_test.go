package main

import (
	"bufio"
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// The list names every example.
func TestList(t *testing.T) {
	t.Parallel()
	programs, err := filepath.Glob("*/main.go")
	if err != nil || len(programs) < 5 {
		t.Fatal(programs, err)
	}
	for _, program := range programs {
		if _, err := os.Stat(filepath.Join(filepath.Dir(program), "go.mod")); err == nil {
			continue // its module has other libraries, so "go run" finds it only in its directory
		}
		if name := filepath.Dir(program); !strings.Contains(usage(), "  "+name+" ") {
			t.Errorf("the list lacks %s:\n%s", name, usage())
		}
	}
	if code, err := run("nothing", nil); code != 2 || err == nil || !strings.Contains(err.Error(), "quickstart") {
		t.Errorf("an unknown example: code %d, %v", code, err)
	}
}

// The runner passes SIGTERM on to the example. -help lists the examples.
func TestRunner(t *testing.T) {
	t.Parallel()
	binary := filepath.Join(t.TempDir(), "examples.exe")
	if out, err := exec.Command("go", "build", "-o", binary, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, help := range []string{"-help", "--help", "-h", "help"} {
		if out, err := exec.Command(binary, help).Output(); err != nil || !bytes.Contains(out, []byte("  quickstart ")) {
			t.Errorf("%s: %v\n%s", help, err, out)
		}
	}
	cmd := exec.Command(binary, "first", "-addr", "127.0.0.1:0")
	cmd.Dir = ".."
	stdout, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	defer cmd.Process.Kill()
	for lines := bufio.NewScanner(stdout); lines.Scan(); {
		if strings.Contains(lines.Text(), "/orders/:id/pay") { // it runs
			_ = cmd.Process.Signal(syscall.SIGTERM)
		}
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}

// Each recipe is one file, with a README of one screen, and is in the list of recipes.
func TestRecipes(t *testing.T) {
	t.Parallel()
	list, err := os.ReadFile("recipes/README.md")
	if err != nil {
		t.Fatal(err)
	}
	programs, err := filepath.Glob("recipes/*/main.go")
	if err != nil || len(programs) < 6 {
		t.Fatal(programs, err)
	}
	for _, program := range programs {
		dir := filepath.Dir(program)
		name := filepath.Base(dir)
		readme, err := os.ReadFile(filepath.Join(dir, "README.md"))
		if err != nil {
			t.Fatal(err)
		}
		if n := bytes.Count(readme, []byte("\n")); n > 20 {
			t.Errorf("the README of %s has %d lines", name, n)
		}
		if command := "\ngo run -C examples/recipes ./" + name + "\n"; !bytes.Contains(readme, []byte(command)) {
			t.Errorf("the README of %s lacks %q", name, command)
		}
		if !bytes.Contains(list, []byte("| ["+name+"]("+name+") |")) {
			t.Errorf("recipes/README.md lacks %s", name)
		}
		if files, err := filepath.Glob(filepath.Join(dir, "*.go")); err != nil || len(files) != 2 {
			t.Errorf("%s has the files %q, want main.go and its test", name, files)
		}
	}
}
