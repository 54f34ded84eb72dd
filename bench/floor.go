package main

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/redis/go-redis/v9"
)

// A pipe has calls that are made at the same time share pipelines, of which two are under way at most. There is no goroutine
// in it: one of the callers leads, sends what is queued, and passes the lead on to the first of those who have come meanwhile.
type pipe struct {
	rdb  *redis.Client
	send func(ctx context.Context, rdb *redis.Client, calls []*pipeCall) // more than one

	mu      sync.Mutex
	queue   []*pipeCall
	leading int
}

const pipelinesUnderWay = 2

type pipeCall struct {
	cmd  *redis.Cmd
	lead chan bool // true: lead; false: it is answered
}

func newPipe(rdb *redis.Client) *pipe { return &pipe{rdb: rdb, send: sendAsPipeline} }

// do runs a command. It does not end with the context: others share the pipeline.
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

// lead sends the caller's own call, which is not queued any more, and all that are; and passes the lead on.
func (p *pipe) lead(ctx context.Context, own *pipeCall) {
	p.mu.Lock()
	others := p.queue
	p.queue = nil
	p.mu.Unlock()

	if len(others) == 0 {
		_ = p.rdb.Process(ctx, own.cmd) // the command has the error
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
		_ = pipe.Process(ctx, c.cmd) // queues it, and never fails
	}
	_, _ = pipe.Exec(ctx) // the commands have their errors
}

// sendAsOneScript makes one call of manyKeysScript of calls of the lean scripts.
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

// turns let one after the other, in the order in which they came.
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
		go func() { // whose turn it becomes nevertheless passes it on
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
