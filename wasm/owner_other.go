//go:build !unix

package wasm

import "io/fs"

// foreign returns false: this platform's FileInfo does not tell a file's owner.
func foreign(fs.FileInfo) bool { return false }
