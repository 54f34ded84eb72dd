package inspect

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/internal/lab/redistest"
)

// A fair lock is stalled while it is free and the first in its queue does not take it, whether that
// process is connected or gone. One that is held with a queue is not.
func TestStalled(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client(t)
	locks := newLocks(t, rdb, "web-1")
	const head = "web-2.991.p0q2w1cd:3"
	for _, name := range []string{"stalled", "gone"} {
		keys := core.KeysOf(name)
		mustDo(t, rdb, "RPUSH", keys.Queue, head)
		mustDo(t, rdb, "ZADD", keys.Deadlines, time.Now().Add(time.Hour).UnixMilli(), head)
	}
	listener := rdb.Subscribe(t.Context(), core.KeysOf("stalled").FairChannel(head))
	defer listener.Close()
	if _, err := listener.Receive(t.Context()); err != nil {
		t.Fatal(err)
	}
	take(t, context.Background(), locks.FairLock("held"))
	wait(t, locks.FairLock("held"))
	eventually(t, rdb, "held", func(l *Lock) bool { return len(l.Queue) == 1 })
	next := make(chan *core.Lease, 1)
	go func() {
		lease, err := locks.FairLock("stalled").Acquire(context.Background(), core.AcquireOptions{WaitTime: time.Minute})
		if err != nil {
			t.Error(err)
		}
		next <- lease
	}()
	eventually(t, rdb, "stalled", func(l *Lock) bool { return len(l.Queue) == 2 })

	listed, _, err := List(t.Context(), rdb, ListOptions{})
	if err != nil || len(listed) != 3 {
		t.Fatalf("%+v, %v", listed, err)
	}
	for i, want := range map[int]string{0: "gone: no client listens", 1: "", 2: "suspended or stalled: connected, but does not take the lock"} {
		l := &listed[i]
		if l.Stalled != (want != "") || l.Stall() == "" != (want == "") || !strings.Contains(l.Stall(), want) {
			t.Errorf("%s: %t, %q, want %q", l.Name, l.Stalled, l.Stall(), want)
		}
		shown, err := Show(t.Context(), rdb, l.Name)
		if err != nil || shown.Stalled != l.Stalled {
			t.Errorf("Show: %+v, %v", shown, err)
		}
	}

	// The page names the process, and gives the caller of this process its place in the queue of Redis.
	base := serve(t, locks, Options{})
	_, body, _ := get(t, base+"/")
	for _, part := range []string{"the first in its queue does not take it:</span> <code>" + head, "suspended or stalled: connected",
		`<td class="n p">2</td>`, `<td class="n p">1</td>`} {
		if !strings.Contains(body, part) {
			t.Errorf("the page lacks %q", part)
		}
	}
	mustDo(t, rdb, "DEL", core.KeysOf("gone").Queue, core.KeysOf("gone").Deadlines)
	if dropped, err := locks.DropWaiter(t.Context(), "stalled", head); err != nil || !dropped {
		t.Errorf("DropWaiter: %v, %v", dropped, err)
	}
	if lease := <-next; lease != nil { // the next in the queue has its turn
		if err := lease.Release(context.Background()); err != nil {
			t.Error(err)
		}
	}
}
