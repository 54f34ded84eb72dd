package guard

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/internal/request"
)

// answerGrace is how long after MaxHold a handler may write its answer, unless half of what is left
// of its lease is less. So a handler that is blocked in a Write returns while it has its lock.
const answerGrace = 3 * time.Second

// A holdTimer ends a handler whose MaxHold is over.
type holdTimer struct {
	x     *exchange
	lease *core.Lease
	body  *watchedBody // nil: there is nothing to read
	// over goes off at the end of MaxHold. It sets silent, which goes off when the answer must be
	// written. nil: only a guard further out has a MaxHold.
	over, silent *alarm
	// unfollow ends what follow began. nil: no guard further out has a MaxHold.
	unfollow func() bool
}

// startMaxHold starts the timer of MaxHold, and follows that of a guard further out.
func (x *exchange) startMaxHold(r *http.Request, lease *core.Lease) *holdTimer {
	h := &holdTimer{x: x, lease: lease}
	if x.section.answer != nil {
		h.follow()
	}
	if x.g.cfg.MaxHold == 0 {
		return h
	}
	h.body = watchBody(r, x.w)
	if x.section.answer == nil { // no guard further out, with the same connection, has a MaxHold
		x.section.answer = newAnswer(x.section.server, time.Now().Add(-x.outcome.Waited))
	}
	x.section.answer.enter(&x.section, x.w)
	x.section.onTake = h.freeAnswer // who has given the lock up may take any time to answer
	h.over = newAlarm(x.g.cfg.MaxHold, h.end)
	return h
}

// follow lets the lease expire once an outer guard has held the same lock for its MaxHold. Otherwise
// the inner lease would keep renewing it.
func (h *holdTimer) follow() {
	x := h.x
	h.unfollow = context.AfterFunc(&x.ctx, func() {
		if errors.Is(context.Cause(&x.ctx), ErrMaxHold) && x.heldFurtherOut(h.lease.Name()) {
			x.section.stopRenewal()
		}
	})
}

// end ends what the handler may wait for: its context, its body, and soon the client that its
// answer goes to.
func (h *holdTimer) end() {
	x := h.x
	if !x.section.stopRenewal() {
		return // released or detached: there is no lock to give up
	}
	x.outcome.Err = ErrMaxHold // stop waits for this goroutine
	x.end(ErrMaxHold)
	if h.body != nil {
		h.body.end() // a handler blocked on its body does not look at its context
	}
	h.silent = newAlarm(min(answerGrace, h.lease.Remaining()/2), func() { x.section.answer.end(&x.section) })
	if x.g.holds.Allow(request.Method(x.r) + " " + x.r.Pattern) {
		x.g.cfg.Logger.Warn("reqlock: a handler held its lock for MaxHold: its context has ended, and the lock is no longer renewed",
			"method", request.Method(x.r), "pattern", x.r.Pattern, "MaxHold", x.g.cfg.MaxHold)
	}
}

// stop stops the timer, and waits for what it has begun. What outer handlers write is not bound by
// it.
func (h *holdTimer) stop() {
	if h == nil {
		return
	}
	if h.unfollow != nil {
		h.unfollow()
	}
	if h.over == nil {
		return
	}
	if h.over.stop() {
		if h.body != nil {
			h.body.finish(h.x.w, h.x.r)
		}
		if h.silent != nil {
			h.silent.stop()
		}
	}
	h.freeAnswer()
}

func (h *holdTimer) freeAnswer() { h.x.section.answer.leave(&h.x.section) }

// An alarm calls a function after some time, unless it is stopped.
type alarm struct {
	timer *time.Timer
	done  chan struct{} // closed when the function has returned
}

func newAlarm(after time.Duration, f func()) *alarm {
	a := &alarm{done: make(chan struct{})}
	a.timer = time.AfterFunc(after, func() {
		defer close(a.done)
		f()
	})
	return a
}

// stop stops the alarm, or waits until its function has returned. It reports whether it did.
func (a *alarm) stop() (wentOff bool) {
	if a.timer.Stop() {
		return false
	}
	<-a.done
	return true
}
