// Package watch loads a file again when its content changes.
package watch

import (
	"context"
	"crypto/sha256"
	"os"
	"os/signal"
	"sync"
	"time"
)

// Interval is how often a file is checked.
const Interval = 500 * time.Millisecond

// readEvery makes every 20th check, one in ten seconds, read the file even if its size and time are
// unchanged.
const readEvery = 20

// A File is what a Watch needs to know.
type File struct {
	Path string
	// Read reads the file.
	Read func() ([]byte, error)
	// Load loads content. Refused content is loaded again if the file is touched: the cause of the
	// error may have passed. ctx ends with the Watch. Load reports its errors by itself.
	Load func(ctx context.Context, content []byte) error
	// Unreadable is told the first of the errors of Read in a row.
	Unreadable func(error)
}

// A Watch checks a file periodically, and loads it on signals.
//
// It compares contents. An unchanged size and time usually save it from reading the file, but not
// always: two writes may have the same time, and cp -p preserves it. New content is loaded when two
// checks in a row read the same, so that a file is not loaded while it is being written.
type Watch struct {
	file File
	// looks is the number of checks so far.
	looks int
	// seen describes the file of the settled content. nil: the file must be read.
	seen os.FileInfo
	// pending is the content that was read last.
	pending [sha256.Size]byte
	missing bool

	mu sync.Mutex
	// settled is the content that is loaded or was refused.
	settled [sha256.Size]byte
	// refused is true if Load refused the settled content.
	refused bool

	// stop is nil until the Watch is started.
	stop func()
	// done is closed when the Watch has ended.
	done chan struct{}
}

// New returns a Watch of a file whose content is loaded already.
func New(file File, content []byte) *Watch {
	return &Watch{file: file, settled: sha256.Sum256(content)}
}

// Start watches until Stop. interval is how long it sleeps between checks; 0: it loads the file
// only on signals.
func (w *Watch) Start(interval time.Duration, signals ...os.Signal) {
	ctx, cancel := context.WithCancel(context.Background())
	asked := make(chan os.Signal, 1)
	if len(signals) > 0 {
		signal.Notify(asked, signals...)
	}
	ticker := &time.Ticker{}
	if interval > 0 {
		ticker = time.NewTicker(interval)
	}
	w.done = make(chan struct{})
	w.stop = func() {
		cancel()
		<-w.done
		signal.Stop(asked)
		if interval > 0 {
			ticker.Stop()
		}
	}
	go w.run(ctx, ticker.C, asked)
}

// Stop ends the context of a Load that is under way, and waits until the Watch has ended.
func (w *Watch) Stop() {
	if w.stop != nil {
		w.stop()
	}
}

func (w *Watch) run(ctx context.Context, ticks <-chan time.Time, signals <-chan os.Signal) {
	defer close(w.done)
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticks:
			w.Look(ctx)
		case <-signals:
			if content, ok := w.read(); ok {
				w.load(ctx, content)
			}
		}
	}
}

// Look checks the file once.
func (w *Watch) Look(ctx context.Context) {
	info, err := os.Stat(w.file.Path)
	changed := err != nil || !w.unchanged(info)
	w.looks++
	if !changed && w.looks%readEvery != 0 {
		return
	}
	content, ok := w.read()
	if !ok {
		w.seen = nil
		return
	}
	sum := sha256.Sum256(content)
	isSettled, refused := w.isSettled(sum)
	switch {
	case isSettled:
		w.seen = info
		if refused && changed {
			w.load(ctx, content)
		}
	case sum == w.pending:
		w.seen = info
		w.load(ctx, content)
	default:
		w.seen = nil
	}
	w.pending = sum
}

func (w *Watch) unchanged(info os.FileInfo) bool {
	return w.seen != nil && os.SameFile(info, w.seen) && info.Size() == w.seen.Size() && info.ModTime().Equal(w.seen.ModTime())
}

func (w *Watch) isSettled(sum [sha256.Size]byte) (settled, refused bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return sum == w.settled, w.refused
}

func (w *Watch) read() (content []byte, ok bool) {
	content, err := w.file.Read()
	if err != nil && !w.missing {
		w.file.Unreadable(err)
	}
	w.missing = err != nil
	return content, err == nil
}

func (w *Watch) load(ctx context.Context, content []byte) {
	w.Settle(content, w.file.Load(ctx, content))
}

// Settle notes that content was loaded, or refused with err, without the Watch.
func (w *Watch) Settle(content []byte, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.settled, w.refused = sha256.Sum256(content), err != nil
}
