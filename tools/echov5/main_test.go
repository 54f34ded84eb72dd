package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const source = `// Package echolock is for echo.Context.
package echolock

import (
	"github.com/labstack/echo/v4"
	"github.com/labstack/echo/v4/middleware"
	"github.com/reqlock/reqlock/middleware/echo"
)

var get = value("echo.Context", echo.Context.Get)

func handler(c echo.Context) error { return find[echo.Context](c.Request().Context()) }
`

const translation = head + `// Package echolock is for echo.Context.
package echolock

import (
	"github.com/labstack/echo/v5"
	"github.com/labstack/echo/v5/middleware"
	"github.com/reqlock/reqlock/middleware/echov5"
)

var get = value("echo.Context", (*echo.Context).Get)

func handler(c *echo.Context) error { return find[*echo.Context](c.Request().Context()) }
`

func TestTranslate(t *testing.T) {
	t.Parallel()
	got, err := translate("a.go", source)
	if err != nil || got != translation {
		t.Errorf("%v\n%s\nwant\n%s", err, got, translation)
	}
	if _, err := translate("a.go", "package"); err == nil {
		t.Error("a file with a syntax error is translated")
	}
}

// The check finds a file that is missing, one that was changed and one that is too many. Writing
// leaves the files that are written by hand.
func TestRun(t *testing.T) {
	t.Parallel()
	from, to := t.TempDir(), t.TempDir()
	put := func(dir, name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put(from, "missing.go", source)
	put(from, "changed.go", source)
	put(from, "same.go", source)
	put(from, "v4.go", source)
	put(to, "changed.go", translation+"// by hand\n")
	put(to, "same.go", translation)
	put(to, "extra.go", translation)
	put(to, "v5.go", "package echolock\n")
	if err := run(from, to, false); err == nil || !strings.HasPrefix(err.Error(), "changed.go, extra.go, missing.go in ") {
		t.Errorf("the check says %v", err)
	}
	if err := run(from, to, true); err != nil {
		t.Fatal(err)
	}
	if err := run(from, to, false); err != nil {
		t.Errorf("after writing: %v", err)
	}
	texts, err := read(to)
	if err != nil {
		t.Fatal(err)
	}
	if len(texts) != 4 || texts["v5.go"] != "package echolock\n" || texts["missing.go"] != translation {
		t.Errorf("written: %q", texts)
	}

	put(from, "v5.go", source)
	if err := run(from, to, true); err == nil || !strings.Contains(err.Error(), "written by hand") {
		t.Errorf("a file by hand would be replaced: %v", err)
	}
	if err := run(t.TempDir(), to, true); err == nil {
		t.Error("an empty directory is translated")
	}
}
