package main

import (
	"os"
	"path/filepath"
	"strings"
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
		if name := filepath.Dir(program); !strings.Contains(list(), "  "+name+" ") {
			t.Errorf("the list lacks %s:\n%s", name, list())
		}
	}
	if code, err := run("nothing", nil); code != 2 || err == nil || !strings.Contains(err.Error(), "quickstart") {
		t.Errorf("an unknown example: code %d, %v", code, err)
	}
}
