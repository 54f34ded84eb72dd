package config

import (
	"crypto/sha256"
	"errors"
	"log/slog"
	"os"
	"os/signal"
	"sync"
	"time"
)

// pollInterval is how often a watched file is read. It is small.
const pollInterval = 500 * time.Millisecond

// A watch loads a file again when it changes, and on signals.
//
// It compares contents: two writes may have the same time. New content is loaded when two looks in a
// row read the same, so that a file is not loaded while it is being written.
type watch struct {
	path     string
	load     func(src []byte) error
	log      *slog.Logger
	quit     chan struct{}
	done     chan struct{}
	pending  [sha256.Size]byte // content read last
	missing  bool
	stopping func() // of the signals

	mu      sync.Mutex
	settled [sha256.Size]byte // content that is loaded or was refused
}

// start returns at once. src is what is loaded already.
func (w *watch) start(path string, src []byte, opts Options, load func([]byte) error) {
	if !opts.Watch && len(opts.ReloadOn) == 0 {
		return
	}
	w.path, w.load, w.log = path, load, opts.logger()
	w.settle(src)
	w.quit, w.done = make(chan struct{}), make(chan struct{})
	signals := make(chan os.Signal, 1)
	if len(opts.ReloadOn) > 0 {
		signal.Notify(signals, opts.ReloadOn...)
	}
	w.stopping = func() { signal.Stop(signals) }
	var ticks <-chan time.Time
	if opts.Watch {
		ticker := time.NewTicker(pollInterval)
		ticks = ticker.C
		stopSignals := w.stopping
		w.stopping = func() { ticker.Stop(); stopSignals() }
	}
	go w.run(ticks, signals)
}

// stop waits until the watch has ended.
func (w *watch) stop() {
	if w.quit == nil {
		return
	}
	close(w.quit)
	<-w.done
	w.stopping()
}

func (w *watch) run(ticks <-chan time.Time, signals <-chan os.Signal) {
	defer close(w.done)
	for {
		select {
		case <-w.quit:
			return
		case <-ticks:
			w.look()
		case <-signals:
			if src, ok := w.read(); ok {
				w.settle(src)
				w.apply(src)
			}
		}
	}
}

func (w *watch) look() {
	src, ok := w.read()
	if !ok {
		return
	}
	sum := sha256.Sum256(src)
	if sum == w.pending && w.settle(src) {
		w.apply(src)
	}
	w.pending = sum
}

// settle notes what is loaded or refused now, by Reload as well, and reports whether it is new.
func (w *watch) settle(src []byte) bool {
	sum := sha256.Sum256(src)
	w.mu.Lock()
	defer w.mu.Unlock()
	isNew := sum != w.settled
	w.settled = sum
	return isNew
}

func (w *watch) read() (src []byte, ok bool) {
	src, err := readFile(w.path)
	if err != nil && !w.missing {
		w.log.Error("reqlock: config: cannot read the file, keeping the old version", "error", err)
	}
	w.missing = err != nil
	return src, err == nil
}

func (w *watch) apply(src []byte) {
	err := w.load(src)
	if errors.Is(err, ErrClosed) {
		return
	}
	if err != nil {
		w.log.Error("reqlock: config: the new version of the file has mistakes, keeping the old one", "error", err)
		return
	}
	w.log.Info("reqlock: config: new version of the file loaded", "file", w.path)
}
