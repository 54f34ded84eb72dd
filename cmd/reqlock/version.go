package main

import (
	"context"
	"flag"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/reqlock/reqlock"
)

// version is reqlock version.
type version struct{}

func (*version) flags(*flag.FlagSet) {}

func (*version) run(_ context.Context, s *session, _ []string) error {
	v := struct {
		Version  string `json:"version"`
		Revision string `json:"revision,omitempty"`
		Go       string `json:"go"`
		OS       string `json:"os"`
		Arch     string `json:"arch"`
	}{reqlock.Version, "", runtime.Version(), runtime.GOOS, runtime.GOARCH}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, setting := range info.Settings {
			if setting.Key == "vcs.revision" {
				v.Revision = setting.Value
			}
		}
	}
	if s.json {
		return s.print(v)
	}
	revision := ""
	if v.Revision != "" {
		revision = " " + v.Revision
	}
	fmt.Fprintf(s.out, "reqlock %s%s %s %s/%s\n", v.Version, revision, v.Go, v.OS, v.Arch)
	return nil
}
