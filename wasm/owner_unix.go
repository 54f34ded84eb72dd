//go:build unix

package wasm

import (
	"io/fs"
	"os"
	"syscall"
)

// foreign reports whether a file belongs to a user other than the process's.
func foreign(info fs.FileInfo) bool {
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(stat.Uid) != os.Geteuid()
}
