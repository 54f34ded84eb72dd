package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/reqlock/reqlock/examples/internal/demotest"
	"github.com/reqlock/reqlock/guard"
	"github.com/reqlock/reqlock/wasm"
)

// With the race detector each program takes ten times as long to compile the plugin. Package wasm
// is tested with it.
func TestMain(m *testing.M) { demotest.Main(m, "-race=false") }

func TestDemonstration(t *testing.T) {
	t.Parallel()
	demotest.OnEachRedis(t, checkTimeline)
}

func checkTimeline(t *testing.T, output string) (missed string) {
	t.Helper()
	rows := make(map[string]demotest.Row)
	for _, r := range demotest.Rows(t, output, 5) {
		rows[r.Name] = r
		if r.Refused || r.Status != http.StatusOK || !strings.HasSuffix(r.Bar, "##########") {
			t.Errorf("row %+v", r)
		}
	}
	// A writes for 500ms. The readers come 50 and 100ms later, wait for A, and do not wait for each
	// other.
	for _, name := range []string{"B", "C"} {
		if waited := rows[name].Waited; waited < 200 {
			return fmt.Sprintf("reader %s waited %dms for a writer that works 500ms", name, waited)
		}
	}
	if b, c := rows["B"].Waited, rows["C"].Waited; b >= 500+c || c >= 500+b {
		return fmt.Sprintf("the readers have waited %dms and %dms: one for the other", b, c)
	}
	return ""
}

// A list has one key, however a client spells its path.
func TestKeys(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	plugin, err := wasm.Open(ctx, "plugin.wasm", wasm.Config{Timeout: startTime, InitTimeout: startTime})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := plugin.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	for path, want := range map[string]string{
		"/acme/stock":        "acme/stock",
		"/acme/stock?page=2": "acme/stock",
		"/%61cme/st%6Fck":    "acme/stock",
		"/acme/st%6fck?":     "acme/stock",
		"/acme:1/stock":      "acme:1/stock",
		"/acme/1:stock":      "acme/1:stock",
		"/acme%2fstock/1":    "acme%2Fstock/1",
		"/acme/stock%2F1":    "acme/stock%2F1",
		"/ac%20me/%C3%BC%ff": "ac%20me/%C3%BC%FF",
	} {
		var policy guard.Policy
		if err := plugin.Policy(httptest.NewRequest("POST", path, nil), &policy); err != nil || !slices.Equal(policy.Keys, []string{want}) {
			t.Errorf("%s: keys %q, %v; want %q", path, policy.Keys, err, want)
		}
	}
}

// An edited plugin, built with the example's command, takes effect in the running program.
func TestNewPolicy(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "plugin.wasm")
	old, err := os.ReadFile("plugin.wasm")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, old, 0o600); err != nil {
		t.Fatal(err)
	}
	p := demotest.Start(t, "", "-plugin", file)
	p.Until(t, "Serving until Ctrl-C.")
	base, rdb := p.URL(t), p.Redis(t)
	demotest.AwaitFree(t, rdb)
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	if a := <-demotest.Post(client, base+"/acme/stock", ""); a.Status != http.StatusOK {
		t.Errorf("with the old policy: %+v", a)
	}

	buildEdited(t, file, `lock.AddKey(canonical(tenant) + "/" + canonical(list))`, `lock.Deny(451, "not "+tenant+"'s "+list)`)
	p.Until(t, "new version of the plugin loaded")
	if a := <-demotest.Post(client, base+"/acme/stock", ""); a.Status != 451 || !strings.Contains(a.Body, `"detail":"not acme's stock"`) {
		t.Errorf("with the new policy: %+v", a)
	}
	p.Signal(t, os.Interrupt)
	p.End(t, 0)
}

// buildEdited builds the plugin with one line changed, with the command in its doc comment.
func buildEdited(t *testing.T, file, from, to string) {
	t.Helper()
	source, err := filepath.Abs("plugin/main.go")
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(source)
	if err != nil {
		t.Fatal(err)
	}
	edited := filepath.Join(t.TempDir(), "main.go")
	if err := os.WriteFile(edited, []byte(strings.Replace(string(text), from, to, 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{source: edited}})
	if err != nil {
		t.Fatal(err)
	}
	overlayFile := filepath.Join(t.TempDir(), "overlay.json")
	if err := os.WriteFile(overlayFile, overlay, 0o600); err != nil {
		t.Fatal(err)
	}
	build := exec.Command("go", "build", "-buildvcs=false", "-overlay", overlayFile, "-buildmode=c-shared", "-ldflags=-s -w", "-o", file, "./plugin")
	build.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm", "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

func TestSignalDuringDemonstration(t *testing.T) {
	t.Parallel()
	demotest.SignalDuringDemonstration(t)
}

func TestTerminates(t *testing.T) {
	t.Parallel()
	demotest.Terminates(t)
}

func TestFailures(t *testing.T) {
	t.Parallel()
	demotest.Failures(t)
}
