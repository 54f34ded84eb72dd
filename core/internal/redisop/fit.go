package redisop

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/reqlock/reqlock/core/internal/batch"
	"github.com/reqlock/reqlock/internal/redisclient"
)

// A fit finds out once whether the client of a single server fits the server, as
// redisclient.Client.CheckServer says. One command at a time asks, for all who want to know.
type fit struct {
	redis      redisclient.Client
	timeout    time.Duration
	background func(func()) bool
	// known is true once the client fits, as far as the server says.
	known atomic.Bool

	mu sync.Mutex
	// asking is the question under way. nil: there is none.
	asking *question
}

// A question is one CheckServer.
type question struct {
	done chan struct{}
	// err is set before done is closed. nil: the client fits.
	err error
}

// ask returns the question under way, or a new one.
func (f *fit) ask() *question {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.asking != nil {
		return f.asking
	}
	q := &question{done: make(chan struct{})}
	f.asking = q
	if !f.background(func() { f.answer(q) }) {
		f.asking, q.err = nil, batch.ErrClosed
		close(q.done)
	}
	return q
}

func (f *fit) answer(q *question) {
	ctx, cancel := context.WithTimeout(batch.Bounded(context.Background()), f.timeout)
	defer cancel()
	err := f.redis.CheckServer(ctx)
	if wrong := (*redisclient.WrongError)(nil); err != nil && !errors.As(err, &wrong) {
		noTurn := err == context.DeadlineExceeded // a late reply is an error of the network
		if err = batch.Unsent(err); noTurn && batch.Exhausted(f.redis.Node()) {
			err = &FaultError{faultPoolEmpty, err}
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.known.Store(err == nil)
	f.asking, q.err = nil, err
	close(q.done)
}

// judge returns the error of a reply, as a *redisclient.WrongError if it shows that the client does
// not fit. After any reply that only a cluster gives, the next acquire asks again: the server may
// have become one of several.
func (f *fit) judge(err error) error {
	if err != nil && f.redis.Cluster == nil && HasCode(err, "MOVED", "ASK", "TRYAGAIN", "CROSSSLOT", "CLUSTERDOWN") {
		f.known.Store(false)
	}
	return f.redis.Redirected(err)
}

// CheckServer returns the error of an operation on a server that the client does not fit, or why
// that could not be found out. It asks the server each time. The caller may leave before the answer;
// the error is ErrLeft then.
func (r *Runner) CheckServer(leave <-chan struct{}) error {
	if r.cfg.Redis.Cluster != nil {
		return nil
	}
	q := r.fit.ask()
	select {
	case <-q.done:
		return r.Opaque(q.err)
	case <-leave:
		return ErrLeft
	}
}
