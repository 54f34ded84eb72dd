package main

import (
	"bytes"
	"io"
	"mime/multipart"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/reqlock/reqlock/examples/internal/demotest"
)

func TestMain(m *testing.M) { demotest.Main(m) }

// A repeated upload gets the first answer, and its file is stored once. Another file under the same
// key is refused.
func TestUpload(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("DIR", dir)
	p := demotest.Start(t, "")
	p.Until(t, "Serving until Ctrl-C.")
	url := p.URL(t) + "/files"
	first := upload(t, url, "k1", "one")
	if first.Status != 201 || !strings.HasPrefix(first.Body, "notes.txt is stored as ") {
		t.Fatalf("answer %+v", first)
	}
	if again := upload(t, url, "k1", "one"); again != first {
		t.Errorf("a repeat got %+v, the first %+v", again, first)
	}
	if other := upload(t, url, "k1", "two"); other.Status != 422 {
		t.Errorf("another file under the same key: %+v", other)
	}
	if next := upload(t, url, "k2", "one"); next.Status != 201 || next.Body == first.Body {
		t.Errorf("another key got %+v, the first %+v", next, first)
	}
	if large := upload(t, url, "k3", strings.Repeat("x", largest)); large.Status != 413 {
		t.Errorf("a file that is too large: %+v", large)
	}
	if files, err := os.ReadDir(dir); err != nil || len(files) != 2 {
		t.Errorf("stored files %v (%v), want 2", files, err)
	}
	p.Signal(t, syscall.SIGTERM)
	p.End(t, 0)
}

// upload sends a form with a new boundary, as clients do for each attempt.
func upload(t *testing.T, url, key, content string) demotest.Answer {
	t.Helper()
	var body bytes.Buffer
	form := multipart.NewWriter(&body)
	part, err := form.CreateFormFile("file", "notes.txt")
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.WriteString(part, content) // into memory
	_ = form.Close()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, &body)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", form.FormDataContentType())
	request.Header.Set("Idempotency-Key", key)
	request.Header.Set("X-Account", "anna")
	request.Header.Set("Expect", "100-continue") // The server may refuse the body before it is sent.
	return demotest.Do(t, request)
}

func TestFailures(t *testing.T) {
	t.Parallel()
	demotest.Failures(t)
}
