package docs_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// All Go snippets of the README and docs/ are in the tests of this directory or in snippetSources,
// word for word. TestSnippets checks that.

// snippetSources are compiled elsewhere: in other packages, or in modules with other libraries.
var snippetSources = []string{
	"examples/first/main.go",
	"inspect/example_*_test.go",
	"internal/lab/interop/sql/*_test.go",
	"internal/lab/bench/*_test.go",
	"examples/wasm/plugin/main.go",
	"internal/lab/interop/frameworks/*/*_test.go",
	"middleware/*/*_test.go",
	"wasm/testdata/lang/go/main.go",
	"adapter/tutorial/*_test.go",
	"inspect/*_test.go",
	"*reqlock/*_test.go",
}

// indent puts tabs before every line that is not empty.
func indent(text string, tabs int) string {
	return regexp.MustCompile(`(?m)^.`).ReplaceAllString(text, strings.Repeat("\t", tabs)+"$0")
}

func TestSnippets(t *testing.T) {
	t.Parallel()
	var source strings.Builder
	sources, err := filepath.Glob("docs/*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, pattern := range snippetSources {
		more, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		sources = append(sources, more...)
	}
	for _, path := range sources {
		source.WriteString(read(t, path))
	}
	n := 0
	for path, text := range documents(t) {
		snippets := blocks(text, "go")
		for _, snippet := range snippets {
			n++
			if !slices.ContainsFunc([]int{0, 1, 2, 3}, func(tabs int) bool { return strings.Contains(source.String(), "\n"+indent(snippet, tabs)) }) {
				t.Errorf("a snippet of %s is neither in a test of this directory nor in snippetSources:\n%s", path, snippet)
			}
		}
		if fences := strings.Count(text, "```go"); fences != len(snippets) {
			t.Errorf("%s has %d Go snippets, but only %d are checked: they must not be indented", path, fences, len(snippets))
		}
	}
	if n < 10 {
		t.Errorf("found only %d snippets", n)
	}
}

// Links lead to files that exist, and to sections that they have.
func TestLinks(t *testing.T) {
	t.Parallel()
	link := regexp.MustCompile(`\]\(([^)#]*)(?:#([^)]+))?\)`)
	for path, text := range documents(t) {
		for _, picture := range regexp.MustCompile(`(?:srcset|src)="([^"]+)"`).FindAllStringSubmatch(text, -1) {
			if _, err := os.Stat(filepath.Join(filepath.Dir(path), picture[1])); err != nil {
				t.Errorf("%s: %v", path, err)
			}
		}
		for _, match := range link.FindAllStringSubmatch(text, -1) {
			if strings.Contains(match[1], "://") {
				continue
			}
			target := path
			if match[1] != "" {
				target = filepath.Join(filepath.Dir(path), match[1])
			}
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s: %v", path, err)
			} else if match[2] != "" && !slices.Contains(sections(read(t, target)), match[2]) {
				t.Errorf("%s: %s has no section #%s", path, target, match[2])
			}
		}
	}
}

// sections returns the anchors of the headings of a page.
func sections(page string) (anchors []string) {
	label := regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)
	notInAnchors := regexp.MustCompile(`[^\pL\pN_ -]`)
	for _, title := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllStringSubmatch(page, -1) {
		anchor := notInAnchors.ReplaceAllString(strings.ToLower(label.ReplaceAllString(title[1], "$1")), "")
		anchors = append(anchors, strings.ReplaceAll(anchor, " ", "-"))
	}
	return anchors
}

func TestCommands(t *testing.T) {
	t.Parallel()
	makefile := read(t, "Makefile")
	// Their tests, and make wasm-guests, build the plugins.
	plugins := read(t, "examples/wasm/plugin/main.go") + read(t, "wasm/include/reqlock.h") + read(t, "wasm/testdata/lang/README.md")
	for path, text := range documents(t) {
		for _, block := range blocks(text, "sh") {
			if strings.HasPrefix(block, "curl ") && strings.Contains(block, "locks.json") {
				continue // TestDrill of deploy runs it
			}
			for line := range strings.Lines(block) {
				command := strings.Fields(line)
				switch {
				case len(command) == 2 && command[0] == "make":
					if !strings.Contains(makefile, "\n"+command[1]+":") {
						t.Errorf("%s: the Makefile has no target for %q", path, line)
					}
				case len(command) == 3 && command[0] == "go" && command[1] == "run":
					if _, err := os.Stat(command[2]); err != nil {
						t.Errorf("%s: %q: %v", path, line, err)
					}
				case len(command) == 4 && strings.HasPrefix(line, "go run ./examples "):
					if _, err := os.Stat("examples/" + command[3]); err != nil {
						t.Errorf("%s: %q: %v", path, line, err)
					}
				case line == "mkdir ../shop && cd ../shop\n" || strings.HasPrefix(line, "go mod init ") || strings.HasPrefix(line, "go get github.com/reqlock/reqlock"):
				case len(command) == 5 && strings.HasPrefix(line, "go run -C "): // of another module, whose tests run it
					if _, err := os.Stat(filepath.Join(command[3], "main_test.go")); err != nil {
						t.Errorf("%s: %q: %v", path, line, err)
					}
				case len(command) > 3 && strings.Contains(plugins, strings.TrimSpace(line)+"\n"):
				default:
					t.Errorf("%s: no test checks the command %q", path, line)
				}
			}
		}
	}
}

// mostWords has the pages that may have more than 1,500 words, code included. Programs write most
// of the long ones. 0: any number.
var mostWords = map[string]int{
	"README.md":                 900,
	"docs/reference/options.md": 2300,
}

func TestPagesAreShort(t *testing.T) {
	t.Parallel()
	for path, text := range documents(t) {
		most, named := mostWords[path]
		if !named {
			most = 1500
		}
		if words := len(regexp.MustCompile(`\S*[A-Za-z0-9]\S*`).FindAllString(text, -1)); words > most && most > 0 {
			t.Errorf("%s has %d words, want at most %d", path, words, most)
		}
	}
}

// testedBlocks has the tests of code blocks, by language, and the pages they read. No page: all.
var testedBlocks = map[string]struct{ pages, test string }{
	"go":        {"", "TestSnippets"},
	"sh":        {"", "TestCommands"},
	"caddyfile": {"docs/guides/caddy.md", "TestDocs of caddy"},
	"console":   {"docs/guides/commands.md docs/guides/run.md", "TestDocumentation of cmd/reqlock"},
}

// Each guide begins with the reader's problem, in a short paragraph, and has its first example, a table
// or a text to copy soon after. Some of its code is run by a test.
func TestGuides(t *testing.T) {
	t.Parallel()
	_, guides, _ := strings.Cut(read(t, "mkdocs.yml"), "\n  - Guides:\n")
	guides, _, _ = strings.Cut(guides, "\n  - Reference:\n")
	pages := regexp.MustCompile(`(?m)^ +- [^:]+: (\S+\.md)$`).FindAllStringSubmatch(guides, -1)
	if len(pages) < 20 {
		t.Fatalf("found only %d guides", len(pages))
	}
	prose := regexp.MustCompile(`\A# .+\n\n([A-Za-z][^|]+?)\n\n`)
	first := regexp.MustCompile("(?m)^(```|\\||> )")
	fence := regexp.MustCompile("(?m)^```(\\w+)$")
	for _, p := range pages {
		page := "docs/" + p[1]
		text := read(t, page)
		if begin := prose.FindStringSubmatch(text); begin == nil {
			t.Errorf("%s does not begin with a title and a paragraph", page)
		} else if words := len(strings.Fields(begin[1])); words < 10 || words > 80 {
			t.Errorf("the first paragraph of %s has %d words, want 10 to 80", page, words)
		}
		before := text
		if at := first.FindStringIndex(text); at != nil {
			before = text[:at[0]]
		}
		if words := len(strings.Fields(before)); words > 130 {
			t.Errorf("%s has %d words before its first example, want at most 130", page, words)
		}
		if !slices.ContainsFunc(fence.FindAllStringSubmatch(text, -1), func(block []string) bool {
			tested, ok := testedBlocks[block[1]]
			return ok && (tested.pages == "" || slices.Contains(strings.Fields(tested.pages), page))
		}) {
			t.Errorf("%s has no code that a test runs", page)
		}
	}
}
