package loglimit

import (
	"testing"
	"time"
)

func TestOneLinePerKeyAndInterval(t *testing.T) {
	t.Parallel()
	var l Limit
	begin := time.Now()
	for _, step := range []struct {
		key   string
		after time.Duration
		want  bool
	}{
		{"a", 0, true},
		{"a", 1, false},
		{"b", 1, true},
		{"a", Interval - 1, false},
		{"a", Interval, true},
		{"b", Interval, false},
		{"b", Interval + 1, true},
		{"a", 2 * Interval, true},
	} {
		if got := l.allow(step.key, begin.Add(step.after)); got != step.want {
			t.Errorf("%s after %s: %t, want %t", step.key, step.after, got, step.want)
		}
	}
	if l.allow("c", begin.Add(10*Interval)); len(l.last) != 1 {
		t.Errorf("%d keys are kept, want the last one", len(l.last))
	}
	if !new(Limit).Allow("a") {
		t.Error("the first line is not allowed")
	}
}
