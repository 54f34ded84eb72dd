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

	late := newDeadline(nil)
	fired, held := make(chan struct{}), make(chan struct{})
	late.timer = time.AfterFunc(0, func() { close(fired); <-held; late.expire() })
	<-fired
	if late.end() || late.Err() == nil {
		t.Error("it has passed, and could be begun again")
	}
	close(held)

	d = newDeadline(nil)
	d.begin(time.Hour)
	d.expire()
	d.expire() // by a context as well
	if d.end() || d.Err() == nil {
		t.Error("it was ended and has not passed")
	}
}
