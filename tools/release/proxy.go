package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/mod/module"
	"golang.org/x/mod/zip"
)

// tracked returns the files of the repository, and new ones that Git does not ignore.
func tracked(dir string) ([]string, error) {
	command := exec.Command("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	command.Dir = dir
	out, err := command.Output()
	if err != nil {
		return nil, fmt.Errorf("git ls-files: %w", err)
	}
	var files []string
	for name := range strings.SplitSeq(strings.TrimRight(string(out), "\x00"), "\x00") {
		if info, err := os.Lstat(filepath.Join(dir, name)); err == nil && info.Mode().IsRegular() {
			files = append(files, name)
		}
	}
	return files, nil
}

// A source is a file of the repository as part of a module.
type source struct {
	path string // within the module
	file string
}

func (s source) Path() string                 { return s.path }
func (s source) Lstat() (os.FileInfo, error)  { return os.Lstat(s.file) }
func (s source) Open() (io.ReadCloser, error) { return os.Open(s.file) }

// sources returns the files of a module. zip.Create leaves out those of modules within it.
func sources(m *goModule, dir string) (all []zip.File, err error) {
	files, err := tracked(dir)
	for _, name := range files {
		path := filepath.ToSlash(name)
		if m.dir != "." {
			var within bool
			if path, within = strings.CutPrefix(path, m.dir+"/"); !within {
				continue
			}
		}
		all = append(all, source{path, filepath.Join(dir, name)})
	}
	return all, err
}

// publish writes a version of a module into a directory that serves as a module proxy.
func publish(m *goModule, dir, proxy, version string) error {
	escaped, err := module.EscapePath(m.path)
	if err != nil {
		return err
	}
	at := filepath.Join(proxy, filepath.FromSlash(escaped), "@v")
	if err := os.MkdirAll(at, 0o755); err != nil {
		return err
	}
	files, err := sources(m, dir)
	if err != nil {
		return err
	}
	archive, err := os.Create(filepath.Join(at, version+".zip"))
	if err != nil {
		return err
	}
	defer archive.Close()
	if err := zip.Create(archive, module.Version{Path: m.path, Version: version}, files); err != nil {
		return err
	}
	info, err := json.Marshal(struct {
		Version string
		Time    time.Time
	}{version, time.Now().UTC().Truncate(time.Second)})
	if err != nil {
		return err
	}
	for name, text := range map[string][]byte{version + ".mod": m.text, version + ".info": info, "list": []byte(version + "\n")} {
		if err := os.WriteFile(filepath.Join(at, name), text, 0o644); err != nil {
			return err
		}
	}
	return archive.Close()
}
