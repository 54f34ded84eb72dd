package caddylock

import (
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/reqlock/reqlock/keyfuncs"
)

// Every placeholder in the documentation of Caddy's HTTP app is a source, or is refused with a
// reason.
func TestParseKey_DocumentedPlaceholders(t *testing.T) {
	t.Parallel()
	file, _ := runtime.FuncForPC(reflect.ValueOf(caddyhttp.NewTestReplacer).Pointer()).FileLine(0)
	doc, err := os.ReadFile(filepath.Join(filepath.Dir(file), "app.go"))
	if err != nil {
		t.Fatal(err)
	}
	rows := regexp.MustCompile("(?m)^// `\\{(http\\.[^}]+)\\}` \\|").FindAllStringSubmatch(string(doc), -1)
	if len(rows) < 50 {
		t.Fatalf("%s has %d placeholders", file, len(rows))
	}
	refused := []string{"http.request.body", "http.request.body_base64", "http.request.duration", "http.request.duration_ms", "http.request.uuid",
		"http.request.remote", "http.request.remote.port", "http.request.uri_escaped", "http.request.uri.path_escaped", "http.response.header.0"}
	for _, row := range rows {
		name := strings.ReplaceAll(row[1], "*", "0")
		fn, err := parseKey("{" + name + "}")
		if isRefused := slices.Contains(refused, name); isRefused != (err != nil) || isRefused != (fn == nil) {
			t.Errorf("{%s}: %v", name, err)
		}
	}
}

// A key has the sources that keyfuncs lists when a template names none of them, and no others. Those
// that Caddy does not leave to keyfuncs are its own or refused.
func TestParseKey_SourcesOfKeyfuncs(t *testing.T) {
	t.Parallel()
	_, err := keyfuncs.ParseTemplate("{nothing}")
	if err == nil {
		t.Fatal("keyfuncs accepts {nothing}")
	}
	_, list, _ := strings.Cut(err.Error(), "; want ")
	listed := regexp.MustCompile(`[a-z]+(\.[a-zA-Z]+)?`).FindAllString(strings.Replace(list, " or ", " ", 1), -1)
	if !slices.Contains(listed, "header.NAME") || !slices.Contains(listed, "body.hash") {
		t.Fatalf("no list of sources: %v", err)
	}
	var left []string
	for _, name := range listed {
		kind, _, _ := strings.Cut(name, ".")
		if kind == "path" || kind == "pattern" {
			continue
		}
		left = append(left, kind)
		if fn, err := source(strings.Replace(name, "POINTER", "/a", 1)); fn != nil || err != nil {
			t.Errorf("{%s} is not the source of keyfuncs: %v", name, err)
		}
	}
	if slices.Sort(left); !slices.Equal(slices.Compact(left), slices.Sorted(slices.Values(kindsOfKeyfuncs))) {
		t.Errorf("keyfuncs has %q, and Caddy leaves it %q", left, kindsOfKeyfuncs)
	}
	if fn, err := source("path.0"); fn == nil || err != nil {
		t.Errorf("{path.0} is not Caddy's: %v", err)
	}
	if _, err := source("pattern"); err == nil {
		t.Error("{pattern} is accepted")
	}
}
