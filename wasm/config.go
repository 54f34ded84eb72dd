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

// Config limits a plugin. The zero value has sensible defaults.
type Config struct {
	// Settings is the text that the guest reads with get_config. Its format is up to the guest.
	Settings []byte
	// Timeout limits one call of the guest. 0 means 50ms. It cannot be disabled.
	Timeout time.Duration
	// InitTimeout limits the start of an instance. 0 means 5s.
	InitTimeout time.Duration
	// MaxInstances limits the calls that run at the same time, each in its own instance. Further
	// calls wait until their request's context ends. 0 means twice GOMAXPROCS.
	MaxInstances int
	// MemoryLimit limits the linear memory of an instance, in bytes, in whole pages of 64 KiB. 0
	// means 16 MiB.
	MemoryLimit uint64
	// MaxBody is the largest request body, in bytes, that a guest can read. 0 means 64 KiB.
	MaxBody int64
	// MaxWait and MaxLease limit the times that a guest may set. 0 means 30s and 10 minutes.
	MaxWait, MaxLease time.Duration
	// CacheDir stores compiled code for the next start of the process. The process executes that
	// code, so no other user may have access to the directory. It is created with mode 0700 if it
	// does not exist. Empty means no cache.
	CacheDir string
	// Logger receives what guests log and why calls failed, with the plugin's name, at most 50
	// lines a second, and the result of loading new versions. nil means slog.Default().
	Logger *slog.Logger
	// Watch makes a plugin follow its file; see Open.
	Watch bool
}

// page is the WebAssembly page size.
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

// checkCacheDir rejects a directory that others can write machine code to.
func checkCacheDir(dir string) error {
	if dir == "" {
		return nil
	}
	info, err := os.Stat(dir)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil // wazero creates it
	case err != nil:
		return fmt.Errorf("CacheDir: %w", err)
	case !info.IsDir():
		return fmt.Errorf("CacheDir %s is not a directory", dir)
	}
	return notOurs(dir, info)
}

// notOurs returns an error if other users can change the contents of a directory.
func notOurs(dir string, info fs.FileInfo) error {
	switch {
	case foreign(info):
		return fmt.Errorf("CacheDir %s belongs to another user, who could replace the code that runs from it: use a directory of the process's user", dir)
	case runtime.GOOS != "windows" && info.Mode().Perm()&0o077 != 0:
		return fmt.Errorf("CacheDir %s has mode %04o, so others could replace the code that runs from it: use 0700", dir, info.Mode().Perm())
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
