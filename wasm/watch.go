package wasm

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/reqlock/reqlock/internal/watch"
)

func open(ctx context.Context, path string, cfg Config, interval time.Duration) (*Plugin, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	binary, err := readFile(path, cfg.withDefaults().MaxFile)
	if err != nil {
		return nil, err
	}
	p, err := newPlugin(ctx, binary, cfg, filepath.Base(path))
	if err != nil {
		return nil, fmt.Errorf("%w (%s)", err, path)
	}
	if cfg.Watch {
		p.watch = p.watchOf(path, binary)
		p.watch.Start(interval)
	}
	return p, nil
}

// readFile reads a plugin from a regular file of at most limit bytes. A pipe could block Open or
// Close.
func readFile(path string, limit int64) ([]byte, error) {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return nil, fmt.Errorf("reqlock: wasm: %w", err)
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("reqlock: wasm: %s is not a regular file", path)
	case info.Size() > limit:
		return nil, tooLarge(path, limit)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("reqlock: wasm: %w", err)
	}
	defer f.Close()
	binary, err := io.ReadAll(io.LimitReader(f, limit+1)) // it may have grown
	switch {
	case err != nil:
		return nil, fmt.Errorf("reqlock: wasm: %w", err)
	case int64(len(binary)) > limit:
		return nil, tooLarge(path, limit)
	}
	return binary, nil
}

func tooLarge(path string, limit int64) error {
	return breach("%s has more than %d bytes, which is Config.MaxFile", path, limit)
}

// watchOf returns a watch of the plugin's file, whose content is loaded. Only the watch swaps
// programs.
func (p *Plugin) watchOf(path string, binary []byte) *watch.Watch {
	return watch.New(watch.File{
		Path: path,
		Read: func() ([]byte, error) { return readFile(path, p.cfg.MaxFile) },
		Load: p.replace,
		Unreadable: func(err error) {
			p.journal.announce(slog.LevelError, "reqlock: wasm: cannot read the plugin's file, keeping the old version", err.Error())
		},
	}, binary)
}

// replace replaces the program with a new version once that is compiled and started.
func (p *Plugin) replace(ctx context.Context, binary []byte) error {
	began := time.Now()
	next, err := p.load(ctx, binary, toReload)
	if ctx.Err() != nil && err != nil {
		return err // the plugin is closing, which stopped the start
	}
	sum := sha256.Sum256(binary)
	event := ReloadEvent{Plugin: p.journal.plugin, Version: "sha256:" + hex.EncodeToString(sum[:6]), Took: time.Since(began), Err: err}
	if err != nil {
		p.counts.failedReloads.Add(1)
		p.journal.announce(slog.LevelError, "reqlock: wasm: new version of the plugin failed to load, keeping the old one", err.Error())
		p.observe(event)
		return err
	}
	old := p.swap(next)
	if old != next { // the plugin is not closing
		p.counts.reloads.Add(1)
		p.journal.announce(slog.LevelInfo, "reqlock: wasm: new version of the plugin loaded", event.Version)
		p.observe(event)
	}
	if err := old.close(); err != nil {
		p.journal.announce(slog.LevelError, "reqlock: wasm: closing the old version of the plugin failed", err.Error())
	}
	return nil
}

func (p *Plugin) observe(e ReloadEvent) {
	if reloaded := p.cfg.Observer.Reloaded; reloaded != nil {
		reloaded(e)
	}
}
