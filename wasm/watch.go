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
)

// pollInterval is how often a watched file is checked.
const pollInterval = 500 * time.Millisecond

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
		w := &watch{plugin: p, path: path, settled: sha256.Sum256(binary)}
		watching, stop := context.WithCancel(context.Background())
		p.stopWatch, p.watched = stop, make(chan struct{})
		go w.run(watching, interval)
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

// readEvery makes every 20th check, one in ten seconds, read the file even if its size and time are
// unchanged.
const readEvery = 20

// A watch checks a plugin's file periodically. Only the watch swaps programs.
//
// It compares contents. An unchanged size and time usually save it from reading the file, but not
// always: two writes may have the same time, and cp -p preserves it. New content is loaded when two
// checks in a row read the same, so that a file is not loaded while it is being written.
//
// Content that was refused is tried again if the file was touched since: the cause may have passed.
type watch struct {
	plugin  *Plugin
	path    string
	looks   int               // number of checks so far
	seen    os.FileInfo       // of the settled content; nil: read the file
	settled [sha256.Size]byte // content that is loaded or was refused
	pending [sha256.Size]byte // content read last
	refused bool              // the settled content did not start
	missing bool
}

func (w *watch) run(ctx context.Context, interval time.Duration) {
	defer close(w.plugin.watched)
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			w.look(ctx)
		}
	}
}

func (w *watch) look(ctx context.Context) {
	info, err := os.Stat(w.path)
	changed := err != nil || !w.unchanged(info)
	w.looks++
	if !changed && w.looks%readEvery != 0 {
		return
	}
	binary, err := readFile(w.path, w.plugin.cfg.MaxFile)
	if err != nil {
		if !w.missing {
			w.plugin.journal.announce(slog.LevelError, "reqlock: wasm: cannot read the plugin's file, keeping the old version", err.Error())
		}
		w.missing, w.seen = true, nil
		return
	}
	w.missing = false
	sum := sha256.Sum256(binary)
	switch sum {
	case w.settled:
		w.seen = info
		if w.refused && changed {
			w.load(ctx, binary)
		}
	case w.pending:
		w.settled, w.seen = sum, info
		w.load(ctx, binary)
	default:
		w.seen = nil
	}
	w.pending = sum
}

func (w *watch) unchanged(info os.FileInfo) bool {
	return w.seen != nil && os.SameFile(info, w.seen) && info.Size() == w.seen.Size() && info.ModTime().Equal(w.seen.ModTime())
}

// load replaces the program with a new version once that is compiled and started.
func (w *watch) load(ctx context.Context, binary []byte) {
	p := w.plugin
	began := time.Now()
	next, err := p.load(ctx, binary)
	w.refused = err != nil
	if ctx.Err() != nil && err != nil {
		return // the plugin is closing, which stopped the start
	}
	event := ReloadEvent{Plugin: p.journal.plugin, Version: "sha256:" + hex.EncodeToString(w.settled[:6]), Took: time.Since(began), Err: err}
	if err != nil {
		p.counts.failedReloads.Add(1)
		p.journal.announce(slog.LevelError, "reqlock: wasm: new version of the plugin failed to load, keeping the old one", err.Error())
		w.observe(event)
		return
	}
	old := p.swap(next)
	if old != next { // the plugin is not closing
		p.counts.reloads.Add(1)
		p.journal.announce(slog.LevelInfo, "reqlock: wasm: new version of the plugin loaded", event.Version)
		w.observe(event)
	}
	if err := old.close(); err != nil {
		p.journal.announce(slog.LevelError, "reqlock: wasm: closing the old version of the plugin failed", err.Error())
	}
}

func (w *watch) observe(e ReloadEvent) {
	if reloaded := w.plugin.cfg.Observer.Reloaded; reloaded != nil {
		reloaded(e)
	}
}
