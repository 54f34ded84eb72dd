package lua

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"
)

// strange holds replies that no script gives.
var strange = []any{
	nil, "", "1", "OK", true, false, 1.0, int64(-1), int64(math.MinInt64), int(1),
	[]any{}, []any{nil}, []any{"1"}, []any{int64(1), int64(2)}, []any{[]any{int64(1)}}, map[any]any{"1": int64(1)}, fmt.Errorf("x"),
}

func TestReadAcquire(t *testing.T) {
	t.Parallel()
	plain, fenced, fair := Acquire(key, mine, lease), AcquireFenced(key, "n", mine, lease), AcquireFair(&Fair{}, mine, lease, 0, 0)
	fencedFair, fencedWrite := AcquireFencedFair(&Fair{}, mine, lease, 0, 0), AcquireFencedWrite(key, "n", mineWrite, lease)
	for _, tc := range []struct {
		call  Call
		reply any
		want  Answer
	}{
		{fencedFair, int64(1), Answer{Granted: true, Token: 1}},
		{fencedFair, "9007199254740992", Answer{Granted: true, Token: exact}},
		{fencedFair, []any{int64(5), "1700000000000", int64(17)}, Answer{TTL: 5 * time.Millisecond, Now: 1700000000000, Place: 17}},
		{fencedWrite, int64(2), Answer{Granted: true, Token: 2}},
		{fencedWrite, []any{int64(30000)}, Answer{TTL: 30 * time.Second}},
		{plain, int64(1), Answer{Granted: true}},
		{fair, int64(1), Answer{Granted: true}},
		{fenced, int64(1), Answer{Granted: true, Token: 1}},
		{fenced, int64(exact - 1), Answer{Granted: true, Token: exact - 1}},
		{fenced, "9007199254740992", Answer{Granted: true, Token: exact}},
		{fenced, "9223372036854775807", Answer{Granted: true, Token: math.MaxInt64}},
		{plain, []any{int64(0)}, Answer{}},
		{plain, []any{int64(-1)}, Answer{TTL: -time.Millisecond}},
		{fenced, []any{int64(30000)}, Answer{TTL: 30 * time.Second}},
		{plain, []any{int64(math.MaxInt64 / 1_000_000)}, Answer{TTL: math.MaxInt64 / 1_000_000 * time.Millisecond}},
		{plain, []any{int64(math.MaxInt64/1_000_000 + 1)}, Answer{TTL: -time.Millisecond}},
		{fair, []any{int64(math.MaxInt64), "1700000000000", int64(1)}, Answer{TTL: -time.Millisecond, Now: 1700000000000, Place: 1}},
		{fair, []any{int64(5), "1700000000000", int64(0)}, Answer{TTL: 5 * time.Millisecond, Now: 1700000000000}},
		{fair, []any{int64(5), "1700000000000", int64(17)}, Answer{TTL: 5 * time.Millisecond, Now: 1700000000000, Place: 17}},
	} {
		if got, err := tc.call.ReadAcquire(tc.reply); got != tc.want || err != nil {
			t.Errorf("%s: %v: %+v, %v; want %+v", tc.call.Script.Name, tc.reply, got, err, tc.want)
		}
	}
	for _, c := range []Call{plain, fenced, fair, fencedFair, fencedWrite} {
		for _, reply := range append(strange, int64(0)) {
			if got, err := c.ReadAcquire(reply); got != (Answer{}) || err == nil {
				t.Errorf("%s: %T %v: %+v, %v; want an error", c.Script.Name, reply, reply, got, err)
			}
		}
	}
	if got, err := plain.ReadAcquire(int64(2)); err == nil {
		t.Errorf("a plain lock has no token: %+v", got)
	}
	for _, reply := range [][]any{{int64(2)}, {int64(2), "soon", int64(1)}, {int64(2), int64(3), int64(1)}, {"2", "3", int64(1)}, {int64(2), "3", int64(-1)}} {
		if got, err := fair.ReadAcquire(reply); got != (Answer{}) || err == nil {
			t.Errorf("a refusal without the server's clock or with no place, %v: %+v, %v", reply, got, err)
		}
	}
}

func TestReadUpdate(t *testing.T) {
	t.Parallel()
	c := Update(key, mine, 1, lease)
	for n, want := range map[int64]bool{0: false, 1: true} {
		if got, err := c.ReadUpdate(n); got != want || err != nil {
			t.Errorf("%d: %v, %v", n, got, err)
		}
	}
	for _, reply := range append(strange, int64(2)) {
		got, err := c.ReadUpdate(reply)
		if got || err == nil {
			t.Errorf("%T %v: %v, %v; want an error", reply, reply, got, err)
		} else if !strings.Contains(err.Error(), "update") {
			t.Errorf("the error does not name the script: %v", err)
		}
	}
}

func TestReadRelease(t *testing.T) {
	t.Parallel()
	c := Release(key, mine, announcement)
	for n, want := range map[int64]struct {
		freed     bool
		listeners int
	}{0: {false, 0}, 1: {true, 0}, 3: {true, 2}} {
		if freed, listeners, err := c.ReadRelease(n); freed != want.freed || listeners != want.listeners || err != nil {
			t.Errorf("%d: %v, %d, %v", n, freed, listeners, err)
		}
	}
	for _, reply := range strange {
		if freed, _, err := c.ReadRelease(reply); freed || err == nil || !strings.Contains(err.Error(), "release") {
			t.Errorf("%T %v: %v, %v; want an error that names the script", reply, reply, freed, err)
		}
	}
}

func TestReadHolders(t *testing.T) {
	t.Parallel()
	for _, want := range [][]string{{}, {mine}, {mine, other}} {
		reply := []any{}
		for _, owner := range want {
			reply = append(reply, owner)
		}
		if got, err := ReadHolders(reply); err != nil || !slices.Equal(got, want) {
			t.Errorf("%v: %q, %v", reply, got, err)
		}
	}
	for _, reply := range []any{nil, "", mine, int64(0), int64(1), []any{nil}, []any{mine, int64(1)}, map[any]any{mine: "1"}} {
		if got, err := ReadHolders(reply); got != nil || err == nil {
			t.Errorf("%T %v: %q, %v; want an error", reply, reply, got, err)
		}
	}
}

func TestReadInspect(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		reply []any
		want  State
	}{
		{[]any{int64(0), int64(-2), int64(0), ""}, State{}},
		{[]any{int64(1), int64(-1), int64(0), ""}, State{Fields: 1, TTL: -time.Millisecond}},
		{[]any{int64(1), int64(0), int64(1), ""}, State{Fields: 1, Count: 1}},
		{[]any{int64(1), int64(math.MaxInt64), int64(1), ""}, State{Fields: 1, Count: 1, TTL: -time.Millisecond}},
		{[]any{int64(2), int64(1500), int64(4), "read"}, State{Fields: 2, TTL: 1500 * time.Millisecond, Count: 4, Mode: "read"}},
	} {
		if got, err := ReadInspect(tc.reply); got != tc.want || err != nil {
			t.Errorf("%v: %+v, %v; want %+v", tc.reply, got, err, tc.want)
		}
	}
	for _, reply := range append(strange, []any{int64(1), nil, int64(1), ""}, []any{int64(1), int64(2), "3", ""}, []any{int64(1), int64(2), int64(3), int64(4)}) {
		if got, err := ReadInspect(reply); got != (State{}) || err == nil {
			t.Errorf("%T %v: %+v, %v; want an error", reply, reply, got, err)
		}
	}
}

func TestReadRenew(t *testing.T) {
	t.Parallel()
	results, err := ReadRenew([]any{int64(1), int64(0), "WRONGTYPE no", int64(5000), int64(1000)}, 4)
	if err != nil {
		t.Fatal(err)
	}
	if !results[0].Renewed || results[0].Err != nil || results[1].Renewed || results[1].Err != nil || results[2].Renewed || results[2].Err == nil ||
		results[3] != (Renewal{Renewed: true, TTL: 5 * time.Second, Expiry: 6000}) {
		t.Errorf("%+v", results)
	}
	one := int64(1)
	for _, reply := range append(strange, int64(0), one, []any{one}, []any{one, one, one}, []any{one, int64(2), one, int64(0)}, []any{one, nil, one, int64(0)}) {
		if got, err := ReadRenew(reply, 3); got != nil || err == nil {
			t.Errorf("%T %v: %+v, %v; want an error", reply, reply, got, err)
		}
	}
	if got, err := ReadRenew([]any{int64(0)}, 0); len(got) != 0 || err != nil {
		t.Errorf("no keys: %v, %v", got, err)
	}
}
