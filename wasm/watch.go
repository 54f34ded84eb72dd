package wasm

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"
)

// pollInterval is how often a watched file is looked at.
const pollInterval = 500 * time.Millisecond

func open(ctx context.Context, path string, cfg Config, interval time.Duration) (*Plugin, error) {
	binary, err := readFile(path)
	if err != nil {
		return nil, fmt.Errorf("reqlock: wasm: %w", err)
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

// readFile reads a plugin from a regular file only: a pipe would have Open, or Close by way of the watch, wait for whoever writes to it.
func readFile(path string) ([]byte, error) {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%s is no regular file", path)
	}
	return os.ReadFile(path)
}

// readEvery says which looks read the file though its size and time are the same: every twentieth, which is one in ten seconds.
const readEvery = 20

// A watch looks at a plugin's file again and again. It is the only one that swaps programs.
//
// It goes by the content. A file's size and time only spare it the reading, most of the time: they do not tell two writes in one
// tick of the clock apart, and cp -p keeps them. New content counts when it is the same twice, an interval apart, lest a file
// be taken that is still written.
//
// Content that was refused is tried again when the file has changed and holds the same: the reason may have passed.
type watch struct {
	plugin  *Plugin
	path    string
	looks   int               // how many there were
	seen    os.FileInfo       // when the content was settled; nil: read it
	settled [sha256.Size]byte // what is loaded, or was refused
	pending [sha256.Size]byte // what was read last
	refused bool              // what is settled has not started
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
	binary, err := readFile(w.path)
	if err != nil {
		if !w.missing {
			w.plugin.journal.announce(slog.LevelError, "reqlock: wasm: the plugin's file cannot be read, the old version stays", err.Error())
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

// load lets a new version take over once it has been compiled and started.
func (w *watch) load(ctx context.Context, binary []byte) {
	p := w.plugin
	next, err := load(ctx, binary, &p.cfg, p.journal)
	w.refused = err != nil
	if err != nil {
		if ctx.Err() != nil {
			return // the plugin is closing, which has stopped the start
		}
		p.journal.announce(slog.LevelError, "reqlock: wasm: the plugin's new version does not work, the old one stays", err.Error())
		return
	}
	old := p.swap(next)
	if old != next { // the plugin is not closing
		p.journal.announce(slog.LevelInfo, "reqlock: wasm: the plugin's new version takes over", "sha256:"+hex.EncodeToString(w.settled[:6]))
	}
	if err := old.close(); err != nil {
		p.journal.announce(slog.LevelError, "reqlock: wasm: the plugin's old version has not closed well", err.Error())
	}
}
