package lua

import (
	"slices"
	"testing"

	"github.com/reqlock/reqlock/internal/lab/redistest"
)

// The script tells a command that the server does not have from one that it has, and runs none that
// writes.
func TestAbilities(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t, `rename-command LPOS ""`).Client(t)
	commands := []Command{
		{Words: []string{"LPOS", "k", "x"}, Reads: true},
		{Words: []string{"RPUSH", "k", "x"}},
		{Words: []string{"TIME"}, Reads: true},
		{Words: []string{"LINDEX", "k", "0"}, Reads: true},
	}
	for range 2 {
		got, err := ReadAbilities(mustEval(t, rdb, Abilities("k", commands)), len(commands))
		if want := []Ability{Unknown, Able, Able, Able}; err != nil || !slices.Equal(got, want) {
			t.Errorf("%v, %v; want %v", got, err, want)
		}
	}
	if n := rdb.DBSize(ctx()).Val(); n != 0 {
		t.Errorf("%d keys were written", n)
	}
	for _, reply := range append(strange, []any{int64(1)}, []any{int64(1), "1"}) {
		if got, err := ReadAbilities(reply, 2); err == nil {
			t.Errorf("%T %v: %v; want an error", reply, reply, got)
		}
	}
}
