package worlds

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/reqlock/reqlock/core/internal/lua"
	"github.com/reqlock/reqlock/core/internal/wire"
	"github.com/reqlock/reqlock/internal/lab/explore"
	"github.com/reqlock/reqlock/internal/lab/memredis"
)

// A script for several calls does what the calls do one by one. The calls are for two names, with
// every pair of contents that a lock can have.
func TestBatches_DoWhatSingleCallsDo(t *testing.T) {
	t.Parallel()
	m := New(World{Kind: Plain, Clients: []int{0, 1}, Leases: []uint8{1, 2}, Levels: 2, Losses: 1})
	defer m.Close()
	if v := explore.Run(m, 20_000).Violation; v != nil {
		t.Fatal(v)
	}
	contents := append([]string(nil), m.contents...)
	wrong := &memredis.DB{}
	wrong.Do("SET", lockName, "not a lock")
	contents = append(contents, wrong.Encode())
	const other = "other"
	second := strings.NewReplacer(lockName, other)
	a, b := m.wireName(wireOf(0, 0)), m.wireName(wireOf(1, 0))
	for _, x := range contents {
		for _, y := range contents {
			both := memredis.Decode(y, now)
			both.Rename(second)
			for _, c := range memredis.Decode(x, now).Commands() {
				both.Do(c...)
			}
			start := both.Encode()
			for _, first := range []string{a, b} {
				for _, last := range []string{a, b} {
					announce := func(name string) lua.Announcement {
						return lua.Announcement{Channel: wire.LockChannel(name), Message: wire.Unlocked, Commands: []string{"PUBLISH"}}
					}
					m.compareBatch(t, start, []lua.Call{
						lua.Release(lockName, first, announce(lockName)),
						lua.Release(other, last, announce(other)),
						lua.Acquire(lockName, last, ms(2)),
						lua.Acquire(other, first, ms(1)),
					})
					m.compareRenewals(t, start, []lua.Renewable{{Key: lockName, Field: first}, {Key: other, Field: last}})
				}
			}
		}
	}
}

func (m *Model) compareBatch(t *testing.T, start string, calls []lua.Call) {
	t.Helper()
	single, batch := memredis.Decode(start, now), memredis.Decode(start, now)
	var want []any
	for _, c := range calls {
		reply, err := m.eval(single, c)
		if err != nil { // alone, it names the script
			reply, _, _ = strings.Cut(err.Error(), " script: ")
		}
		want = append(want, reply)
	}
	reply, err := m.eval(batch, lua.Many(calls))
	if err != nil {
		t.Fatal(err)
	}
	got, err := lua.ReadMany(reply, len(calls))
	if err != nil {
		t.Fatal(err)
	}
	for i := range got {
		if fmt.Sprint(got[i]) != fmt.Sprint(want[i]) {
			t.Fatalf("reply %d to the batch is %v, and alone %v, on\n%s", i, got[i], want[i], memredis.Decode(start, now))
		}
	}
	if single.Encode() != batch.Encode() {
		t.Fatalf("the batch leaves\n%ssingle calls leave\n%son\n%s", batch, single, memredis.Decode(start, now))
	}
}

func (m *Model) compareRenewals(t *testing.T, start string, holds []lua.Renewable) {
	t.Helper()
	single, batch := memredis.Decode(start, now), memredis.Decode(start, now)
	var want []lua.Renewal
	renew := func(db *memredis.DB, holds []lua.Renewable) []lua.Renewal {
		reply, err := m.eval(db, lua.Renew(holds, ms(2)))
		if err != nil {
			t.Fatal(err)
		}
		results, err := lua.ReadRenew(reply, len(holds))
		if err != nil {
			t.Fatal(err)
		}
		return results
	}
	for i := range holds {
		want = append(want, renew(single, holds[i:i+1])...)
	}
	if got := renew(batch, holds); fmt.Sprint(got) != fmt.Sprint(want) && !reflect.DeepEqual(got, want) || single.Encode() != batch.Encode() {
		t.Fatalf("renewed together: %v and\n%sone by one: %v and\n%son\n%s", got, batch, want, single, memredis.Decode(start, now))
	}
}

// eval runs a call on a database.
func (m *Model) eval(db *memredis.DB, c lua.Call) (any, error) {
	r := &run{Model: m, call: c}
	err := r.eval(db)
	return r.reply, err
}
