package loglimit

import (
	"fmt"
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
		total int // 0: no line
	}{
		{"a", 0, 1},
		{"a", 1, 0},
		{"b", 1, 1},
		{"a", Interval - 1, 0},
		{"a", Interval, 3},
		{"b", Interval, 0},
		{"b", Interval + 1, 2},
		{"a", 2 * Interval, 1},
	} {
		total, _, ok := l.count(step.key, 1, 0, begin.Add(step.after))
		if ok != (step.total > 0) || total != step.total {
			t.Errorf("%s after %s: %d, %t, want %d", step.key, step.after, total, ok, step.total)
		}
	}
	if l.count("c", 1, 0, begin.Add(10*Interval)); len(l.keys) != 1 {
		t.Errorf("%d keys are kept, want the last one", len(l.keys))
	}
	if !new(Limit).Allow("a") {
		t.Error("the first line is not allowed")
	}
}

func TestBurst(t *testing.T) {
	t.Parallel()
	l := Limit{Burst: 3}
	begin := time.Now()
	for i := range 10 {
		if _, _, ok := l.count("a", 1, 0, begin); ok != (i < 3) {
			t.Errorf("line %d: %t", i, ok)
		}
	}
	if total, _, ok := l.count("a", 5, 0, begin.Add(Interval)); !ok || total != 12 {
		t.Errorf("after the interval: %d, %t, want the 7 that were missed and 5", total, ok)
	}
}

// Requests may choose keys.
func TestKeysAreBounded(t *testing.T) {
	t.Parallel()
	var l Limit
	begin, lines := time.Now(), 0
	for i := range 100 * mostKeys {
		if _, _, ok := l.count(fmt.Sprint(i), 1, 0, begin); ok {
			lines++
		}
	}
	if len(l.keys) > mostKeys+1 || lines > mostKeys+1 {
		t.Errorf("%d keys are kept and %d lines logged, want %d at most", len(l.keys), lines, mostKeys+1)
	}
}

// A series lasts for as long as its events follow each other, with a line or without.
func TestSeries(t *testing.T) {
	t.Parallel()
	var l Limit
	begin := time.Now()
	for _, step := range []struct{ after, began time.Duration }{
		{0, 0}, {Interval / 2, 0}, {2 * Interval, 0}, {4*Interval - 1, 0}, {6*Interval - 1, 6*Interval - 1}, {7 * Interval, 6*Interval - 1},
	} {
		if _, began, _ := l.count("a", 1, 0, begin.Add(step.after)); !began.Equal(begin.Add(step.began)) {
			t.Errorf("after %s: it began after %s, want %s", step.after, began.Sub(begin), step.began)
		}
	}
	if total, began, ok := new(Limit).Series("a", 0); total != 1 || !ok || time.Since(began) > Interval {
		t.Errorf("the first: %d, %s, %t", total, began, ok)
	}
}

// A series has no line before it has lasted. Then the line counts all of it.
func TestSeriesThatLasts(t *testing.T) {
	t.Parallel()
	var l Limit
	begin := time.Now()
	for i, want := range []int{0, 0, 3, 0, 2, 0} {
		total, _, ok := l.count("a", 1, Interval, begin.Add(time.Duration(i)*Interval/2+time.Duration(i)))
		if total != want || ok != (want > 0) {
			t.Errorf("event %d: %d, %t, want %d", i, total, ok, want)
		}
	}
}
