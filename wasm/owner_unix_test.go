//go:build unix

package wasm

import (
	"io/fs"
	"os"
	"syscall"
	"testing"
)

type ownedBy struct {
	fs.FileInfo
	user int
}

func (o ownedBy) Sys() any { return &syscall.Stat_t{Uid: uint32(o.user)} }

// A directory of another user is refused whatever its mode: root could enter it, and would execute
// what that user put there.
func TestCacheDirOfAnotherUser(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := checkCacheDir(dir); err != nil {
		t.Error(err)
	}
	info, err := os.Stat(dir)
	if err != nil {
		t.Fatal(err)
	}
	for user, want := range map[int]bool{os.Geteuid(): false, os.Geteuid() + 1: true} {
		if err := notOurs(dir, ownedBy{info, user}); (err != nil) != want {
			t.Errorf("owned by %d, the process being %d: %v", user, os.Geteuid(), err)
		}
	}
}
