package main

import (
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

func TestRecord(t *testing.T) {
	t.Parallel()
	script := `printf 'first \n\n\nquoted\nlast <&>\n'`
	lines, err := record(t.TempDir(), []string{"sh", "-c", script}, regexp.MustCompile("^quoted"))
	if err != nil {
		t.Fatal(err)
	}
	var texts []string
	for _, l := range lines {
		texts = append(texts, l.text)
	}
	if got := strings.Join(texts, "|"); got != "first||last <&>" {
		t.Errorf("lines %q", got)
	}
	if _, err := record(".", []string{"sh", "-c", "exit 3"}, regexp.MustCompile("^$a")); err == nil {
		t.Error("a command that fails is recorded")
	}
}

func TestDraw(t *testing.T) {
	t.Parallel()
	image := draw("run <it>", []line{
		{"A shop & more", 0},
		{"POST /pay", time.Second},
		{"  A  order 42  ..####  200  waited  100ms", 2 * time.Second},
		{"  B  order 42  x       409  refused", 2 * time.Second},
		{"", 2 * time.Second},
		{"  . waits   # runs   x is refused   (one for 50ms)", 2 * time.Second},
		{"$ reqlock ls", 3 * time.Second},
	})
	decoder := xml.NewDecoder(strings.NewReader(image))
	for {
		if _, err := decoder.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatalf("%v in\n%s", err, image)
		}
	}
	for _, want := range []string{
		`<title>run &lt;it&gt;</title>`, "A shop &amp; more\nPOST /pay\n",
		`<text class="head show" x="18.0" y="94" textLength="75.6" style="animation-delay:1600ms">POST /pay</text>`,
		// The bars start with the section: two characters of waiting, then four of running.
		`class="wait grow" x="144.0" y="105" width="15.8" height="12" rx="2" style="animation-delay:1600ms;animation-duration:100ms"`,
		`class="run grow" x="160.8" y="105" width="32.6" height="12" rx="2" style="animation-delay:1700ms;animation-duration:200ms"`,
		`style="animation-delay:1900ms">200</text>`, `<text class="no show"`, `class="refused grow"`,
		`<text class="head show" x="34.8" y="199" textLength="84.0" style="animation-delay:3600ms">reqlock ls</text>`,
	} {
		if !strings.Contains(image, want) {
			t.Errorf("no %s in\n%s", want, image)
		}
	}
}

func TestRun(t *testing.T) {
	t.Parallel()
	out := filepath.Join(t.TempDir(), "out.svg")
	if err := run(out, ".", "echo", "^$a", []string{"echo", "hello"}); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(out); err != nil || !strings.Contains(string(text), ">hello</text>") {
		t.Errorf("%s (%v)", text, err)
	}
	if err := run("", ".", "", "", nil); err == nil {
		t.Error("nothing to do is no error")
	}
	if err := run(out, ".", "", "(", []string{"echo"}); err == nil {
		t.Error("a wrong pattern is no error")
	}
}
