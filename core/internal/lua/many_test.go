package lua

import (
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/reqlock/reqlock/internal/lab/redistest"
)

// together runs calls as one Many.
func together(t *testing.T, rdb *redis.Client, calls ...Call) []any {
	t.Helper()
	for _, c := range calls {
		if c.Frees() == c.Takes() {
			t.Fatalf("%s %v cannot be part of a Many", c.Script.Name, c.EvalSHA())
		}
	}
	replies, err := ReadMany(mustEval(t, rdb, Many(calls)), len(calls))
	if err != nil {
		t.Fatal(err)
	}
	return replies
}

// Each lock gets what its own script does and replies, whatever happens to the others.
func TestMany(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client(t)
	heard := rdb.PSubscribe(ctx(), "*")
	defer heard.Close()
	if _, err := heard.Receive(ctx()); err != nil {
		t.Fatal(err)
	}
	put(t, rdb, "held", mine, 1, time.Hour)
	put(t, rdb, "shared", mine, 1, time.Hour)
	put(t, rdb, "shared", other, 1, time.Hour)
	put(t, rdb, "theirs", other, 1, time.Hour)
	put(t, rdb, "again", mine, 1, time.Second)
	if err := rdb.Set(ctx(), "text", "precious", 0).Err(); err != nil {
		t.Fatal(err)
	}
	release := func(key string) Call {
		return Release(key, mine, Announcement{Channel: "freed:" + key, Message: "0", Commands: []string{"PUBLISH"}})
	}
	replies := together(t, rdb,
		release("held"), release("gone"), release("text"), release("shared"), release("taken at once"),
		Acquire("free", mine, lease), Acquire("text", mine, lease), Acquire("theirs", mine, lease), Acquire("again", mine, lease),
		Acquire("held", other, lease))

	wrong := replyError("WRONGTYPE Operation against a key holding the wrong kind of value")
	theirs, _ := replies[7].([]any)
	if len(theirs) != 1 || theirs[0].(int64) < 3599_000 || theirs[0].(int64) > 3600_000 {
		t.Errorf("of a lock of another owner: %v, want its time to live", replies[7])
	}
	replies[7] = nil
	if want := []any{int64(2), int64(0), wrong, int64(2), int64(0), int64(1), wrong, nil, int64(1), int64(1)}; !reflect.DeepEqual(replies, want) {
		t.Errorf("replies %#v, want %#v", replies, want)
	}
	if !redis.HasErrorPrefix(wrong, "WRONGTYPE") {
		t.Error("an error of one lock is not one of Redis")
	}
	wantKeys(t, rdb, "again", "free", "held", "shared", "text", "theirs")
	wantHash(t, rdb, "held", map[string]string{other: "1"})
	wantHash(t, rdb, "shared", map[string]string{other: "1"})
	wantHash(t, rdb, "free", map[string]string{mine: "1"})
	wantTTL(t, rdb, "free", lease)
	wantTTL(t, rdb, "again", lease)
	if text := rdb.Get(ctx(), "text").Val(); text != "precious" {
		t.Errorf("the text is %q now", text)
	}
	for _, channel := range []string{"freed:held", "freed:shared"} {
		m, err := heard.ReceiveMessage(ctx())
		if err != nil || m.Channel != channel || m.Payload != "0" {
			t.Fatalf("published was %v, %v; want a 0 on %s", m, err, channel)
		}
	}
}

// Each reply is the one that the script gives alone.
func TestManyRepliesAlike(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client(t)
	calls := []Call{Release(key, mine, announcement), Acquire(key, mine, lease)}
	for _, state := range []string{"free", "mine", "another's", "without end"} {
		prepare := func() {
			rdb.FlushAll(ctx())
			switch state {
			case "mine":
				put(t, rdb, key, mine, 1, time.Hour)
			case "another's":
				put(t, rdb, key, other, 1, time.Hour)
			case "without end":
				rdb.HSet(ctx(), key, other, 1)
			}
		}
		for i, c := range calls {
			prepare()
			alone := mustEval(t, rdb, c)
			prepare()
			many := together(t, rdb, calls[i])[0]
			// Some milliseconds have passed in between.
			if held, ok := alone.([]any); ok && state == "another's" {
				alone, many = len(held), len(many.([]any))
			}
			if !reflect.DeepEqual(alone, many) {
				t.Errorf("%s of a lock that is %s: %v alone, %v as one of many", c.Script.Name, state, alone, many)
			}
		}
	}
}

// A read/write lock among them gets the error that its script gives it alone.
func TestManyWithAReadWriteLock(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client(t)
	if err := rdb.HSet(ctx(), "rw", "mode", "read", other, 1).Err(); err != nil {
		t.Fatal(err)
	}
	_, alone := eval(rdb, Acquire("rw", mine, lease))
	if !redis.HasErrorPrefix(alone, "WRONGKIND") {
		t.Fatalf("alone: %v, want WRONGKIND", alone)
	}
	replies := together(t, rdb, Acquire("free", mine, lease), Acquire("rw", mine, lease), Acquire("free too", mine, lease))
	if want := []any{int64(1), replyError(alone.Error()), int64(1)}; !reflect.DeepEqual(replies, want) {
		t.Errorf("replies %#v, want %#v", replies, want)
	}
}

func TestManyLocks(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client(t)
	const n = 500
	var frees, takes []Call
	for i := range n {
		key := fmt.Sprint("lock:", i)
		frees, takes = append(frees, Release(key, mine, announcement)), append(takes, Acquire(key, mine, lease))
	}
	for _, calls := range [][]Call{takes, frees, slices.Concat(frees, takes), frees} {
		for i, reply := range together(t, rdb, calls...) {
			want := int64(1)
			if len(calls) == 2*n && i < n { // already freed
				want = 0
			}
			if reply != want {
				t.Fatalf("%d of %d: %v, want %d", i, len(calls), reply, want)
			}
		}
	}
	wantKeys(t, rdb)
}

// A Many does nothing that its user may not do to one lock.
func TestManyWithoutRights(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	limited := asUser(t, srv, "~mine:*", "resetchannels", "+@all", "-pexpire")
	put(t, srv.Client(t), "mine:held", mine, 1, time.Hour)
	replies := together(t, limited, Release("mine:held", mine, announcement), Acquire("mine:free", mine, lease))
	if replies[0] != int64(1) {
		t.Errorf("freed without a right to publish: %v, want 1", replies[0])
	}
	if _, failed := replies[1].(error); !failed {
		t.Errorf("taken without a right to expire: %v, want an error", replies[1])
	}
	if reply, err := eval(limited, Many([]Call{Acquire("mine:1", mine, lease), Acquire("theirs:1", mine, lease)})); !redis.HasErrorPrefix(err, "NOPERM") {
		t.Errorf("with a key that is not permitted: %v, %v; want NOPERM", reply, err)
	}
	wantKeys(t, srv.Client(t), "mine:free") // the hold that could not expire; its owner frees it
}

// A release with an unusual announcement goes alone, and so does every other script.
func TestManyIsForPlainLocks(t *testing.T) {
	t.Parallel()
	for _, a := range []Announcement{
		{Channel: "c", Message: "1", Commands: []string{"PUBLISH"}},
		{Channel: "c", Message: "0", Commands: []string{"SPUBLISH"}},
		{Channel: "c", Message: "0", Commands: []string{"PUBLISH", "SPUBLISH"}},
		{Channel: "c", Message: "0"},
		{},
	} {
		if c := Release(key, mine, a); c.Frees() || c.Takes() {
			t.Errorf("%v may be part of a Many", c.EvalSHA())
		}
	}
	for _, c := range calls() {
		if got, want := c.Frees(), c.Script == release; got != want {
			t.Errorf("%s frees: %v, want %v", c.Script.Name, got, want)
		}
		if got, want := c.Takes(), c.Script == acquire; got != want {
			t.Errorf("%s takes: %v, want %v", c.Script.Name, got, want)
		}
	}
}

func TestReadMany(t *testing.T) {
	t.Parallel()
	for _, reply := range append(slices.DeleteFunc(slices.Clone(strange), func(r any) bool {
		list, ok := r.([]any)
		return ok && len(list) == 1
	}), int64(0), int64(1)) {
		if got, err := ReadMany(reply, 1); got != nil || err == nil {
			t.Errorf("%T %v: %v, %v; want an error", reply, reply, got, err)
		}
	}
}
