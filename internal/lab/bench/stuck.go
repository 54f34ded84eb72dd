package main

import (
	"context"
	"errors"
	"sync"
	"time"
)

// patience bounds every wait for a peer, so that the program always ends. A peer may block forever
// and ignore its context.
const patience = 30 * time.Second

var errStuck = errors.New("stuck: it did not return in time")

// inTime returns the function's error, or errStuck if it takes too long. Then the function is left
// running.
func inTime(patience time.Duration, do func() error) error {
	done := make(chan error, 1)
	go func() { done <- do() }()
	select {
	case err := <-done:
		return err
	case <-time.After(patience):
		return errStuck
	}
}

// ended waits for a contender's goroutines, in time.
func ended(wg *sync.WaitGroup) error {
	return inTime(patience, func() error {
		wg.Wait()
		return nil
	})
}

// acquireInTime acquires a lock that is free.
func acquireInTime(ctx context.Context, s session) (held, error) {
	var h held
	err := inTime(patience, func() (err error) {
		h, err = s.acquire(ctx)
		return err
	})
	if err != nil {
		return nil, err
	}
	return h, nil
}

// pardon notes that a peer got stuck and lets the run continue without its numbers. reqlock itself
// is not pardoned.
func (b *bench) pardon(scenario, contender string, err error) error {
	if contender == ours || !errors.Is(err, errStuck) {
		return err
	}
	b.note("%s, round %d, is not counted for %s: %v.", scenario, b.round+1, contender, err)
	b.progress("%s, round %d: %s: %v", scenario, b.round+1, contender, err)
	return nil
}
