//go:build unix

package wasm

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// A pipe without a writer blocks neither Open nor the watch, nor Close.
func TestWatch_Pipe(t *testing.T) {
	t.Parallel()
	f := watchFile(t, keyed(t, "a"))
	pipe := f.path + ".new"
	if out, err := exec.Command("mkfifo", pipe).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if _, err := Open(t.Context(), pipe, f.cfg); err == nil || !strings.Contains(err.Error(), pipe+" is not a regular file") {
		t.Errorf("Open: %v", err)
	}
	if err := os.Rename(pipe, f.path); err != nil {
		t.Fatal(err)
	}
	f.awaitLog("is not a regular file", 1)
	if key := f.keys(); key != "key-a" {
		t.Errorf("the key is %q", key)
	}
	f.replace(keyed(t, "b"))
	f.awaitKey("key-b")
}
