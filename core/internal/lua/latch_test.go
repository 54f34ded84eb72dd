package lua

import (
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/reqlock/reqlock/internal/lab/redistest"
)

const (
	mark      = "{order:42}:latch:" + mine
	otherMark = "{order:42}:latch:" + other
)

var (
	myMark = LatchMark{mark, time.Minute}
	opened = Announcement{Channel: "redisson_countdownlatch__channel__{order:42}", Message: "0", Commands: []string{"PUBLISH"}}
	counts = Announcement{Channel: "redisson_countdownlatch__channel__{order:42}", Message: "1", Commands: []string{"PUBLISH"}}
)

const (
	openedMessage = "redisson_countdownlatch__channel__{order:42} 0"
	countsMessage = "redisson_countdownlatch__channel__{order:42} 1"
)

// A latch is counted down once for each call, however many tries of it arrive. At 0 the key is
// deleted and a message published, as Redisson does it. Without a count, nothing happens.
func TestLatchCountDown(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		before, after string // empty: no key
		counted       bool
		message       bool
	}{
		"3":        {"3", "2", true, false},
		"1":        {"1", "", true, true},
		"none":     {"", "", false, false},
		"0":        {"0", "", true, false},
		"below 0":  {"-2", "", true, false},
		"18 nines": {"999999999999999999", "999999999999999998", true, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rdb := redistest.Start(t).Client(t)
			messages := tap(t, rdb)
			putCount(t, rdb, tc.before)
			for range 3 {
				if mustFlag(t, rdb, LatchCountDown(key, myMark, opened)) != tc.counted {
					t.Errorf("counted: %v, want %v", !tc.counted, tc.counted)
				}
				wantCount(t, rdb, tc.after)
			}
			if tc.message {
				messages.want(t, rdb, openedMessage)
			} else {
				messages.want(t, rdb)
			}
			wantTTL(t, rdb, mark, time.Minute)
		})
	}
}

// A late try changes neither the next round of a latch that was set anew nor one whose first try
// found no count.
func TestLatchCountDown_StrayInTheNextRound(t *testing.T) {
	t.Parallel()
	for _, before := range []string{"1", ""} {
		rdb := redistest.Start(t).Client(t)
		putCount(t, rdb, before)
		mustFlag(t, rdb, LatchCountDown(key, myMark, opened))
		if !mustFlag(t, rdb, LatchSet(key, 2, LatchMark{otherMark, time.Minute}, counts)) {
			t.Fatal("the next round could not begin")
		}
		mustFlag(t, rdb, LatchCountDown(key, myMark, opened))
		wantCount(t, rdb, "2")
	}
}

// The first try of a call to set a count decides, also once the count is gone, or has come.
func TestLatchSet(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		before  string
		set     bool
		after   string
		message []string
	}{
		"none": {"", true, "3", []string{countsMessage}},
		"2":    {"2", false, "2", nil},
		"0":    {"0", false, "0", nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rdb := redistest.Start(t).Client(t)
			messages := tap(t, rdb)
			putCount(t, rdb, tc.before)
			for range 2 {
				if mustFlag(t, rdb, LatchSet(key, 3, myMark, counts)) != tc.set {
					t.Errorf("set: %v, want %v", !tc.set, tc.set)
				}
				wantCount(t, rdb, tc.after)
			}
			messages.want(t, rdb, tc.message...)
			rdb.Del(ctx(), key)
			if mustFlag(t, rdb, LatchSet(key, 3, myMark, counts)) != tc.set {
				t.Errorf("a late try says %v, want %v", !tc.set, tc.set)
			}
			wantCount(t, rdb, "")
			wantTTL(t, rdb, mark, time.Minute)
			if !mustFlag(t, rdb, LatchForget(mark)) || mustFlag(t, rdb, LatchForget(mark)) {
				t.Error("the mark was not removed once")
			}
			wantKeys(t, rdb)
		})
	}
}

// A key of another type is no latch, and nothing is written.
func TestLatch_WrongKind(t *testing.T) {
	t.Parallel()
	for name, put := range map[string]func(*redis.Client) error{
		"lock":   func(rdb *redis.Client) error { return rdb.HSet(ctx(), key, other, 1).Err() },
		"text":   func(rdb *redis.Client) error { return rdb.Set(ctx(), key, "three", 0).Err() },
		"empty":  func(rdb *redis.Client) error { return rdb.Set(ctx(), key, "", 0).Err() },
		"a half": func(rdb *redis.Client) error { return rdb.Set(ctx(), key, "2.5", 0).Err() },
		"huge":   func(rdb *redis.Client) error { return rdb.Set(ctx(), key, "9999999999999999999", 0).Err() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rdb := redistest.Start(t).Client(t)
			if err := put(rdb); err != nil {
				t.Fatal(err)
			}
			before := rdb.Dump(ctx(), key).Val()
			for _, c := range []Call{LatchSet(key, 3, myMark, counts), LatchCountDown(key, myMark, opened), LatchCount(key)} {
				_, err := eval(rdb, c)
				if !redis.HasErrorPrefix(err, "WRONGTYPE") && !redis.HasErrorPrefix(err, "WRONGKIND") {
					t.Errorf("%s: %v", c.Script.Name, err)
				}
			}
			if rdb.Dump(ctx(), key).Val() != before {
				t.Error("the key was changed")
			}
			wantKeys(t, rdb, key)
		})
	}
}

func TestLatchCount(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client(t)
	for value, want := range map[string]int{"": 0, "3": 3, "0": 0, "-1": 0} {
		rdb.Del(ctx(), key)
		putCount(t, rdb, value)
		if n, err := ReadLatchCount(mustEval(t, rdb, LatchCount(key))); n != want || err != nil {
			t.Errorf("the count of %q is %d, %v; want %d", value, n, err, want)
		}
	}
	for _, reply := range []any{int64(3), "three", nil} {
		if n, err := ReadLatchCount(reply); !errors.Is(err, ErrUnexpected) {
			t.Errorf("the count of reply %v is %d, %v", reply, n, err)
		}
	}
}

// A user who may not publish can still count down.
func TestLatch_MayNotPublish(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	rdb := srv.Client(t)
	if err := rdb.Do(ctx(), "ACL", "SETUSER", "mute", "on", ">secret", "~*", "+@all", "-publish").Err(); err != nil {
		t.Fatal(err)
	}
	mute := srv.ClientWith(t, func(o *redis.Options) { o.Username, o.Password = "mute", "secret" })
	if !mustFlag(t, mute, LatchSet(key, 1, myMark, counts)) {
		t.Error("the count was not set")
	}
	wantCount(t, rdb, "1")
	if !mustFlag(t, mute, LatchCountDown(key, LatchMark{otherMark, time.Minute}, opened)) {
		t.Error("it was not counted")
	}
	wantCount(t, rdb, "")
}

// putCount makes the key of a latch; with an empty text there is none.
func putCount(t *testing.T, rdb *redis.Client, count string) {
	t.Helper()
	if count != "" {
		if err := rdb.Set(ctx(), key, count, 0).Err(); err != nil {
			t.Fatal(err)
		}
	}
}

// wantCount checks the key of a latch; with an empty text there must be none.
func wantCount(t *testing.T, rdb *redis.Client, want string) {
	t.Helper()
	got, err := rdb.Get(ctx(), key).Result()
	if got != want || err != nil && !(err == redis.Nil && want == "") {
		t.Errorf("the count is %q, %v; want %q", got, err, want)
	}
}
