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
