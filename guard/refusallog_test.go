package guard

import (
	"log/slog"
	"testing"
	"time"
)

// A refusal is a warning when the lock has kept requests out for a minute.
func TestHeldLevel(t *testing.T) {
	t.Parallel()
	for since, want := range map[time.Duration]slog.Level{
		0: slog.LevelInfo, 59 * time.Second: slog.LevelInfo, time.Minute: slog.LevelWarn, time.Hour: slog.LevelWarn,
	} {
		if got := heldLevel(since); got != want {
			t.Errorf("after %s: %s, want %s", since, got, want)
		}
	}
}
