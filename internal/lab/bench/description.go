package main

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"time"
)

// A description says when, where and with which versions a run was made.
type description struct {
	when     time.Time
	machine  string
	versions []string
	rounds   int
	short    bool
}

// compared are the modules whose versions are reported.
var compared = []string{
	"github.com/redis/go-redis/v9", "github.com/go-redsync/redsync/v4", "github.com/bsm/redislock", "github.com/redis/rueidis",
	"github.com/gin-gonic/gin", "github.com/labstack/echo/v4", "golang.org/x/sync",
}

func (b *bench) describe() (description, error) {
	d := description{
		when:    time.Now().UTC(),
		machine: fmt.Sprintf("%s, %d cores, %s/%s", processor(), runtime.NumCPU(), runtime.GOOS, runtime.GOARCH),
		rounds:  b.nRounds,
		short:   b.short,
	}
	info, err := b.probe.rdb.Info(context.Background(), "server").Result()
	if err != nil {
		return d, err
	}
	for line := range strings.Lines(info) {
		if version, ok := strings.CutPrefix(strings.TrimSpace(line), "redis_version:"); ok {
			d.versions = append(d.versions, "Redis "+version)
		}
	}
	d.versions = append(d.versions, "Go "+strings.TrimPrefix(runtime.Version(), "go"))
	build, _ := debug.ReadBuildInfo()
	for _, path := range compared {
		for _, dep := range build.Deps {
			if dep.Path == path {
				d.versions = append(d.versions, strings.TrimPrefix(path, "github.com/")+" "+strings.TrimPrefix(dep.Version, "v"))
			}
		}
	}
	return d, nil
}

// processor returns the processor's name on Linux.
func processor() string {
	text, err := os.ReadFile("/proc/cpuinfo")
	if err == nil {
		for line := range strings.Lines(string(text)) {
			if name, value, _ := strings.Cut(line, ":"); strings.TrimSpace(name) == "model name" {
				return strings.TrimSpace(value)
			}
		}
	}
	return "unknown processor"
}

func (d description) line() string {
	kind := ""
	if d.short {
		kind = ", short windows: a test of the program, not of the contenders"
	}
	return fmt.Sprintf("%s; %s; %s; %d rounds, or %d in some scenarios if that is less%s",
		d.when.Format("2006-01-02 15:04 MST"), d.machine, strings.Join(d.versions, ", "), d.rounds, leastRounds, kind)
}
