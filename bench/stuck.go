package main

import (
	"context"
	"errors"
	"sync"
	"time"
)

// A peer may block for ever, and not heed the end of its context either. Nobody waits for it longer than this, so that the
// program always ends.
const patience = 30 * time.Second

var errStuck = errors.New("stuck: it has neither returned nor failed in time")

// inTime returns what a function returns, or errStuck if that takes too long. The function is left behind then, with all that
// it uses.
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

// ended waits for goroutines of a contender, in time.
func ended(wg *sync.WaitGroup) error {
	return inTime(patience, func() error {
		wg.Wait()
		return nil
	})
}

// acquireInTime is for a lock that nobody has.
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

// pardon has a run go on without the numbers of a peer that got stuck in this round, and says so. We are not pardoned.
func (b *bench) pardon(scenario, contender string, err error) error {
	if contender == ours || !errors.Is(err, errStuck) {
		return err
	}
	b.note("%s, round %d, is not counted for %s: %v.", scenario, b.round+1, contender, err)
	b.progress("%s, round %d: %s: %v", scenario, b.round+1, contender, err)
	return nil
}
