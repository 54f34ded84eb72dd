package docs_test

import (
	"fmt"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// A house is the drawing of ARCHITECTURE.md. A room is a package or all packages below a folder.
type house struct {
	// floor counts from the top. The laboratory is on none.
	floor map[string]int
	lab   map[string]bool
	// arrows lead from a room to those that it imports.
	arrows map[string]map[string]bool
}

const laboratory = "Laboratory"

var (
	drawnFloor = regexp.MustCompile(`^\s*subgraph \w+\["(.+)"\]$`)
	drawnRoom  = regexp.MustCompile(`^\s*(\w+)\["(.+)"\]$`)
	drawnArrow = regexp.MustCompile(`^\s*(\w+) --> (\w+(?: & \w+)*)$`)
)

// drawn reads the drawing in the text of a page.
func drawn(t *testing.T, page string) house {
	t.Helper()
	h := house{map[string]int{}, map[string]bool{}, map[string]map[string]bool{}}
	_, rest, _ := strings.Cut(page, "```mermaid\n")
	drawing, _, found := strings.Cut(rest, "```")
	if !found {
		t.Fatal("the page has no drawing")
	}
	rooms := make(map[string]string)
	floors, inLab := 0, false
	for line := range strings.Lines(drawing) {
		line = strings.TrimRight(line, "\n")
		if m := drawnFloor.FindStringSubmatch(line); m != nil {
			floors, inLab = floors+1, m[1] == laboratory
		} else if m := drawnRoom.FindStringSubmatch(line); m != nil {
			rooms[m[1]] = m[2]
			h.lab[m[2]] = inLab
			h.floor[m[2]] = floors
		} else if m := drawnArrow.FindStringSubmatch(line); m != nil {
			for to := range strings.SplitSeq(m[2], " & ") {
				if rooms[m[1]] == "" || rooms[to] == "" {
					t.Fatalf("the drawing has an arrow without a room: %s", line)
				}
				add(h.arrows, rooms[m[1]], rooms[to])
			}
		} else if line := strings.TrimSpace(line); line != "flowchart TD" && line != "end" {
			t.Fatalf("the drawing has a line that is no floor, room or arrow: %s", line)
		}
	}
	return h
}

func add(arrows map[string]map[string]bool, from, to string) {
	if arrows[from] == nil {
		arrows[from] = make(map[string]bool)
	}
	arrows[from][to] = true
}

// room returns the room of a package: the longest that it is in.
func (h house) room(pkg string) string {
	for dir := pkg; ; dir = path.Dir(dir) {
		if _, known := h.floor[dir]; known && (dir != "." || pkg == ".") {
			return dir
		}
		if dir == "." {
			return ""
		}
	}
}

// imported returns what each package of the repository imports of the others, except in tests. It
// reads the source, so it covers all modules and platforms.
func imported(t *testing.T) map[string]map[string]bool {
	t.Helper()
	const module = "github.com/reqlock/reqlock"
	packages := make(map[string]map[string]bool)
	root := os.DirFS(".")
	err := fs.WalkDir(root, ".", func(file string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() && file != "." && (entry.Name() == "testdata" || strings.HasPrefix(entry.Name(), ".")) {
			return fs.SkipDir
		}
		if entry.IsDir() || !strings.HasSuffix(file, ".go") {
			return nil
		}
		pkg := path.Dir(file)
		if packages[pkg] == nil {
			packages[pkg] = make(map[string]bool)
		}
		if strings.HasSuffix(file, "_test.go") {
			return nil
		}
		text, err := fs.ReadFile(root, file)
		if err != nil {
			return err
		}
		source, err := parser.ParseFile(token.NewFileSet(), file, text, parser.ImportsOnly)
		if err != nil {
			return err
		}
		for _, spec := range source.Imports {
			name, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				return err
			}
			if name == module {
				packages[pkg]["."] = true
			} else if own, ok := strings.CutPrefix(name, module+"/"); ok {
				packages[pkg][own] = true
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return packages
}

// reaches reports whether a way of two or more arrows leads from one room to another.
func reaches(arrows map[string]map[string]bool, from, to string) bool {
	seen := make(map[string]bool)
	var visit func(room string) bool
	visit = func(room string) bool {
		for next := range arrows[room] {
			if room == from && next == to || seen[next] {
				continue
			}
			seen[next] = true
			if next == to || visit(next) {
				return true
			}
		}
		return false
	}
	return visit(from)
}

// faults compares the drawing with the imports.
func (h house) faults(packages map[string]map[string]bool) (faults []string) {
	fault := func(format string, args ...any) { faults = append(faults, fmt.Sprintf(format, args...)) }
	all := make(map[string]map[string]bool)
	for _, pkg := range slices.Sorted(maps.Keys(packages)) {
		from := h.room(pkg)
		if from == "" {
			fault("%s is in no room of the drawing", pkg)
			continue
		}
		for _, other := range slices.Sorted(maps.Keys(packages[pkg])) {
			to := h.room(other)
			switch {
			case to == "" || h.lab[from] || from == to:
			case h.lab[to]:
				fault("%s ships, and imports %s of the laboratory", pkg, other)
			case h.floor[to] < h.floor[from]:
				fault("%s imports %s, which is on a higher floor", pkg, other)
			default:
				add(all, from, to)
			}
		}
	}
	want := make(map[string]map[string]bool)
	for from, targets := range all {
		for to := range targets {
			if !reaches(all, from, to) {
				add(want, from, to)
			}
		}
	}
	for _, from := range slices.Sorted(maps.Keys(h.floor)) {
		for _, to := range slices.Sorted(maps.Keys(want[from])) {
			if !h.arrows[from][to] {
				fault("the drawing lacks the arrow from %s to %s", from, to)
			}
		}
		for _, to := range slices.Sorted(maps.Keys(h.arrows[from])) {
			if !want[from][to] {
				fault("the drawing has an arrow from %s to %s, where there is no import, or one that follows from others", from, to)
			}
		}
	}
	return faults
}

// ARCHITECTURE.md draws the floors and names each package, imports go down, and nothing that ships
// imports the laboratory.
func TestArchitecture(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("ARCHITECTURE.md")
	if err != nil {
		t.Fatal(err)
	}
	page := string(text)
	if words := len(strings.Fields(page)); words > 900 {
		t.Errorf("the page has %d words, want at most 900", words)
	}
	packages := imported(t)
	for _, fault := range drawn(t, page).faults(packages) {
		t.Error(fault)
	}
	for pkg := range packages {
		inner := regexp.MustCompile(`^(core/internal|examples|internal/lab|tools)/`).MatchString(pkg)
		if pkg != "." && !inner && !strings.Contains(page, "`"+pkg+"`") {
			t.Errorf("the page does not say what belongs in %s", pkg)
		}
	}
}

// Each kind of fault is found.
func TestArchitecture_Faults(t *testing.T) {
	t.Parallel()
	const page = "```mermaid\nflowchart TD\n  subgraph a[\"Above\"]\n    top[\"top\"]\n  end\n  subgraph b[\"Below\"]\n    low[\"low\"]\n    leaf[\"low/leaf\"]\n  end\n" +
		"  subgraph l[\"Laboratory\"]\n    lab[\"lab\"]\n  end\n  top --> low\n  low --> leaf\n```\n"
	for name, test := range map[string]struct {
		packages map[string]map[string]bool
		want     string
	}{
		"none":            {map[string]map[string]bool{"top": {"low": true, "low/leaf/x": true}, "low": {"low/leaf": true}, "lab/y": {"top": true}}, ""},
		"upward":          {map[string]map[string]bool{"top/z": {"low": true}, "low": {"low/leaf": true, "top": true}}, "low imports top, which is on a higher floor"},
		"the laboratory":  {map[string]map[string]bool{"top": {"low": true, "lab/y": true}, "low": {"low/leaf": true}}, "top ships, and imports lab/y of the laboratory"},
		"a package":       {map[string]map[string]bool{"top": {"low": true}, "low": {"low/leaf": true}, "shed": {}}, "shed is in no room of the drawing"},
		"a missing arrow": {map[string]map[string]bool{"top": {"low": true}, "low": {"low/leaf": true}, "low/leaf": {"low": true}}, "the drawing lacks the arrow from low/leaf to low"},
		"a wrong arrow":   {map[string]map[string]bool{"top": {"low/leaf": true}, "low": {"low/leaf": true}}, "the drawing has an arrow from top to low, where there is no import, or one that follows from others"},
	} {
		if faults := strings.Join(drawn(t, page).faults(test.packages), "; "); !strings.Contains(faults, test.want) || test.want == "" && faults != "" {
			t.Errorf("%s: %q, want %q", name, faults, test.want)
		}
	}
}
