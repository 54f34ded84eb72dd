//go:build !unix

package wasm

import "io/fs"

// foreign is not told by the mode and owner of a file here.
func foreign(fs.FileInfo) bool { return false }
