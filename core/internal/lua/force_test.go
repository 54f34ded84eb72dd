package lua

import (
	"slices"
	"testing"

	"github.com/reqlock/reqlock/internal/lab/redistest"
)

// A script that forces tells each client of reqlock once, on its own channel, and Redisson's
// owners nothing. It names the lock.
func TestForceRelease_TellsClients(t *testing.T) {
	t.Parallel()
	const redisson = "bd9ad4ff-1d6c-4d6a-9c1a-4f9e1f4a7b10:34"
	owners := []string{"web-1.42.abcdefgh:7", "web-1.42.abcdefgh:8", "web-1.42.abcdefgh:7:write", "a.b-c_d.1.zzzz2345:9:write", redisson, redisson + ":write", "odd"}
	for name, force := range map[string]func([]string) Call{
		"plain": func(owners []string) Call { return ForceRelease(key, owners, Announcement{}) },
		"fair":  func(owners []string) Call { return ForceReleaseFair(fairLock, owners) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rdb := redistest.Start(t).Client(t)
			messages := rdb.PSubscribe(ctx(), "*")
			defer messages.Close()
			if _, err := messages.Receive(ctx()); err != nil {
				t.Fatal(err)
			}
			for _, owner := range owners {
				put(t, rdb, key, owner, 1, lease)
			}
			if !mustFlag(t, rdb, force(append(owners, "not.there.abcdefgh:1"))) {
				t.Error("nothing was taken")
			}
			if mustFlag(t, rdb, force(owners)) {
				t.Error("a repeat takes something")
			}
			if err := rdb.Publish(ctx(), "end", "").Err(); err != nil {
				t.Fatal(err)
			}
			var got []string
			for {
				m, err := messages.ReceiveMessage(ctx())
				if err != nil {
					t.Fatal(err)
				}
				if m.Channel == "end" {
					break
				}
				got = append(got, m.Channel+" "+m.Payload)
			}
			want := []string{"reqlock:client:web-1.42.abcdefgh " + key, "reqlock:client:a.b-c_d.1.zzzz2345 " + key}
			if !slices.Equal(got, want) {
				t.Errorf("published %q, want %q", got, want)
			}
		})
	}
}

// Present finds the fields that a lock has.
func TestPresent(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client(t)
	fields := []string{mine, other}
	for _, held := range [][]string{nil, {mine}, {mine, other}} {
		for _, owner := range held {
			put(t, rdb, key, owner, 2, lease)
		}
		there, err := ReadPresent(mustEval(t, rdb, Present(key, fields)), len(fields))
		if err != nil || there[0] != slices.Contains(held, mine) || there[1] != slices.Contains(held, other) {
			t.Errorf("held by %q: %v, %v", held, there, err)
		}
	}
	many := make([]string, MostPresent)
	for i := range many {
		many[i] = mine
	}
	if _, err := ReadPresent(mustEval(t, rdb, Present(key, many)), len(many)); err != nil {
		t.Error(err)
	}
	for _, odd := range []any{nil, int64(1), "1", []any{int64(1)}, []any{int64(1), "x"}} {
		if _, err := ReadPresent(odd, 2); err == nil {
			t.Errorf("reply %v is accepted", odd)
		}
	}
}
