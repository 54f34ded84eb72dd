package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// The go.mod files require our modules as the version that comes next, and the documentation says how
// to install each module.
func TestRepository(t *testing.T) {
	version, err := versionIn("../..")
	if err != nil {
		t.Fatal(err)
	}
	modules, err := findModules("../..")
	if err != nil {
		t.Fatal(err)
	}
	if err := checkVersion(modules, version); err != nil {
		t.Error(err)
	}
	commands, err := documented("../..")
	if err != nil {
		t.Fatal(err)
	}
	if err := checkDocumented(modules, commands); err != nil {
		t.Error(err)
	}
	got := tags(modules, version)
	for _, want := range []string{version, "caddy/" + version, "middleware/fiber/" + version} {
		if !slices.Contains(got, want) {
			t.Errorf("the tags are %q, without %s", got, want)
		}
	}
	if got[0] != version || slices.Index(got, "promreqlock/"+version) > slices.Index(got, "caddy/"+version) {
		t.Errorf("the tags are %q; want a module after those that it requires", got)
	}
	if slices.ContainsFunc(got, func(tag string) bool { return strings.HasPrefix(tag, "internal") || strings.HasPrefix(tag, "examples") }) {
		t.Errorf("the tags are %q; want none of modules that nobody installs", got)
	}
}

// repository makes one with two modules, of which the second requires the first.
func repository(t *testing.T, required string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"version.go":            "package reqlock\n\nconst Version = \"1.2.3\"\n",
		"go.mod":                "module " + root + "\n\ngo 1.26\n",
		"README.md":             "```sh\n$ go get " + root + " example.test/other\n```\n",
		"docs/guides/plugin.md": "Run `xcaddy build --with " + root + "/plugin`, or `go get " + root + " example.test/other`.\n",
		"plugin/go.mod": "module " + root + "/plugin\n\ngo 1.26\n\nrequire (\n\texample.test/other v0.0.0\n\t" + root + " " + required + " // indirect\n)\n\n" +
			"replace " + root + " => ../\n",
		"tools/go.mod": "module " + root + "/tools\n\ngo 1.26\n\nrequire " + root + " " + required + "\n",
	} {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := exec.Command("git", "-C", dir, "init", "-q").CombinedOutput(); err != nil {
		t.Fatalf("git init: %v %s", err, out)
	}
	return dir
}

func TestVersion(t *testing.T) {
	dir := repository(t, "v0.0.0")
	version, err := versionIn(dir)
	if err != nil || version != "v1.2.3" {
		t.Fatalf("version %q, %v", version, err)
	}
	modules, err := findModules(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := checkVersion(modules, version); err == nil || !strings.Contains(err.Error(), "requires "+root+" v0.0.0, but version.go says v1.2.3") {
		t.Errorf("another version is required: %v", err)
	}
	if err := setVersion(modules, version); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(dir, "plugin", "go.mod"))
	if want := "\texample.test/other v0.0.0\n\t" + root + " v1.2.3 // indirect\n"; err != nil || !strings.Contains(string(text), want) {
		t.Errorf("%v, %s; want %s", err, text, want)
	}
	modules, err = findModules(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := checkVersion(modules, version); err != nil {
		t.Error(err)
	}
	if got := tags(modules, version); !slices.Equal(got, []string{"v1.2.3", "plugin/v1.2.3"}) {
		t.Errorf("the tags are %q", got)
	}
}

func TestDocumented(t *testing.T) {
	dir := repository(t, "v1.2.3")
	commands, err := documented(dir)
	if err != nil {
		t.Fatal(err)
	}
	want := []command{
		{"README.md", "go get " + root + " example.test/other"},
		{"plugin.md", "xcaddy build --with " + root + "/plugin"},
	}
	if !slices.Equal(commands, want) {
		t.Errorf("the commands are %q, want %q", commands, want)
	}
	modules, err := findModules(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := checkDocumented(modules, commands); err != nil {
		t.Error(err)
	}
	if err := checkDocumented(modules, commands[:1]); err == nil || !strings.Contains(err.Error(), root+"/plugin") {
		t.Errorf("a module that no page installs: %v", err)
	}
}

// A published module has all of its files, and none of other modules in it.
func TestPublish(t *testing.T) {
	dir := repository(t, "v1.2.3")
	modules, err := findModules(dir)
	if err != nil {
		t.Fatal(err)
	}
	proxy := t.TempDir()
	for _, m := range modules {
		if m.published() {
			if err := publish(m, dir, proxy, "v1.2.3"); err != nil {
				t.Fatal(err)
			}
		}
	}
	download := exec.Command("go", "mod", "download", "-json", root+"@v1.2.3", root+"/plugin@v1.2.3")
	download.Dir = t.TempDir()
	cache := t.TempDir()
	download.Env = append(os.Environ(), "GOPROXY=file://"+proxy, "GONOSUMDB="+root+","+root+"/*", "GOMODCACHE="+cache, "GOFLAGS=-modcacherw")
	if out, err := download.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	at := filepath.Join(cache, filepath.FromSlash(root)+"@v1.2.3")
	if _, err := os.Stat(filepath.Join(at, "docs", "guides", "plugin.md")); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(at, "plugin")); !os.IsNotExist(err) {
		t.Errorf("the root module has the files of another: %v", err)
	}
}

// A version whose names are not recorded is not released. Those of this version are.
func TestCheckNames(t *testing.T) {
	t.Parallel()
	version, err := versionIn("../..")
	if err != nil {
		t.Fatal(err)
	}
	if err := checkNames("../..", version); err != nil {
		t.Error(err)
	}
	if err := checkNames("../..", "v99.0.0"); err == nil || !strings.Contains(err.Error(), "v99.0.0.txt is missing; run make api WRITE=1") {
		t.Errorf("no file: %v", err)
	}
}
