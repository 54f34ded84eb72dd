package wasm

import (
	"errors"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/reqlock/reqlock/guard"
)

// langFiles are the sources in wasm/LANGUAGES.md.
var langFiles = map[string]string{
	"go":   "go/main.go",
	"c":    "c/policy.c",
	"rust": "rust/src/lib.rs",
	"as":   "assemblyscript/policy.ts",
}

// langPolicy implements the policy of wasm/LANGUAGES.md, without its limit of requests.
func langPolicy(r *http.Request, p *guard.Policy) error {
	tenants := r.Header["X-Tenant"]
	switch {
	case r.URL.EscapedPath() == "/health":
		p.Skip = true
		return nil
	case len(tenants) != 1 || tenants[0] == "" || len(tenants[0]) > 64:
		e := denied(http.StatusBadRequest, "X-Tenant is missing")
		e.Reason = "no-tenant"
		return e
	}
	p.Keys = tenants
	if r.Method == http.MethodGet || r.Method == http.MethodHead {
		p.Mode = guard.ModeRead
	} else {
		p.Mode, p.WaitTime = guard.ModeWrite, 2*time.Second
	}
	return nil
}

// langGuest returns the guest of a language. The one in Go is not in the repository, because it is
// large.
func langGuest(t *testing.T, lang string) *Plugin {
	t.Helper()
	if _, err := os.Stat(filepath.Join(*guestsDir, "lang-"+lang+".wasm")); lang == "go" && errors.Is(err, os.ErrNotExist) {
		if testing.Short() {
			t.Skip("builds a program")
		}
		file := filepath.Join(t.TempDir(), "policy.wasm")
		build := exec.Command("go", "build", "-buildvcs=false", "-buildmode=c-shared", "-ldflags=-s -w", "-o", file, "./testdata/lang/go")
		build.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm", "CGO_ENABLED=0", "GOFLAGS=")
		if out, err := build.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		code, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		return startBinary(t, code, Config{})
	}
	return start(t, "lang-"+lang, Config{})
}

// The policy of wasm/LANGUAGES.md is the same in each language.
func TestLanguages(t *testing.T) {
	t.Parallel()
	for lang := range langFiles {
		t.Run(lang, func(t *testing.T) {
			t.Parallel()
			p := langGuest(t, lang)
			for _, r := range table() {
				got, want := ask(t, p.Policy, r()), ask(t, langPolicy, r())
				if !reflect.DeepEqual(got, want) {
					t.Errorf("%s %.80s %.70q:\n got %+v\nwant %+v", r().Method, r().URL, r().Header, got, want)
				}
			}
			for i := range 1001 {
				v := ask(t, p.Policy, request("GET", "/", "", "many"))
				if over := i >= 1000; over != (v.Denial.Status == http.StatusTooManyRequests) {
					t.Fatalf("request %d: %+v", i+1, v)
				} else if over && (v.Denial.RetryAfter != time.Minute || v.Denial.Type != guard.ProblemPluginDenied+":rate-limited" || v.Denial.Detail != "Too many requests") {
					t.Errorf("%+v", v.Denial)
				}
			}
		})
	}
}

// The page shows the sources that TestLanguages runs.
func TestLanguages_Documentation(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("LANGUAGES.md")
	if err != nil {
		t.Fatal(err)
	}
	for lang, file := range langFiles {
		source, err := os.ReadFile(filepath.Join("testdata/lang", file))
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(page), "\n"+string(source)+"```\n") {
			t.Errorf("the page does not have the source in %s, %s", lang, file)
		}
	}
}
