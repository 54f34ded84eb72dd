package main

import (
	"context"
	"html"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"
)

// browse opens the page in Chromium and returns the page when nothing is left to do.
func (s *service) browse(fragment string) string {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.Context(), 2*time.Minute)
	defer cancel()
	args := []string{
		"--headless", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--user-data-dir=" + s.TempDir(),
		// Virtual time stops while requests are in flight.
		"--virtual-time-budget=60000", "--dump-dom",
		s.url + "/#" + fragment,
	}
	if os.Getuid() == 0 {
		args = append([]string{"--no-sandbox"}, args...) // root cannot use the sandbox
	}
	cmd := exec.CommandContext(ctx, chromium(s.T), args...)
	var errors strings.Builder
	cmd.Stderr = &errors
	out, err := cmd.Output()
	if err != nil {
		s.Fatalf("chromium: %v\n%s", err, errors.String())
	}
	return html.UnescapeString(string(out))
}

// chromium returns the path of the browser; see scripts/install-test-tools.sh.
func chromium(t *testing.T) string {
	t.Helper()
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome", "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	t.Fatal("chromium is missing: run make test-tools")
	return ""
}

// items returns the texts of the list with that id.
func items(t *testing.T, page, id string) (texts []string) {
	t.Helper()
	list := regexp.MustCompile(`(?s)<[ou]l id="` + id + `">(.*?)</[ou]l>`).FindStringSubmatch(page)
	if list == nil {
		t.Fatalf("there is no list %s:\n%s", id, page)
	}
	for _, item := range regexp.MustCompile(`(?s)<li[^>]*>(.*?)</li>`).FindAllStringSubmatch(list[1], -1) {
		texts = append(texts, item[1])
	}
	return texts
}

// count returns how many of the texts match a pattern.
func count(texts []string, pattern string) (n int) {
	for _, text := range texts {
		if regexp.MustCompile(pattern).MatchString(text) {
			n++
		}
	}
	return n
}

func TestBrowser(t *testing.T) {
	t.Parallel()
	s := start(t)

	page := s.browse("five")
	answers, ledger := items(t, page, "answers"), items(t, page, "ledger")
	if !strings.Contains(page, "Done: five.") || len(answers) != 5 ||
		count(answers, `^201 \{"id":"ch_1"`) != 1 || count(answers, `^201 replayed \{"id":"ch_1"`) != 4 {
		t.Errorf("answers %q", answers)
	}
	if len(ledger) != 1 || ledger[0] != "ch_1: anna pays 10 to bert" || !strings.Contains(page, "The bank was called 1 times and charged 1 times.") {
		t.Errorf("ledger %q", ledger)
	}

	page = s.browse("crash")
	answers, ledger = items(t, page, "answers"), items(t, page, "ledger")
	// Chromium may retry the lost request itself: then the page sees no loss, and maybe a replay.
	n := len(answers)
	if !strings.Contains(page, "Done: crash.") || n == 0 || count(answers, "^201 ") != 1 || count(answers, "^no answer: |^409 ") != n-1 ||
		!strings.HasPrefix(answers[n-1], "201 ") || !strings.HasSuffix(answers[n-1], `{"id":"ch_2","to":"carla","amount":25}`) {
		t.Errorf("answers %q", answers)
	}
	if len(ledger) != 2 || count(ledger, "^ch_2: anna pays 25 to carla$") != 1 ||
		!strings.Contains(page, "The bank was called 3 times and charged 2 times.") {
		t.Errorf("ledger %q", ledger)
	}
	if t.Failed() {
		t.Log(page)
	}
	s.program.Until(t, "The API crashed")
	s.stop()
}
