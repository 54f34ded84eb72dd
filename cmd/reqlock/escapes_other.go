//go:build !windows

package main

import "os"

func showsEscapes(*os.File) bool { return true }
