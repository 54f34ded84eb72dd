package docs_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// docs/reference/answers.md lists all answers in guard/doc.go.
func TestAnswersAreComplete(t *testing.T) {
	t.Parallel()
	answers := read(t, "docs/reference/answers.md")
	problems := regexp.MustCompile(`(\d{3}) urn:reqlock:problem:([a-z-]+)(, Retry-After)?`).FindAllStringSubmatch(read(t, "guard/doc.go"), -1)
	if len(problems) < 10 {
		t.Fatalf("found only %d problems in guard/doc.go", len(problems))
	}
	for _, p := range problems {
		row := "| " + p[1] + " `" + p[2] + "`"
		if p[3] != "" {
			row += ", `Retry-After`"
		}
		if !strings.Contains(answers, row) {
			t.Errorf("docs/reference/answers.md has no row with %q", row)
		}
	}
}

// docs/guides/idempotency.md lists all answers in idempotency/doc.go.
func TestIdempotencyAnswersAreComplete(t *testing.T) {
	t.Parallel()
	text := read(t, "docs/guides/idempotency.md")
	problems := regexp.MustCompile(`(\d{3}) urn:reqlock:problem:([a-z-]+)`).FindAllStringSubmatch(read(t, "idempotency/doc.go"), -1)
	if len(problems) < 8 {
		t.Fatalf("found only %d problems in idempotency/doc.go", len(problems))
	}
	for _, p := range problems {
		if !strings.Contains(text, "| "+p[1]+" `"+p[2]+"`") {
			t.Errorf("docs/guides/idempotency.md has no row with %s %s", p[1], p[2])
		}
	}
}

// The pages of the engine name tests and methods of core that exist.
func TestEngineNamesExist(t *testing.T) {
	t.Parallel()
	var source strings.Builder
	if err := filepath.WalkDir("core", func(path string, _ fs.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(path, ".go") {
			source.WriteString(read(t, path))
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	var engine strings.Builder
	for _, page := range []string{"engine", "engine-states", "engine-holds", "engine-waiting"} {
		engine.WriteString(read(t, "docs/inside/"+page+".md"))
	}
	tests := regexp.MustCompile("`(Test[A-Za-z0-9_]+)`").FindAllStringSubmatch(engine.String(), -1)
	for _, name := range tests {
		if !strings.Contains(source.String(), "\nfunc "+name[1]+"(") {
			t.Errorf("the docs of the engine name %s, which does not exist", name[1])
		}
	}
	methods := regexp.MustCompile("`([A-Za-z]+)\\.([A-Za-z]+)`").FindAllStringSubmatch(engine.String(), -1)
	for _, name := range methods {
		declaration := regexp.MustCompile(`\nfunc \(\w+ \*?` + name[1] + `(\[\w+\])?\) ` + name[2] + `\(`)
		if !declaration.MatchString(source.String()) && name[2] != "go" {
			t.Errorf("the docs of the engine name the method %s.%s, which does not exist", name[1], name[2])
		}
	}
	if len(tests) < 40 || len(methods) < 20 {
		t.Errorf("found only %d tests and %d methods", len(tests), len(methods))
	}
}

// The table of core's files in docs/inside/engine.md names each file once, and no other.
func TestEngineFiles(t *testing.T) {
	t.Parallel()
	_, table, _ := strings.Cut(read(t, "docs/inside/engine.md"), "\n## The files of core\n")
	table, _, _ = strings.Cut(table, "\n## ")
	var named []string
	for _, row := range regexp.MustCompile(`(?m)^\| ([a-z, ]+) \|`).FindAllStringSubmatch(table, -1) {
		for file := range strings.SplitSeq(row[1], ", ") {
			named = append(named, "core/"+file+".go")
		}
	}
	files, err := filepath.Glob("core/*.go")
	if err != nil {
		t.Fatal(err)
	}
	files = slices.DeleteFunc(files, func(file string) bool { return strings.HasSuffix(file, "_test.go") })
	slices.Sort(named)
	if !slices.Equal(named, files) {
		t.Errorf("the table names %q\ncore has %q", named, files)
	}
}

// Every log message has a row in docs/reference/log.md.
func TestLogLinesAreExplained(t *testing.T) {
	t.Parallel()
	logs := regexp.MustCompile(`(?:[Ll]ogger(?:\(\))?\.(?:Debug|Info|Warn|Error)\(|journal\.(?:say|announce)\(\S+ )"([^"]*)"`)
	text, n := read(t, "docs/reference/log.md"), 0
	for _, dir := range []string{"core", "guard", "idempotency", "coalesce", "delegation", "keyfuncs", "middleware", "wasm", "embedded", "inspect", "caddy"} {
		err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			for _, match := range logs.FindAllStringSubmatch(read(t, path), -1) {
				n++
				message, ours := strings.CutPrefix(match[1], "reqlock: ")
				// The line about WriteTimeout is long.
				message, _, _ = strings.Cut(message, ": the server cuts")
				if !ours || !strings.Contains(text, "`"+strings.TrimSpace(message)+"`") {
					t.Errorf("%s: %q has no row, or does not begin with reqlock:", path, match[1])
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if n < 25 {
		t.Errorf("found only %d messages", n)
	}
}

// Pages of docs/ that comments name exist, and so do their sections, after a #.
func TestCommentsNamePages(t *testing.T) {
	t.Parallel()
	comment := regexp.MustCompile(`//.*`)
	page := regexp.MustCompile(`\bdocs/([a-z]+/[a-z0-9-]+\.md)(?:#([a-z0-9-]+))?`)
	n := 0
	err := filepath.WalkDir(".", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".go") {
			return err
		}
		for _, match := range page.FindAllStringSubmatch(strings.Join(comment.FindAllString(read(t, path), -1), "\n"), -1) {
			n++
			text, err := os.ReadFile("docs/" + match[1])
			if err != nil {
				t.Errorf("%s: %v", path, err)
				continue
			}
			if match[2] != "" && !slices.Contains(sections(string(text)), match[2]) {
				t.Errorf("%s: docs/%s has no section #%s", path, match[1], match[2])
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if n < 20 {
		t.Errorf("found only %d pages", n)
	}
}

// Routes in examples name their methods. A route for every method would hand preflights to its
// handler, and readers copy examples.
func TestExamplesNameTheirMethods(t *testing.T) {
	t.Parallel()
	routes := regexp.MustCompile(`\b(?:\w+\.Handle(?:Func)?|serve)\("([^"]*)"|\.(Any)\(`)
	// A page of its own, below a path, looks at the methods itself.
	named := regexp.MustCompile(`^(?:GET|POST|PUT|PATCH|DELETE) |^/debug/`)
	files := []string{"README.md"}
	for _, pattern := range []string{"docs/*/*.md", "docs/*_test.go", "*/example*_test.go", "*/*/example*_test.go", "*/*.go", "middleware/*/*.go", "examples/*/*.go"} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range found {
			if !strings.HasSuffix(file, "_test.go") || strings.Contains(file, "example") || strings.HasPrefix(file, "docs/") {
				files = append(files, file)
			}
		}
	}
	n := 0
	for _, file := range files {
		for _, match := range routes.FindAllStringSubmatch(read(t, file), -1) {
			if n++; !named.MatchString(match[1]) {
				t.Errorf("%s: %s has no method", file, match[0])
			}
		}
	}
	if n < 40 {
		t.Errorf("found only %d routes", n)
	}
}
