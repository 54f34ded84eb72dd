package wasm

import (
	"context"
	"testing"
	"time"
)

// TestDeadline is used again and again, until it has passed.
func TestDeadline(t *testing.T) {
	t.Parallel()
	d := newDeadline(nil)
	for range 3 {
		d.begin(time.Hour)
		if !d.end() || d.Err() != nil {
			t.Fatal("it has passed")
		}
	}
	d.begin(time.Nanosecond)
	<-d.Done()
	if d.end() || d.Err() != context.DeadlineExceeded {
		t.Errorf("it has not passed: %v", d.Err())
	}

	d = newDeadline(nil)
	d.begin(time.Hour)
	d.expire()
	d.expire() // by a context as well
	if d.end() || d.Err() == nil {
		t.Error("it was ended and has not passed")
	}
}
