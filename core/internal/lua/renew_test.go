package lua

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/reqlock/reqlock/internal/lab/redistest"
)

func TestRenew(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client(t)
	put(t, rdb, "short", mine, 2, 10*time.Second)
	put(t, rdb, "long", mine, 1, time.Hour)
	put(t, rdb, "endless", mine, 1, 0)
	put(t, rdb, "another's", other, 1, 20*time.Second)
	if err := rdb.Set(ctx(), "string", "a value", 0).Err(); err != nil {
		t.Fatal(err)
	}
	put(t, rdb, "last", mine, 1, 10*time.Second)

	keys := []string{"short", "long", "string", "endless", "gone", "another's", "last"}
	var holds []Renewable
	for _, key := range keys {
		holds = append(holds, Renewable{Key: key, Field: mine})
	}
	results, err := ReadRenew(mustEval(t, rdb, Renew(holds, lease)), len(keys))
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []bool{true, true, false, true, false, false, true} {
		if results[i].Renewed != want {
			t.Errorf("%s: renewed %v, want %v", keys[i], results[i].Renewed, want)
		}
		if isError := results[i].Err != nil; isError != (keys[i] == "string") {
			t.Errorf("%s: error %v", keys[i], results[i].Err)
		}
	}
	if err := results[2].Err; err == nil || !strings.Contains(err.Error(), "WRONGTYPE") {
		t.Errorf("the error of the key that is a string: %v", err)
	}
	wantTTL(t, rdb, "short", lease)
	wantTTL(t, rdb, "long", time.Hour)
	wantTTL(t, rdb, "endless", lease)
	wantTTL(t, rdb, "another's", 20*time.Second)
	wantTTL(t, rdb, "last", lease)
	wantHash(t, rdb, "short", map[string]string{mine: "2"})
	wantHash(t, rdb, "gone", nil)
}

// Renew tells apart the time-out keys of several holds, and leaves those of a hold that it does not
// renew alone.
func TestRenewTimeouts(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client(t)
	timeouts := map[string][]string{"none": nil, "gone": {"gone:1"}, "two": {"two:1", "two:2"}, "string": {"string:1"}, "one": {"one:1"}}
	keys := []string{"none", "gone", "two", "string", "one"}
	var holds []Renewable
	for _, key := range keys {
		switch key {
		case "gone":
		case "string":
			mustSet(t, rdb, key, time.Minute)
		default:
			put(t, rdb, key, mine, 1, 10*time.Second)
		}
		for _, timeout := range timeouts[key] {
			if timeout != "two:2" { // it was evicted, and is restored
				mustSet(t, rdb, timeout, 10*time.Second)
			}
		}
		holds = append(holds, Renewable{Key: key, Field: mine, Timeouts: timeouts[key], Lease: lease})
	}
	results, err := ReadRenew(mustEval(t, rdb, Renew(holds, lease)), len(holds))
	if err != nil {
		t.Fatal(err)
	}
	for i, key := range keys {
		want := lease
		if key == "gone" || key == "string" {
			want = 10 * time.Second
		} else {
			wantTTL(t, rdb, key, lease)
		}
		if got := results[i]; got.Renewed != (want == lease) || (got.Err != nil) != (key == "string") {
			t.Errorf("%s: %+v", key, got)
		}
		for _, timeout := range timeouts[key] {
			wantTTL(t, rdb, timeout, want)
		}
	}
}

// A renewal says that a hash lives for too long, as it does once the server's clock was set back, and
// the next one shortens the TTL. It does not if the hash has been prolonged in between, or if
// another reader shares it.
func TestRenew_Shortens(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client(t)
	renew := func(h Renewable) Renewal {
		t.Helper()
		results, err := ReadRenew(mustEval(t, rdb, Renew([]Renewable{{Key: "gone", Field: mine}, h}, lease)), 2)
		if err != nil || results[0] != (Renewal{}) || !results[1].Renewed {
			t.Fatalf("%+v, %v", results, err)
		}
		return results[1]
	}
	const long = time.Hour
	put(t, rdb, "lock", mine, 1, long)
	hold := Renewable{Key: "lock", Field: mine}
	first := renew(hold)
	wantTTL(t, rdb, "lock", long)
	if at := time.UnixMilli(first.Expiry); first.TTL > long || first.TTL < long-10*time.Second || time.Until(at) < long-20*time.Second {
		t.Errorf("it lives for %v, until %v", first.TTL, at)
	}

	// An extension has moved the end.
	hold.Seen = first.Expiry
	if !mustFlag(t, rdb, Update("lock", mine, 1, first.TTL+time.Second)) {
		t.Fatal("the extension was refused")
	}
	second := renew(hold)
	wantTTL(t, rdb, "lock", long+time.Second)
	if second.Expiry < first.Expiry+1000 {
		t.Errorf("it expires at %d and then at %d", first.Expiry, second.Expiry)
	}

	hold.Seen = second.Expiry
	for range 2 { // a repeat changes nothing
		if got := renew(hold); got.Expiry != 0 {
			t.Errorf("shortened: %+v", got)
		}
		wantTTL(t, rdb, "lock", lease)
	}

	// A reader, alone and beside another one.
	timeout := "timeout:1"
	put(t, rdb, "read", mine, 1, long)
	put(t, rdb, "read", "mode", 0, 0)
	if err := rdb.HSet(ctx(), "read", "mode", "read", other, "1").Err(); err != nil {
		t.Fatal(err)
	}
	mustSet(t, rdb, timeout, long)
	reader := Renewable{Key: "read", Field: mine, Timeouts: []string{timeout}, Lease: lease}
	if got := renew(reader); got.Expiry != 0 {
		t.Errorf("beside another reader: %+v", got)
	}
	if err := rdb.HDel(ctx(), "read", other).Err(); err != nil {
		t.Fatal(err)
	}
	reader.Seen = renew(reader).Expiry
	wantTTL(t, rdb, "read", long)
	wantTTL(t, rdb, timeout, long)
	renew(reader)
	wantTTL(t, rdb, "read", lease)
	wantTTL(t, rdb, timeout, lease)
}

// One script must carry as many holds as the watchdog puts into a batch, each with its own owner.
func TestRenewMany(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client(t)
	const n = 500
	var holds []Renewable
	for i := range n {
		holds = append(holds, Renewable{Key: fmt.Sprintf("lock:%d", i), Field: fmt.Sprintf("client:%d", i)})
		if i%2 == 0 {
			put(t, rdb, holds[i].Key, holds[i].Field, 1, time.Second*20)
		}
	}
	results, err := ReadRenew(mustEval(t, rdb, Renew(holds, time.Hour)), n)
	if err != nil {
		t.Fatal(err)
	}
	for i := range n {
		if want := i%2 == 0; results[i].Renewed != want || results[i].Err != nil {
			t.Fatalf("%s: %+v, want %v", holds[i].Key, results[i], want)
		}
	}
	wantTTL(t, rdb, holds[n-2].Key, time.Hour)
}

func mustSet(t *testing.T, rdb *redis.Client, key string, ttl time.Duration) {
	t.Helper()
	if err := rdb.Set(ctx(), key, "1", ttl).Err(); err != nil {
		t.Fatal(err)
	}
}
