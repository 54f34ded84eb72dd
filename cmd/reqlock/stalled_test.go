package main

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/inspect"
	"github.com/reqlock/reqlock/internal/lab/redistest"
)

// queueBehind makes a queue whose first waiter listens and never takes the lock, as that of a
// suspended process does.
func queueBehind(t *testing.T, rdb *redis.Client, name, owner string) {
	t.Helper()
	keys := core.KeysOf(name)
	listener := rdb.Subscribe(t.Context(), keys.FairChannel(owner))
	t.Cleanup(func() { _ = listener.Close() })
	_, err := listener.Receive(t.Context())
	deadline := redis.Z{Score: float64(time.Now().Add(time.Hour).UnixMilli()), Member: owner}
	if err := errors.Join(err, rdb.RPush(t.Context(), keys.Queue, owner).Err(), rdb.ZAdd(t.Context(), keys.Deadlines, deadline).Err()); err != nil {
		t.Fatal(err)
	}
}

// A free fair lock whose first waiter does not take it is a fault for ls, show and doctor, which name
// the process. unlock --waiter drops it, and the next waiter has the lock.
func TestStalledQueue(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t, "appendonly yes")
	rdb := srv.Client(t)
	locks := newLocks(t, rdb, "web-2.991")
	at := call{redis: srv.URL()}
	const head = web1 + ":7"
	queueBehind(t, rdb, "order:42", head)
	lock := locks.FairLock("order:42")
	result := make(chan error, 1)
	go func() {
		lease, err := lock.Acquire(context.Background(), core.AcquireOptions{WaitTime: core.WaitForever})
		if err == nil {
			err = lease.Release(context.Background())
		}
		result <- err
	}()
	for rdb.LLen(t.Context(), core.KeysOf("order:42").Queue).Val() < 2 {
		time.Sleep(time.Millisecond)
	}
	const why = "suspended or stalled: connected, but does not take the lock"
	const drop = "reqlock unlock order:42 --waiter " + head + " --reason TEXT"
	at.want(t, done, words("ls"), "stalled: free, not taken by host web-1, pid 4242")
	at.want(t, done, words("show order:42"), "free, but the first in its queue does not take it", "host web-1, pid 4242 is "+why, drop)
	at.want(t, redisFailed, words("doctor"), "fail  queue", "order:42 is free, and 2 waiters wait; host web-1, pid 4242, first in the queue, is "+why, drop)
	var l inspect.Lock
	if err := json.Unmarshal([]byte(at.want(t, done, words("show order:42 --json")).out), &l); err != nil || !l.Stalled {
		t.Errorf("%+v, %v", l, err)
	}

	at.want(t, notHeld, words("unlock order:42 --yes --reason b"), "order:42 is not held", "host web-1, pid 4242", why, drop)
	at.want(t, usage, words("unlock order:42 --yes --waiter "+head), "--reason")
	at.want(t, usage, words("unlock order:42 --yes --reason b --owner a --waiter b"), "use one of them")
	at.want(t, notHeld, words("unlock order:42 --yes --reason b --waiter nobody:1"), "nobody:1 is not in the queue of order:42")
	r := at.want(t, done, words("unlock order:42 --yes --json --reason suspended --waiter "+head),
		`"msg":"reqlock: unlock"`, `"dropped":true`, `"waiter":"`+head+`"`, `"reason":"suspended"`, `"by":"`)
	var a dropAudit
	if err := json.Unmarshal([]byte(r.out), &a); err != nil || !a.Dropped || a.Waiter != head || a.Reason != "suspended" || a.By == "" || !a.Lock.Stalled {
		t.Errorf("%+v, %v", a, err)
	}
	if err := <-result; err != nil {
		t.Error(err)
	}
	at.want(t, done, words("doctor"), "!fail", "!warn  queue")
}

// Without --yes the operator is asked, with the process and its place.
func TestStalledQueue_Asks(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	rdb := srv.Client(t)
	queueBehind(t, rdb, "order:42", web1+":7")
	line := words("unlock order:42 --reason b --waiter " + web1 + ":7")
	call{redis: srv.URL(), answer: strings.NewReader("no\n")}.want(t, notHeld, line, "host web-1, pid 4242", "is number 1 of 1 in the queue of order:42", "still in the queue: you did not say yes")
	call{redis: srv.URL(), answer: strings.NewReader("yes\n")}.want(t, done, line, web1+":7 is dropped from the queue of order:42", "msg=\"reqlock: unlock\"", "dropped=true")
	if n := rdb.Exists(t.Context(), core.KeysOf("order:42").Queue, core.KeysOf("order:42").Deadlines).Val(); n != 0 {
		t.Errorf("%d keys are left", n)
	}
}

// The holder's log says who freed its lock, and why.
func TestUnlock_TellsTheHolder(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	rdb := srv.Client(t)
	locks := newLocks(t, rdb, "web-1.4242")
	lease := hold(t, locks.Lock("order:42"))
	channel := "reqlock:client:" + locks.ID()
	for rdb.PubSubNumSub(t.Context(), channel).Val()[channel] == 0 {
		time.Sleep(time.Millisecond)
	}
	call{redis: srv.URL()}.want(t, done, []string{"unlock", "order:42", "--yes", "--reason", "ticket 42"})
	<-lease.Done()
	if cause := lease.Err().Error(); !strings.Contains(cause, "freed by force by "+operator()+": ticket 42") {
		t.Errorf("the cause is %s", cause)
	}
}
