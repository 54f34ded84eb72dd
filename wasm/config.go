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
	// Timeout limits one call of the guest. 0 means 50ms. It cannot be disabled. It counts the time
	// for which the guest has run, and not the time for which the machine had no processor for it.
	// The wall clock ends a call too, after ten times Timeout.
	Timeout time.Duration
	// InitTimeout limits the compilation of a version, and the start of each instance. 0 means a
	// minute, because a busy machine may need many seconds for a large plugin. At most one version is
	// compiled at a time in a process; the wait for others does not count.
	InitTimeout time.Duration
	// MaxFile is the largest binary, in bytes. 0 means 16 MiB.
	MaxFile int64
	// MaxInstances limits the calls that run at the same time, each in its own instance. 0 means
	// one less than GOMAXPROCS, and at least 1: then a plugin that uses up its time on every request
	// leaves a processor to the rest of the program.
	MaxInstances int
	// MaxQueue limits the requests that wait for an instance, until their context ends. The next one
	// gets 503 plugin-busy. 0 means 256; -1 means that none waits.
	MaxQueue int
	// BreakAfter is how many calls in a row must fail with ErrTimeout, ErrTrap or ErrBadGuest, over at
	// least a second, for the plugin to be suspended. Requests then get 503 plugin-failed at once.
	// After BreakFor one call tries the plugin. If it succeeds, the plugin is called again, else it is
	// suspended for twice as long, up to a minute. 0 means 10; -1 means that the plugin is never
	// suspended.
	BreakAfter int
	// BreakFor is the first suspension. 0 means 1s.
	BreakFor time.Duration
	// FailOpen runs the handler without a lock if the plugin fails by its own fault: ErrTimeout,
	// ErrTrap, ErrBadGuest, ErrNoKey or ErrSuspended. Each such call is logged, within the limit of
	// Logger, and observed. It is dangerous: a client that finds a request on which the plugin fails
	// runs handlers without a lock, and if no request of others succeeds for a second, it can suspend
	// the plugin for all clients. Set it only where the lock saves work, and something else keeps the
	// data right.
	FailOpen bool
	// MemoryLimit limits the linear memory of an instance, in bytes, in whole pages of 64 KiB. 0
	// means 16 MiB.
	MemoryLimit uint64
	// MaxBody is the largest request body, in bytes, that a guest can read. 0 means 64 KiB.
	MaxBody int64
	// MaxWait limits how long a guest may let a request wait. 0 means 30s.
	MaxWait time.Duration
	// MaxLease limits the lease that a guest may set. 0 means 10 minutes.
	MaxLease time.Duration
	// SharedEntries limits the entries in the key-value memory that all instances of the plugin
	// share, also with its later versions. 0 means 1024.
	SharedEntries int
	// SharedBytes limits the size of that memory, in bytes. An entry uses its key, its value and
	// 128 bytes. 0 means 1 MiB.
	SharedBytes int64
	// Isolate runs each call in a new instance, so that a guest remembers nothing of earlier
	// requests but what is in the shared memory. It costs the start of an instance for each call:
	// microseconds for most guests, milliseconds for one in Go.
	Isolate bool
	// CacheDir stores compiled code for the next start of the process. The process executes that
	// code, so no other user may have access to the directory, and it may not be a symbolic link. It
	// is created with mode 0700 if it does not exist, and checked again before each use. Empty means
	// no cache.
	CacheDir string
	// Logger receives what guests log and why calls failed, with the plugin's name, at most 50
	// lines a second, and the result of loading new versions. nil means slog.Default().
	Logger *slog.Logger
	// Watch makes a plugin follow its file; see Open.
	Watch bool
	// Observer receives events, for metrics.
	Observer Observer
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
	}{{"Timeout", c.Timeout}, {"InitTimeout", c.InitTimeout}, {"MaxWait", c.MaxWait}, {"MaxLease", c.MaxLease}, {"BreakFor", c.BreakFor}} {
		refuse(d.value < 0, "%s is %s; use 0 for the default, or a positive duration", d.name, d.value)
	}
	refuse(c.MaxInstances < 0, "MaxInstances is %d; use 0 for one less than GOMAXPROCS, or a positive number", c.MaxInstances)
	refuse(c.MaxQueue < -1, "MaxQueue is %d; use 0 for 256, -1 for none, or a positive number", c.MaxQueue)
	refuse(c.BreakAfter < -1, "BreakAfter is %d; use 0 for 10, -1 for never, or a positive number", c.BreakAfter)
	refuse(c.MemoryLimit != 0 && (c.MemoryLimit < page || c.MemoryLimit > 4<<30), "MemoryLimit is %d; use 0 for 16 MiB, or a number of bytes from 64 KiB to 4 GiB", c.MemoryLimit)
	refuse(c.MaxFile < 0 || c.MaxFile > 1<<30, "MaxFile is %d; use 0 for 16 MiB, or a number of bytes up to 1 GiB", c.MaxFile)
	refuse(c.MaxBody < 0, "MaxBody is %d; use 0 for 64 KiB, or a positive number of bytes", c.MaxBody)
	refuse(c.SharedEntries < 0, "SharedEntries is %d; use 0 for 1024, or a positive number", c.SharedEntries)
	refuse(c.SharedBytes < 0, "SharedBytes is %d; use 0 for 1 MiB, or a positive number of bytes", c.SharedBytes)
	if c.CacheDir != "" && len(problems) == 0 {
		if err := makeCacheDir(c.CacheDir); err != nil {
			problems = append(problems, err)
		}
	}
	if len(problems) == 0 {
		return nil
	}
	return fmt.Errorf("reqlock: wasm: invalid Config: %w", errors.Join(problems...))
}

// makeCacheDir creates the directory, for this user alone, unless it is there.
func makeCacheDir(dir string) error {
	if _, err := os.Lstat(dir); errors.Is(err, fs.ErrNotExist) {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return fmt.Errorf("CacheDir: %w", err)
		}
	}
	return checkCacheDir(dir)
}

// checkCacheDir rejects a directory that others can write machine code to, or can replace.
func checkCacheDir(dir string) error {
	info, err := os.Lstat(dir)
	switch {
	case err != nil:
		return fmt.Errorf("CacheDir: %w", err)
	case info.Mode()&fs.ModeSymlink != 0:
		return fmt.Errorf("CacheDir %s is a symbolic link, whose target others may change: use the directory itself", dir)
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
	c.InitTimeout = cmp.Or(c.InitTimeout, time.Minute)
	c.MaxInstances = cmp.Or(c.MaxInstances, max(1, runtime.GOMAXPROCS(0)-1))
	c.MaxQueue = max(0, cmp.Or(c.MaxQueue, 256))
	c.BreakAfter = max(0, cmp.Or(c.BreakAfter, 10))
	c.BreakFor = cmp.Or(c.BreakFor, time.Second)
	c.MaxFile = cmp.Or(c.MaxFile, 16<<20)
	c.MemoryLimit = cmp.Or(c.MemoryLimit, 16<<20)
	c.MaxBody = cmp.Or(c.MaxBody, 64<<10)
	c.MaxWait = cmp.Or(c.MaxWait, 30*time.Second)
	c.MaxLease = cmp.Or(c.MaxLease, 10*time.Minute)
	c.SharedEntries = cmp.Or(c.SharedEntries, 1024)
	c.SharedBytes = cmp.Or(c.SharedBytes, 1<<20)
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	return c
}
