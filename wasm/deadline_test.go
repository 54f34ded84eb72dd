package wasm

import (
	"context"
	"testing"
	"time"
)

// A deadline can be reused until it expires.
func TestDeadline(t *testing.T) {
	t.Parallel()
	d := newDeadline(nil)
	for range 3 {
		d.begin(time.Hour)
		if !d.end() || d.Err() != nil {
			t.Fatal("expired too early")
		}
	}
	d.begin(time.Nanosecond)
	<-d.Done()
	if d.end() || d.Err() != context.DeadlineExceeded {
		t.Errorf("not expired: %v", d.Err())
	}

	late := newDeadline(nil)
	fired, held := make(chan struct{}), make(chan struct{})
	late.timer = time.AfterFunc(0, func() { close(fired); <-held; late.expire() })
	<-fired
	if late.end() || late.Err() == nil {
		t.Error("an expired deadline was begun again")
	}
	close(held)

	d = newDeadline(nil)
	d.begin(time.Hour)
	d.expire()
	d.expire() // as the end of a context does
	if d.end() || d.Err() == nil {
		t.Error("expire did not end it")
	}
}
