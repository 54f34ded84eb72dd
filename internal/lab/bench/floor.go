package main

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/redis/go-redis/v9"
)

// A pipe lets concurrent calls share pipelines, at most two in flight. It has no goroutine: one of
// the callers leads. It sends the queued calls, and then passes the lead to the first caller queued
// since.
type pipe struct {
	rdb  *redis.Client
	send func(ctx context.Context, rdb *redis.Client, calls []*pipeCall) // for more than one call

	mu      sync.Mutex
	queue   []*pipeCall
	leading int
}

const pipelinesUnderWay = 2

type pipeCall struct {
	cmd  *redis.Cmd
	lead chan bool // true: lead; false: the call is answered
}

func newPipe(rdb *redis.Client) *pipe { return &pipe{rdb: rdb, send: sendAsPipeline} }

// do runs a command. It ignores the end of the context, because others share the pipeline.
func (p *pipe) do(_ context.Context, args []any) (any, error) {
	ctx := context.Background()
	c := &pipeCall{cmd: redis.NewCmd(ctx, args...)}
	p.mu.Lock()
	leads := p.leading < pipelinesUnderWay
	if leads {
		p.leading++
	} else {
		c.lead = make(chan bool, 1)
		p.queue = append(p.queue, c)
	}
	p.mu.Unlock()
	if leads || <-c.lead {
		p.lead(ctx, c)
	}
	return c.cmd.Result()
}

// lead sends the caller's own call, which is no longer queued, with all queued ones, and passes the
// lead.
func (p *pipe) lead(ctx context.Context, own *pipeCall) {
	p.mu.Lock()
	others := p.queue
	p.queue = nil
	p.mu.Unlock()

	if len(others) == 0 {
		_ = p.rdb.Process(ctx, own.cmd) // own.cmd has the error
	} else {
		p.send(ctx, p.rdb, append(others, own))
	}
	for _, c := range others {
		c.lead <- false
	}

	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.queue) == 0 {
		p.leading--
		return
	}
	next := p.queue[0]
	p.queue = p.queue[1:]
	next.lead <- true
}

func sendAsPipeline(ctx context.Context, rdb *redis.Client, calls []*pipeCall) {
	pipe := rdb.Pipeline()
	for _, c := range calls {
		_ = pipe.Process(ctx, c.cmd) // only queues, never fails
	}
	_, _ = pipe.Exec(ctx) // the commands have their errors
}

// sendAsOneScript combines calls of the lean scripts into one call of manyKeysScript.
func sendAsOneScript(ctx context.Context, rdb *redis.Client, calls []*pipeCall) {
	command := append(make([]any, 0, 3+4*len(calls)), "evalsha", manyKeysScript.Hash(), len(calls))
	for _, c := range calls {
		command = append(command, c.cmd.Args()[3])
	}
	for _, c := range calls {
		take := 0
		if c.cmd.Args()[1] == leanTakeScript.Hash() {
			take = 1
		}
		command = append(append(command, take), c.cmd.Args()[4:]...)
	}
	replies, err := rdb.Do(ctx, command...).Slice()
	if redis.HasErrorPrefix(err, "NOSCRIPT") {
		manyKeysScript.Load(ctx, rdb)
		replies, err = rdb.Do(ctx, command...).Slice()
	}
	for i, c := range calls {
		if err != nil {
			c.cmd.SetErr(err)
		} else {
			c.cmd.SetVal(replies[i])
		}
	}
}

// turns serves waiters one after the other, in the order they came.
type turns struct {
	mu      sync.Mutex
	taken   bool
	waiting []chan struct{}
}

func (t *turns) wait(ctx context.Context) error {
	t.mu.Lock()
	if !t.taken {
		t.taken = true
		t.mu.Unlock()
		return nil
	}
	turn := make(chan struct{})
	t.waiting = append(t.waiting, turn)
	t.mu.Unlock()
	select {
	case <-turn:
		return nil
	case <-ctx.Done():
		go func() { // if the turn comes anyway, pass it on
			<-turn
			t.next()
		}()
		return ctx.Err()
	}
}

func (t *turns) next() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.waiting) == 0 {
		t.taken = false
		return
	}
	close(t.waiting[0])
	t.waiting = t.waiting[1:]
}

// A counter counts from 1.
type counter struct{ last atomic.Int64 }

func (c *counter) next() int64 { return c.last.Add(1) }
