package wasm

import (
	"errors"
	"testing"
	"time"
)

// A deadline can be used again until it has passed.
func TestDeadline(t *testing.T) {
	t.Parallel()
	d := newDeadline(nil)
	for range 3 {
		d.begin(time.Hour)
		if d.check(); !d.end() || d.over {
			t.Fatal("over too early")
		}
	}
	d.begin(1)
	for d.look() { // until the clock has moved on
	}
	if d.end() {
		t.Error("a deadline that has passed is not over")
	}
	if d.begin(time.Hour); d.end() {
		t.Error("it was begun again")
	}
}

// A slice that is too long for a guest counts as much as the longest one.
func TestDeadline_BusyMachine(t *testing.T) {
	t.Parallel()
	d := newDeadline(nil)
	d.begin(10 * time.Minute)
	d.last -= 30 * time.Minute // as if the machine had stopped
	d.began -= 30 * time.Minute
	if !d.look() || d.spent > 2*maxSlice {
		t.Errorf("%s counted", d.spent)
	}
	for range 1000 {
		d.last -= time.Second
		d.look()
	}
	if d.spent < 1000*maxSlice || d.spent > 1000*maxSlice+time.Minute {
		t.Errorf("%s counted for 1000 long slices", d.spent)
	}
	if d.began -= 100 * time.Minute; d.look() {
		t.Error("the wall clock did not end it")
	}
}

// A deadline that is stopped from elsewhere ends the guest at its next check.
func TestDeadline_Stop(t *testing.T) {
	t.Parallel()
	d := newDeadline(nil)
	d.begin(time.Hour)
	d.stop()
	defer func() {
		err, _ := recover().(abort)
		if !errors.Is(err, ErrTimeout) || d.end() {
			t.Errorf("%v", err)
		}
	}()
	d.check()
}
