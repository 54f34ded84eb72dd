package lua

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/reqlock/reqlock/internal/redistest"
)

const recordKey = "{order:42}:record"

// state is the state in Redis: the hashes of the lock and of the record. nil: the hash does not
// exist.
type state struct{ lock, record map[string]string }

func (s state) put(t *testing.T, rdb *redis.Client) {
	t.Helper()
	for k, fields := range map[string]map[string]string{key: s.lock, recordKey: s.record} {
		for field, value := range fields {
			if err := rdb.HSet(ctx(), k, field, value).Err(); err != nil {
				t.Fatal(err)
			}
			if err := rdb.PExpire(ctx(), k, 20*time.Second).Err(); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func (s state) want(t *testing.T, rdb *redis.Client) {
	t.Helper()
	wantHash(t, rdb, key, s.lock)
	wantHash(t, rdb, recordKey, s.record)
}

type hash = map[string]string

var (
	held      = hash{mine: "1"}
	heldTwice = hash{mine: "2"}
	others    = hash{other: "1"}
	result    = hash{"record": "done", "owner": mine, "ttl": "3600000"}
	theirs    = hash{"record": "theirs", "owner": other}
	marked    = hash{"record": "running", "marker": mine, "ttl": "3600000"}
	theirMark = hash{"record": "running", "marker": other}
)

func TestOnceAcquire(t *testing.T) {
	t.Parallel()
	marker := Record{Value: "running", TTL: time.Hour}
	for name, tc := range map[string]struct {
		marker  Record
		before  state
		granted bool
		record  string
		after   state
	}{
		"free":                                   {Record{}, state{}, true, "", state{held, nil}},
		"free, with a marker":                    {marker, state{}, true, "", state{held, marked}},
		"held":                                   {marker, state{others, nil}, false, "", state{others, nil}},
		"held, with a marker":                    {marker, state{others, theirMark}, false, "", state{others, theirMark}},
		"held, an inner level has left a record": {marker, state{others, theirs}, false, "", state{others, theirs}},
		"a record":                               {marker, state{nil, theirs}, false, "theirs", state{nil, theirs}},
		"a marker that was left":                 {Record{}, state{nil, theirMark}, false, "running", state{nil, theirMark}},
		"mine: a repeat":                         {Record{}, state{held, nil}, true, "", state{held, nil}},
		"mine with its marker: a repeat":         {marker, state{held, marked}, true, "", state{held, marked}},
		"a stray, after the record":              {marker, state{nil, result}, false, "done", state{nil, result}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rdb := redistest.Start(t).Client(t)
			tc.before.put(t, rdb)
			for range 2 { // a repeat changes nothing
				c := OnceAcquire(key, recordKey, mine, lease, tc.marker)
				reply := mustEval(t, rdb, c)
				if record, ok := c.ReadRecord(reply); ok != (tc.record != "") || record != tc.record {
					t.Errorf("record %q, %v; want %q", record, ok, tc.record)
				} else if !ok {
					if told, err := c.ReadAcquire(reply); err != nil || told.Granted != tc.granted {
						t.Errorf("%+v, %v; want granted %v", told, err, tc.granted)
					}
				}
				tc.after.want(t, rdb)
			}
			if tc.granted {
				wantTTL(t, rdb, key, lease)
			}
			if tc.granted && tc.marker.Value != "" && tc.before.record == nil {
				wantTTL(t, rdb, recordKey, time.Hour)
			} else if tc.before.record != nil {
				wantTTL(t, rdb, recordKey, 20*time.Second)
			}
		})
	}
}

func TestOnceLook(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		before state
		record string
		ttl    time.Duration
	}{
		"nothing":                 {state{}, "", -2 * time.Millisecond},
		"held":                    {state{others, nil}, "", 20 * time.Second},
		"held, with a marker":     {state{others, theirMark}, "", 20 * time.Second},
		"a record":                {state{nil, theirs}, "theirs", 0},
		"a hash without a record": {state{nil, hash{"something": "else"}}, "", -2 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rdb := redistest.Start(t).Client(t)
			tc.before.put(t, rdb)
			c := OnceLook(key, recordKey)
			reply := mustEval(t, rdb, c)
			if record, ok := c.ReadRecord(reply); ok != (tc.record != "") || record != tc.record {
				t.Errorf("record %q, %v; want %q", record, ok, tc.record)
			} else if !ok {
				if told, err := c.ReadAcquire(reply); told.Granted || err != nil || told.TTL > tc.ttl || told.TTL < tc.ttl-10*time.Second {
					t.Errorf("%+v, %v; want %v to live", told, err, tc.ttl)
				}
			}
			tc.before.want(t, rdb)
		})
	}
}

func TestOnceRecord(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		before state
		left   int
		done   bool
		after  state
		heard  int
	}{
		"mine":                                {state{held, nil}, 0, true, state{nil, result}, 1},
		"mine, with its marker":               {state{held, marked}, 0, true, state{nil, result}, 1},
		"one level of two":                    {state{heldTwice, marked}, 1, true, state{held, result}, 0},
		"over an inner level's":               {state{held, hash{"record": "inner", "owner": mine}}, 0, true, state{nil, result}, 1},
		"done before: a repeat":               {state{nil, result}, 0, true, state{nil, result}, 0},
		"done before, and the next has it":    {state{others, result}, 0, true, state{others, result}, 0},
		"gone":                                {state{}, 0, false, state{}, 0},
		"gone, only its marker is left":       {state{nil, marked}, 0, false, state{nil, marked}, 0},
		"gone, an inner level":                {state{nil, result}, 1, false, state{nil, result}, 0},
		"gone, another has it":                {state{others, nil}, 0, false, state{others, nil}, 0},
		"gone, another has it, with a marker": {state{others, theirMark}, 0, false, state{others, theirMark}, 0},
		"gone, another has left a record":     {state{nil, theirs}, 0, false, state{nil, theirs}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rdb := redistest.Start(t).Client(t)
			tc.before.put(t, rdb)
			heard := listen(t, rdb.Subscribe(ctx(), announcement.Channel))
			for range 2 { // a repeat changes nothing
				c := OnceRecord(key, recordKey, mine, tc.left, Record{Value: "done", TTL: time.Hour}, announcement)
				if done := mustFlag(t, rdb, c); done != tc.done {
					t.Errorf("done %v, want %v", done, tc.done)
				}
				tc.after.want(t, rdb)
			}
			if tc.before.lock[mine] != "" {
				wantTTL(t, rdb, recordKey, time.Hour)
			}
			heard.want(t, rdb, tc.heard)
		})
	}
}

func TestOnceRelease(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		before state
		freed  bool
		after  state
	}{
		"mine":                                {state{held, nil}, true, state{}},
		"mine, with its marker":               {state{held, marked}, true, state{}},
		"mine, an inner level left a record":  {state{held, result}, true, state{nil, result}},
		"gone":                                {state{}, false, state{}},
		"gone, its marker is left":            {state{nil, marked}, false, state{nil, marked}},
		"gone, its record is there":           {state{nil, result}, false, state{nil, result}},
		"gone, another has it":                {state{others, nil}, false, state{others, nil}},
		"gone, another has it, with a marker": {state{others, theirMark}, false, state{others, theirMark}},
		"gone, another has died":              {state{nil, theirMark}, false, state{nil, theirMark}},
		"gone, another has left a record":     {state{nil, theirs}, false, state{nil, theirs}},
	} {
		for _, unused := range []bool{false, true} {
			after := tc.after
			if unused && name == "gone, its marker is left" {
				after = state{}
			}
			t.Run(fmt.Sprintf("%s, unused %t", name, unused), func(t *testing.T) {
				t.Parallel()
				rdb := redistest.Start(t).Client(t)
				tc.before.put(t, rdb)
				heard := listen(t, rdb.Subscribe(ctx(), announcement.Channel))
				release := OnceRelease(key, recordKey, mine, unused, announcement)
				if freed := mustFlag(t, rdb, release); freed != tc.freed {
					t.Errorf("freed %v, want %v", freed, tc.freed)
				}
				if mustFlag(t, rdb, release) {
					t.Error("a repeat frees something once more")
				}
				after.want(t, rdb)
				want := 0
				if tc.freed {
					want = 1
				}
				heard.want(t, rdb, want)
			})
		}
	}
}

// A key of another type stops a script before it writes anything.
func TestOnceWrongType(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client(t)
	put(t, rdb, key, mine, 1, lease)
	if err := rdb.Set(ctx(), recordKey, "something else", 0).Err(); err != nil {
		t.Fatal(err)
	}
	for _, c := range []Call{
		OnceRecord(key, recordKey, mine, 0, Record{Value: "done", TTL: time.Hour}, announcement),
		OnceRelease(key, recordKey, mine, true, announcement),
	} {
		if _, err := eval(rdb, c); !redis.HasErrorPrefix(err, "WRONGTYPE") {
			t.Errorf("%s: %v", c.Script.Name, err)
		}
		wantHash(t, rdb, key, held)
	}
	rdb.Del(ctx(), key)
	for _, c := range []Call{OnceAcquire(key, recordKey, mine, lease, Record{}), OnceLook(key, recordKey)} {
		if _, err := eval(rdb, c); !redis.HasErrorPrefix(err, "WRONGTYPE") {
			t.Errorf("%s: %v", c.Script.Name, err)
		}
		wantHash(t, rdb, key, nil)
	}
}

// A string is a record only in the reply of a script that may return one.
func TestReadRecord(t *testing.T) {
	t.Parallel()
	for _, reply := range []any{int64(1), []any{int64(5)}, nil} {
		if record, ok := OnceLook(key, recordKey).ReadRecord(reply); ok {
			t.Errorf("%v is read as the record %q", reply, record)
		}
	}
	if record, ok := Acquire(key, mine, lease).ReadRecord("done"); ok {
		t.Errorf("a plain lock has the record %q", record)
	}
}
