package core

import (
	"errors"
	"testing"
	"time"

	"github.com/reqlock/reqlock/core/internal/lua"
	"github.com/reqlock/reqlock/internal/redistest"
)

// What the batcher may still have under way is not used for another operation.
func TestExchangesThatAreUsedAgain(t *testing.T) {
	t.Parallel()
	c, proxy := newBundle(t).proxied(t)
	stays := make(chan struct{})

	answered := c.exchange(lua.Holders("a"), patience)
	if _, err := answered.run(stays, nil); err != nil || !answered.over() {
		t.Errorf("answered: %v; it is over: %v, want true", err, answered.over())
	}

	held := proxy.OnEvery(runs(holdersScript), redistest.HoldReply)
	unanswered := c.exchange(lua.Holders("a"), 100*time.Millisecond)
	if _, err := unanswered.run(stays, nil); !errors.Is(err, errTimeout) || unanswered.over() {
		t.Errorf("unanswered: %v; it is over: %v, want false", err, unanswered.over())
	}
	held.Remove()
	held.Release()
}
