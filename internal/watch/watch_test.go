package watch

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const patience = 20 * time.Second

// A subject is a file under a Watch.
type subject struct {
	*Watch
	t    *testing.T
	path string

	mu      sync.Mutex
	loads   []string
	refuses error
	errors  int // told to Unreadable
	loading func(ctx context.Context)
}

// newSubject returns a file with the content a, which is loaded.
func newSubject(t *testing.T) *subject {
	t.Helper()
	s := &subject{t: t, path: filepath.Join(t.TempDir(), "file"), loading: func(context.Context) {}}
	s.put("a")
	s.Watch = New(File{
		Path: s.path,
		Read: func() ([]byte, error) { return os.ReadFile(s.path) },
		Load: func(ctx context.Context, content []byte) error {
			s.loading(ctx)
			s.mu.Lock()
			defer s.mu.Unlock()
			s.loads = append(s.loads, string(content))
			return s.refuses
		},
		Unreadable: func(error) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.errors++
		},
	}, []byte("a"))
	t.Cleanup(s.Stop)
	return s
}

// put renames a new file over the old one.
func (s *subject) put(content string) {
	s.t.Helper()
	if err := errors.Join(os.WriteFile(s.path+".new", []byte(content), 0o600), os.Rename(s.path+".new", s.path)); err != nil {
		s.t.Fatal(err)
	}
}

// look checks the file n times.
func (s *subject) look(n int) {
	for range n {
		s.Look(s.t.Context())
	}
}

func (s *subject) loaded() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.loads)
}

func (s *subject) want(loads ...string) {
	s.t.Helper()
	if got := s.loaded(); !slices.Equal(got, loads) {
		s.t.Errorf("loaded %q, want %q", got, loads)
	}
}

func (s *subject) await(loads ...string) {
	s.t.Helper()
	for deadline := time.Now().Add(patience); !slices.Equal(s.loaded(), loads); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			s.t.Fatalf("loaded %q, want %q", s.loaded(), loads)
		}
	}
}

// New content is loaded once, when two checks in a row have read it.
func TestLook(t *testing.T) {
	t.Parallel()
	s := newSubject(t)
	s.look(3)
	s.want()
	s.put("half of")
	s.look(1)
	s.put("half of b")
	s.look(1)
	s.want()
	s.look(3)
	s.want("half of b")
	s.put("a")
	s.look(5)
	s.want("half of b", "a")
}

// A new file with the same size and time, as cp -p can make, is loaded.
func TestLook_SameSizeAndTime(t *testing.T) {
	t.Parallel()
	s := newSubject(t)
	write := func(content string) {
		t.Helper()
		then := time.Unix(1_000_000_000, 0)
		if err := errors.Join(os.WriteFile(s.path, []byte(content), 0o600), os.Chtimes(s.path, then, then)); err != nil {
			t.Fatal(err)
		}
	}
	write("a")
	s.look(1)
	write("b")
	s.look(readEvery + 1)
	s.want("b")

	write("c")
	s.refuses = errors.New("refused")
	s.look(5 * readEvery)
	s.want("b", "c")
}

// Refused content is loaded again when the file is touched, and not before.
func TestLook_Refused(t *testing.T) {
	t.Parallel()
	s := newSubject(t)
	s.refuses = errors.New("refused")
	s.put("b")
	s.look(5)
	s.want("b")
	s.refuses = nil
	s.look(5)
	s.want("b")
	s.put("b")
	s.look(5)
	s.want("b", "b")
	s.put("b")
	s.look(5)
	s.want("b", "b")
}

// A file that cannot be read is told once, and loaded when it is back with other content.
func TestLook_Unreadable(t *testing.T) {
	t.Parallel()
	s := newSubject(t)
	for i, content := range []string{"a", "b"} {
		if err := os.Remove(s.path); err != nil {
			t.Fatal(err)
		}
		s.look(5)
		if s.errors != i+1 {
			t.Errorf("Unreadable was called %d times, want %d", s.errors, i+1)
		}
		s.put(content)
		s.look(3)
	}
	s.want("b")
}

// What was loaded without the Watch is not loaded again, unless it was refused and is touched.
func TestSettle(t *testing.T) {
	t.Parallel()
	s := newSubject(t)
	s.put("b")
	s.Settle([]byte("b"), nil)
	s.look(5)
	s.want()
	s.put("c")
	s.Settle([]byte("c"), errors.New("refused"))
	s.look(1)
	s.want("c")
}

func TestStart(t *testing.T) {
	t.Parallel()
	s := newSubject(t)
	s.Start(time.Millisecond)
	s.put("b")
	s.await("b")
	s.put("c")
	s.await("b", "c")
	s.Stop()
	s.put("d")
	s.want("b", "c")
}

// A signal loads the file at once, whether it has changed or not.
func TestStart_Signals(t *testing.T) {
	s := newSubject(t)
	s.Start(0, syscall.SIGUSR2)
	for _, loads := range [][]string{{"a"}, {"a", "a"}} {
		if err := syscall.Kill(os.Getpid(), syscall.SIGUSR2); err != nil {
			t.Fatal(err)
		}
		s.await(loads...)
	}
}

// Stop ends a Load that is under way, and waits for it.
func TestStop(t *testing.T) {
	t.Parallel()
	s := newSubject(t)
	begun := make(chan struct{})
	s.loading = func(ctx context.Context) {
		close(begun)
		<-ctx.Done()
	}
	s.Start(time.Millisecond)
	s.put("b")
	<-begun
	s.Stop()
	s.want("b")
}
