package lua

import (
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/reqlock/reqlock/internal/lab/redistest"
)

// gone is an owner whose hold has ended.
const gone = "c.0.cccccccc:1"

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

	bound      = hash{"bound": "a 50", "binder": mine}
	boundEarly = hash{"bound": "a 50", "binder": other}
	boundElse  = hash{"bound": "a 70", "binder": other}

	// A hash of state lives for 20 s.
	stale     = hash{"record": "old", "owner": gone, "stale": "20000"}
	notStale  = hash{"record": "old", "owner": gone, "stale": "1000"}
	isRenewed = hash{"record": "done", "owner": mine, "ttl": "3600000", "stale": "600000"}
)

// with returns a hash with the fields of all.
func with(all ...hash) hash {
	sum := hash{}
	for _, h := range all {
		maps.Copy(sum, h)
	}
	return sum
}

func TestOnceAcquire(t *testing.T) {
	t.Parallel()
	type told = Answer
	none := Marks{}
	marker := Marks{Marker: "running", TTL: time.Hour}
	binding := Marks{Binding: "a 50", TTL: time.Hour}
	both := Marks{"running", "a 50", time.Hour}
	for name, tc := range map[string]struct {
		marks  Marks
		before state
		// told is the answer without its TTL.
		told   told
		record string
		after  state
	}{
		"free":                                   {none, state{}, told{Granted: true}, "", state{held, nil}},
		"free, with a marker":                    {marker, state{}, told{Granted: true}, "", state{held, marked}},
		"free, with a binding":                   {binding, state{}, told{Granted: true}, "", state{held, bound}},
		"free, with both":                        {both, state{}, told{Granted: true}, "", state{held, with(marked, bound)}},
		"free, bound before":                     {both, state{nil, boundEarly}, told{Granted: true}, "", state{held, with(marked, boundEarly)}},
		"free, bound to something else":          {both, state{nil, boundElse}, told{Bound: true}, "", state{nil, boundElse}},
		"free, bound, by one that does not ask":  {marker, state{nil, boundElse}, told{Granted: true}, "", state{held, with(marked, boundElse)}},
		"held":                                   {both, state{others, nil}, told{}, "", state{others, nil}},
		"held, for the same":                     {both, state{others, boundEarly}, told{}, "", state{others, boundEarly}},
		"held, for something else":               {both, state{others, boundElse}, told{Bound: true}, "", state{others, boundElse}},
		"held, with a marker":                    {marker, state{others, theirMark}, told{}, "", state{others, theirMark}},
		"held, an inner level has left a record": {marker, state{others, theirs}, told{}, "", state{others, theirs}},
		"a record":                               {both, state{nil, theirs}, told{}, "theirs", state{nil, theirs}},
		"a record of the same":                   {both, state{nil, with(theirs, boundEarly)}, told{}, "theirs", state{nil, with(theirs, boundEarly)}},
		"a record of something else":             {both, state{nil, with(theirs, boundElse)}, told{Bound: true}, "", state{nil, with(theirs, boundElse)}},
		"a marker that was left":                 {none, state{nil, theirMark}, told{}, "running", state{nil, theirMark}},
		"mine: a repeat":                         {none, state{held, nil}, told{Granted: true}, "", state{held, nil}},
		"mine with its marks: a repeat":          {both, state{held, with(marked, bound)}, told{Granted: true}, "", state{held, with(marked, bound)}},
		"a stray, after the record":              {marker, state{nil, result}, told{}, "done", state{nil, result}},
		"a stale record":                         {none, state{nil, stale}, told{Granted: true, Renews: true}, "", state{held, stale}},
		"a stale record, with a binding":         {binding, state{nil, stale}, told{}, "old", state{nil, stale}},
		"a record that goes stale":               {none, state{nil, notStale}, told{}, "old", state{nil, notStale}},
		"a stale record is renewed":              {none, state{others, stale}, told{}, "old", state{others, stale}},
		"a stale record, with a marker, renewed": {marker, state{others, stale}, told{}, "old", state{others, stale}},
		"mine beside a stale record: a repeat":   {none, state{held, stale}, told{Granted: true, Renews: true}, "", state{held, stale}},
		"an inner level has renewed it":          {none, state{others, with(stale, hash{"owner": other})}, told{}, "", state{others, with(stale, hash{"owner": other})}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rdb := redistest.Start(t).Client(t)
			tc.before.put(t, rdb)
			for range 2 { // a repeat changes nothing
				c := OnceAcquire(key, recordKey, mine, lease, tc.marks)
				wantTold(t, c, mustEval(t, rdb, c), tc.record, tc.told)
				tc.after.want(t, rdb)
			}
			if tc.told.Granted {
				wantTTL(t, rdb, key, lease)
			}
			if tc.told.Granted && tc.marks.TTL != 0 && tc.before.lock == nil {
				wantTTL(t, rdb, recordKey, time.Hour)
			} else if tc.before.record != nil {
				wantTTL(t, rdb, recordKey, 20*time.Second)
			}
		})
	}
}

// wantTold checks the reply to a OnceAcquire or a OnceLook: a record, or an answer but for its TTL.
func wantTold(t *testing.T, c Call, reply any, record string, want Answer) (ttl time.Duration) {
	t.Helper()
	got, ok := c.ReadRecord(reply)
	if ok != (record != "") || got != record {
		t.Errorf("record %q, %v; want %q", got, ok, record)
	}
	if ok {
		return 0
	}
	told, err := c.ReadAcquire(reply)
	ttl, told.TTL = told.TTL, 0
	if told != want || err != nil {
		t.Errorf("%+v, %v; want %+v", told, err, want)
	}
	return ttl
}

func TestOnceLook(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		before state
		record string
		bound  bool
		ttl    time.Duration
	}{
		"nothing":                    {state{}, "", false, -2 * time.Millisecond},
		"held":                       {state{others, nil}, "", false, 20 * time.Second},
		"held, with a marker":        {state{others, theirMark}, "", false, 20 * time.Second},
		"held for the same":          {state{others, boundEarly}, "", false, 20 * time.Second},
		"held for something else":    {state{others, boundElse}, "", true, 20 * time.Second},
		"a record":                   {state{nil, theirs}, "theirs", false, 0},
		"a record of the same":       {state{nil, with(theirs, boundEarly)}, "theirs", false, 0},
		"a record of something else": {state{nil, with(theirs, boundElse)}, "", true, -2 * time.Millisecond},
		"a stale record":             {state{nil, stale}, "old", false, 0},
		"a stale record is renewed":  {state{others, stale}, "old", false, 0},
		"an inner level renewed it":  {state{others, with(stale, hash{"owner": other})}, "", false, 20 * time.Second},
		"a hash without a record":    {state{nil, hash{"something": "else"}}, "", false, -2 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rdb := redistest.Start(t).Client(t)
			tc.before.put(t, rdb)
			c := OnceLook(key, recordKey, "a 50")
			ttl := wantTold(t, c, mustEval(t, rdb, c), tc.record, Answer{Bound: tc.bound})
			if ttl > tc.ttl || ttl < tc.ttl-10*time.Second {
				t.Errorf("%v to live, want %v", ttl, tc.ttl)
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
		"mine, with its marks":                {state{held, with(marked, bound)}, 0, true, state{nil, with(result, hash{"bound": "a 50"})}, 1},
		"one bound level of two":              {state{heldTwice, with(marked, bound)}, 1, true, state{held, with(result, bound)}, 0},
		"one level of two":                    {state{heldTwice, marked}, 1, true, state{held, result}, 0},
		"over an inner level's":               {state{held, hash{"record": "inner", "owner": mine}}, 0, true, state{nil, result}, 1},
		"over a stale record":                 {state{held, stale}, 0, true, state{nil, result}, 1},
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

// A record that goes stale replaces an old one, and lives for both its times.
func TestOnceRecord_Stale(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client(t)
	state{held, stale}.put(t, rdb)
	record := Record{Value: "done", TTL: 50 * time.Minute, Stale: 10 * time.Minute}
	for range 2 { // a repeat changes nothing
		if !mustFlag(t, rdb, OnceRecord(key, recordKey, mine, 0, record, announcement)) {
			t.Error("it is not stored")
		}
		state{nil, isRenewed}.want(t, rdb)
		wantTTL(t, rdb, recordKey, time.Hour)
	}
}

// A holder that could not renew a record puts off the next renewal, once. One that has lost the lock puts off nothing.
func TestOnceRelease_Pause(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		before state
		pause  time.Duration
		least  int64 // the record is stale from so many ms before its end
		most   int64
	}{
		"no pause":                    {state{held, stale}, 0, 20000, 20000},
		"a pause":                     {state{held, stale}, 5 * time.Second, 5000, 15000},
		"a pause to the end":          {state{held, stale}, time.Minute, 0, 0},
		"a record that is not stale":  {state{held, notStale}, time.Second, 1000, 1000},
		"the hold is gone":            {state{nil, stale}, 5 * time.Second, 20000, 20000},
		"the lock is that of another": {state{others, stale}, 5 * time.Second, 20000, 20000},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rdb := redistest.Start(t).Client(t)
			tc.before.put(t, rdb)
			release := OnceRelease(key, recordKey, mine, Removal{Pause: tc.pause}, announcement)
			var first int64
			for i := range 2 {
				mustFlag(t, rdb, release)
				got, err := rdb.HGet(ctx(), recordKey, "stale").Int64()
				if err != nil || got < tc.least || got > tc.most || i > 0 && got != first {
					t.Errorf("release %d: stale from %d ms before the end (%v), want %d to %d", i, got, err, tc.least, tc.most)
				}
				first = got
			}
			if record := rdb.HGet(ctx(), recordKey, "record").Val(); record != "old" {
				t.Errorf("the record is %q", record)
			}
		})
	}
}

func TestOnceRelease(t *testing.T) {
	t.Parallel()
	const gone, binding = 1, 2 // bits of the case's removal
	for name, tc := range map[string]struct {
		before state
		freed  bool
		after  state
		// after, with one of the bits, or both of them
		other map[int]state
	}{
		"mine":                                {state{held, nil}, true, state{}, nil},
		"mine, with its marker":               {state{held, marked}, true, state{}, nil},
		"mine, with its marks":                {state{held, with(marked, bound)}, true, state{nil, bound}, map[int]state{binding: {}, gone | binding: {}}},
		"mine, bound before":                  {state{held, with(marked, boundEarly)}, true, state{nil, boundEarly}, nil},
		"mine, an inner level left a record":  {state{held, result}, true, state{nil, result}, nil},
		"gone":                                {state{}, false, state{}, nil},
		"gone, its marker is left":            {state{nil, marked}, false, state{nil, marked}, map[int]state{gone: {}, gone | binding: {}}},
		"gone, its marks are left":            {state{nil, with(marked, bound)}, false, state{nil, with(marked, bound)}, map[int]state{gone: {nil, bound}, gone | binding: {}}},
		"gone, its record is there":           {state{nil, result}, false, state{nil, result}, nil},
		"gone, another has it":                {state{others, nil}, false, state{others, nil}, nil},
		"gone, another has it, with its mark": {state{others, with(theirMark, boundEarly)}, false, state{others, with(theirMark, boundEarly)}, nil},
		"gone, another has died":              {state{nil, theirMark}, false, state{nil, theirMark}, nil},
		"gone, another has left a record":     {state{nil, theirs}, false, state{nil, theirs}, nil},
	} {
		for bits := range 4 {
			removal := Removal{Gone: bits&gone != 0, Binding: bits&binding != 0}
			after, ok := tc.other[bits]
			if !ok {
				after = tc.after
			}
			t.Run(fmt.Sprintf("%s, %+v", name, removal), func(t *testing.T) {
				t.Parallel()
				rdb := redistest.Start(t).Client(t)
				tc.before.put(t, rdb)
				heard := listen(t, rdb.Subscribe(ctx(), announcement.Channel))
				release := OnceRelease(key, recordKey, mine, removal, announcement)
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
		OnceRelease(key, recordKey, mine, Removal{Gone: true}, announcement),
	} {
		if _, err := eval(rdb, c); !redis.HasErrorPrefix(err, "WRONGTYPE") {
			t.Errorf("%s: %v", c.Script.Name, err)
		}
		wantHash(t, rdb, key, held)
	}
	rdb.Del(ctx(), key)
	for _, c := range []Call{OnceAcquire(key, recordKey, mine, lease, Marks{}), OnceLook(key, recordKey, "")} {
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
		if record, ok := OnceLook(key, recordKey, "").ReadRecord(reply); ok {
			t.Errorf("%v is read as the record %q", reply, record)
		}
	}
	if record, ok := Acquire(key, mine, lease).ReadRecord("done"); ok {
		t.Errorf("a plain lock has the record %q", record)
	}
}

// A record takes the binding of its hold along when it expires, but not that of an earlier one.
func TestOnceRecord_TTL(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		// before is how long the marks lasted.
		before time.Duration
		// ttl is how long the record lasts.
		ttl   time.Duration
		marks hash
		want  time.Duration
	}{
		"its own, shorter":    {time.Hour, time.Minute, bound, time.Minute},
		"its own, longer":     {time.Minute, time.Hour, bound, time.Hour},
		"an earlier, shorter": {time.Hour, time.Minute, boundEarly, time.Hour},
		"an earlier, longer":  {time.Minute, time.Hour, boundEarly, time.Hour},
		"no binding, shorter": {time.Hour, time.Minute, marked, time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rdb := redistest.Start(t).Client(t)
			state{held, tc.marks}.put(t, rdb)
			rdb.PExpire(ctx(), recordKey, tc.before)
			mustFlag(t, rdb, OnceRecord(key, recordKey, mine, 0, Record{Value: "done", TTL: tc.ttl}, announcement))
			wantTTL(t, rdb, recordKey, tc.want)
		})
	}
}

func TestOnceCount(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client(t)
	count := func(member string, most int, d time.Duration) bool {
		t.Helper()
		return mustFlag(t, rdb, OnceCount("{anna}:counted", member, most, d))
	}
	for _, member := range []string{"a", "b", "a", "b"} {
		if !count(member, 2, time.Hour) {
			t.Errorf("%s is one too many", member)
		}
	}
	if count("c", 2, time.Hour) || rdb.ZCard(ctx(), "{anna}:counted").Val() != 2 {
		t.Error("a third counts")
	}
	wantTTL(t, rdb, "{anna}:counted", time.Hour)
	rdb.ZAdd(ctx(), "{anna}:counted", redis.Z{Score: 1, Member: "b"}) // its time is over
	if !count("c", 2, time.Hour) || rdb.ZCard(ctx(), "{anna}:counted").Val() != 2 {
		t.Error("one whose time is over counts")
	}
}
