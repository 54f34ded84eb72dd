package wasm

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"runtime"
	"time"
)

// Config bounds what a plugin may do. The zero value is a good start.
type Config struct {
	// Settings is what the guest gets from get_config: text in whatever form it expects.
	Settings []byte
	// Timeout is how long one call of the guest may take. 0: 50ms. It is never off.
	Timeout time.Duration
	// InitTimeout is how long the start of an instance may take. 0: 5s.
	InitTimeout time.Duration
	// MaxInstances is how many calls run at the same time, each in an instance of its own; further ones wait for as long as their
	// request's context allows. 0: twice GOMAXPROCS.
	MaxInstances int
	// MemoryLimit is how many bytes of linear memory an instance may have, in whole pages of 64 KiB. 0: 16 MiB.
	MemoryLimit uint64
	// MaxBody is how many bytes of a request's body a guest can read. 0: 64 KiB.
	MaxBody int64
	// MaxWait and MaxLease are the longest times that a guest may set. 0: 30s and 10 minutes.
	MaxWait, MaxLease time.Duration
	// CacheDir keeps compiled code for the next start of the process. It holds machine code that is run as it is, so it must be
	// accessible to the user of the process only; it is made with mode 0700 if it is not there. Empty: no cache.
	CacheDir string
	// Logger takes what guests say and why calls have failed, with the plugin's name, at most 50 lines a second, and what
	// becomes of new versions. nil: slog.Default().
	Logger *slog.Logger
	// Watch lets a plugin made by Open follow its file: see there.
	Watch bool
}

// page is WebAssembly's unit of memory.
const page = 64 << 10

func (c Config) validate() error {
	var problems []error
	refuse := func(wrong bool, format string, args ...any) {
		if wrong {
			problems = append(problems, fmt.Errorf(format, args...))
		}
	}
	for _, d := range []struct {
		name  string
		value time.Duration
	}{{"Timeout", c.Timeout}, {"InitTimeout", c.InitTimeout}, {"MaxWait", c.MaxWait}, {"MaxLease", c.MaxLease}} {
		refuse(d.value < 0, "%s is %s; use 0 for the default, or a positive duration", d.name, d.value)
	}
	refuse(c.MaxInstances < 0, "MaxInstances is %d; use 0 for twice GOMAXPROCS, or a positive number", c.MaxInstances)
	refuse(c.MemoryLimit != 0 && (c.MemoryLimit < page || c.MemoryLimit > 4<<30), "MemoryLimit is %d; use 0 for 16 MiB, or a number of bytes from 64 KiB to 4 GiB", c.MemoryLimit)
	refuse(c.MaxBody < 0, "MaxBody is %d; use 0 for 64 KiB, or a positive number of bytes", c.MaxBody)
	if err := checkCacheDir(c.CacheDir); err != nil {
		problems = append(problems, err)
	}
	if len(problems) == 0 {
		return nil
	}
	return fmt.Errorf("reqlock: wasm: invalid Config: %w", errors.Join(problems...))
}

// checkCacheDir refuses a directory that others can write machine code into.
func checkCacheDir(dir string) error {
	if dir == "" {
		return nil
	}
	info, err := os.Stat(dir)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil // it will be made
	case err != nil:
		return fmt.Errorf("CacheDir: %w", err)
	case !info.IsDir():
		return fmt.Errorf("CacheDir %s is not a directory", dir)
	}
	return notOurs(dir, info)
}

// notOurs says why a directory is not the process's alone.
func notOurs(dir string, info fs.FileInfo) error {
	switch {
	case foreign(info):
		return fmt.Errorf("CacheDir %s belongs to another user, who must not be able to change what is run from it: use one of the process's own", dir)
	case runtime.GOOS != "windows" && info.Mode().Perm()&0o077 != 0:
		return fmt.Errorf("CacheDir %s has mode %04o; others must not be able to change what is run from it: use 0700", dir, info.Mode().Perm())
	}
	return nil
}

func (c Config) withDefaults() Config {
	c.Timeout = cmp.Or(c.Timeout, 50*time.Millisecond)
	c.InitTimeout = cmp.Or(c.InitTimeout, 5*time.Second)
	c.MaxInstances = cmp.Or(c.MaxInstances, 2*runtime.GOMAXPROCS(0))
	c.MemoryLimit = cmp.Or(c.MemoryLimit, 16<<20)
	c.MaxBody = cmp.Or(c.MaxBody, 64<<10)
	c.MaxWait = cmp.Or(c.MaxWait, 30*time.Second)
	c.MaxLease = cmp.Or(c.MaxLease, 10*time.Minute)
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	return c
}
