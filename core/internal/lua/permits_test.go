package lua

import (
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/reqlock/reqlock/internal/lab/redistest"
)

var (
	semaphore = &Semaphore{Free: "s", Taken: "{s}:timeout", Declared: "{s}:permits", Announcement: Announcement{Channel: "permits", Commands: []string{publish}}}
	three     = Declaration{Permits: 3, Age: time.Minute}
)

// acquirePermits takes permits, and returns the answer.
func acquirePermits(t *testing.T, rdb *redis.Client, owner string, count int, d Declaration) Answer {
	t.Helper()
	c := AcquirePermits(semaphore, owner, count, lease, d)
	answer, err := c.ReadAcquire(mustEval(t, rdb, c))
	if err != nil {
		t.Fatal(err)
	}
	return answer
}

// wantSemaphore fails the test unless Redis has that number of free permits, and those ids are taken.
func wantSemaphore(t *testing.T, rdb *redis.Client, free string, ids ...string) {
	t.Helper()
	if got, err := rdb.Get(ctx(), semaphore.Free).Result(); err != nil || got != free {
		t.Errorf("%s permits are free (%v), want %s", got, err, free)
	}
	got, err := rdb.ZRange(ctx(), semaphore.Taken, 0, -1).Result()
	slices.Sort(got)
	slices.Sort(ids)
	if err != nil || !slices.Equal(got, ids) {
		t.Errorf("%q are taken (%v), want %q", got, err, ids)
	}
}

func expire(t *testing.T, rdb *redis.Client, id string) {
	t.Helper()
	if err := rdb.ZAddXX(ctx(), semaphore.Taken, redis.Z{Score: 1, Member: id}).Err(); err != nil {
		t.Fatal(err)
	}
}

func TestPermits_AcquireAndRelease(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client(t)
	for i, want := range []Answer{{Granted: true, Free: 2}, {Granted: true, Free: 2}, {Granted: true}} {
		owner, count := []string{"a", "a", "b"}[i], []int{1, 1, 2}[i] // the second is a repeat
		if got := acquirePermits(t, rdb, owner, count, three); got != want {
			t.Errorf("%d: %+v, want %+v", i, got, want)
		}
	}
	wantSemaphore(t, rdb, "0", "a", "b", "b:2")
	if got := acquirePermits(t, rdb, "c", 1, three); got.Granted || got.TTL > lease || got.TTL < lease/2 {
		t.Errorf("a fourth: %+v", got)
	}
	for i, want := range []bool{true, false} {
		freed, _, err := ReleasePermits(semaphore, "b", 2).ReadRelease(mustEval(t, rdb, ReleasePermits(semaphore, "b", 2)))
		if err != nil || freed != want {
			t.Errorf("release %d: %v, %v", i, freed, err)
		}
		wantSemaphore(t, rdb, "2", "a")
	}
}

// A permit of another program without an end is a refusal without a TTL.
func TestPermits_NoEnd(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client(t)
	if got := acquirePermits(t, rdb, "a", 1, Declaration{}); got.Granted || got.TTL != -time.Millisecond {
		t.Errorf("nobody has said how many permits there are: %+v", got)
	}
	rdb.Set(ctx(), semaphore.Free, 0, 0)
	rdb.ZAdd(ctx(), semaphore.Taken, redis.Z{Score: 922337203685477, Member: "\x00jvm"})
	if got := acquirePermits(t, rdb, "a", 1, Declaration{}); got.Granted || got.TTL != -time.Millisecond {
		t.Errorf("taken without an end: %+v", got)
	}
	if ttl := rdb.PTTL(ctx(), semaphore.Free).Val(); ttl != -1 {
		t.Errorf("the key of another program expires in %v", ttl)
	}
}

// What has expired is free, and others are told if more is free than the caller takes. A repeat of a
// take that has expired takes anew.
func TestPermits_Expired(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client(t)
	messages := rdb.Subscribe(ctx(), semaphore.Channel)
	t.Cleanup(func() { _ = messages.Close() })
	if _, err := messages.Receive(ctx()); err != nil {
		t.Fatal(err)
	}
	for _, owner := range []string{"a", "b", "c"} {
		acquirePermits(t, rdb, owner, 1, three)
	}
	expire(t, rdb, "a")
	expire(t, rdb, "b")
	if got, want := acquirePermits(t, rdb, "b", 1, three), (Answer{Granted: true, Free: 1}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	wantSemaphore(t, rdb, "1", "b", "c")
	for _, want := range []string{"2", "1"} { // the first was published when the permits were declared
		if m, err := messages.ReceiveMessage(ctx()); err != nil || m.Payload != want {
			t.Errorf("%v (%v), want that %s are free", m, err, want)
		}
	}
}

// A repeat that finds some of its permits gone takes them only if they are free.
func TestPermits_RepeatOfAPart(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client(t)
	acquirePermits(t, rdb, "a", 2, three)
	acquirePermits(t, rdb, "b", 1, three)
	rdb.ZRem(ctx(), semaphore.Taken, "a:2") // another program took it
	rdb.ZAdd(ctx(), semaphore.Taken, redis.Z{Score: 1e15, Member: "c"})
	if got := acquirePermits(t, rdb, "a", 2, three); got.Granted {
		t.Errorf("%+v", got)
	}
	wantSemaphore(t, rdb, "0", "a", "b", "c")
}

func TestPermits_Pass(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client(t)
	pass := func(from, to string) Answer {
		t.Helper()
		c := PassPermits(semaphore, from, to, 2, lease)
		answer, err := c.ReadPass(mustEval(t, rdb, c))
		if err != nil {
			t.Fatal(err)
		}
		return answer
	}
	if got := pass("a", "b"); got != (Answer{}) {
		t.Errorf("no one holds it: %+v", got)
	}
	acquirePermits(t, rdb, "a", 2, three)
	for range 2 { // the second is a repeat
		if got := pass("a", "b"); !got.Granted {
			t.Errorf("%+v", got)
		}
		wantSemaphore(t, rdb, "1", "b", "b:2")
	}
	mustEval(t, rdb, SetPermits(semaphore, 1))
	if got, want := pass("b", "c"), (Answer{Freed: true}); got != want {
		t.Errorf("there are fewer permits: %+v, want %+v", got, want)
	}
	wantSemaphore(t, rdb, "1")
	mustEval(t, rdb, SetPermits(semaphore, 3))
	acquirePermits(t, rdb, "d", 2, three)
	rdb.Del(ctx(), semaphore.Free)
	if got, want := pass("d", "e"), (Answer{Freed: true}); got != want {
		t.Errorf("the number of free permits was lost: %+v, want %+v", got, want)
	}
	acquirePermits(t, rdb, "e", 2, three)
	wantSemaphore(t, rdb, "1", "e", "e:2")
}

// A hand-over of the only permit leaves the TTL of its key as it is, and prolongs it for a lease that is
// longer.
func TestPermits_PassKeepsTheTTL(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client(t)
	acquirePermits(t, rdb, "a", 1, three)
	for _, pass := range []struct {
		from, to string
		lease    time.Duration
	}{{"a", "b", lease}, {"b", "c", 72 * time.Hour}, {"b", "c", 144 * time.Hour}} {
		mustEval(t, rdb, PassPermits(semaphore, pass.from, pass.to, 1, pass.lease))
		wantSemaphore(t, rdb, "2", pass.to)
		if ttl := rdb.PTTL(ctx(), semaphore.Taken).Val(); ttl < max(12*time.Hour, pass.lease-time.Minute) {
			t.Errorf("the key of the permit of %s expires in %v, and its lease is %v", pass.to, ttl, pass.lease)
		}
	}
}

// A hold that has lost a part is gone: the heir does not get more permits than it has, and the rest is
// free.
func TestPermits_PassOfAPart(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client(t)
	acquirePermits(t, rdb, "a", 2, three)
	acquirePermits(t, rdb, "b", 1, three)
	rdb.ZRem(ctx(), semaphore.Taken, "a:2") // another program has taken it over
	rdb.ZAdd(ctx(), semaphore.Taken, redis.Z{Score: 1e15, Member: "c"})
	for range 2 { // the second is a repeat
		c := PassPermits(semaphore, "a", "d", 2, lease)
		if got, err := c.ReadPass(mustEval(t, rdb, c)); err != nil || got != (Answer{}) {
			t.Errorf("%+v, %v", got, err)
		}
		wantSemaphore(t, rdb, "1", "b", "c")
	}
}

func TestPermits_Update(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client(t)
	acquirePermits(t, rdb, "a", 2, three)
	update := func(d time.Duration) bool {
		t.Helper()
		c := UpdatePermits(semaphore, "a", 2, d)
		there, err := c.ReadUpdate(mustEval(t, rdb, c))
		if err != nil {
			t.Fatal(err)
		}
		return there
	}
	before := rdb.ZScore(ctx(), semaphore.Taken, "a:2").Val()
	if !update(0) || !update(time.Second) || rdb.ZScore(ctx(), semaphore.Taken, "a:2").Val() != before {
		t.Error("a shorter lease has changed the expiry")
	}
	if !update(72*time.Hour) || rdb.ZScore(ctx(), semaphore.Taken, "a:2").Val() < before+70*3600*1000 {
		t.Error("the lease has not been prolonged")
	}
	if ttl := rdb.PTTL(ctx(), semaphore.Taken).Val(); ttl < 72*time.Hour {
		t.Errorf("the key expires in %v, before the permits", ttl)
	}
	rdb.ZRem(ctx(), semaphore.Taken, "a:2")
	if update(lease) {
		t.Error("a part of the hold is gone, and the update does not say so")
	}
}

// After SetPermits, no key expires.
func TestPermits_SetForEver(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client(t)
	acquirePermits(t, rdb, "a", 1, three)
	mustEval(t, rdb, SetPermits(semaphore, 2))
	for _, lost := range []string{"nothing", semaphore.Free} { // an acquire restores a lost number
		rdb.Del(ctx(), lost)
		if got := acquirePermits(t, rdb, lost, 1, Declaration{}); got.Granted != (lost == "nothing") {
			t.Errorf("%s is lost: %+v", lost, got)
		}
		for _, key := range []string{semaphore.Free, semaphore.Taken, semaphore.Declared} {
			if ttl := rdb.PTTL(ctx(), key).Val(); ttl != -1 {
				t.Errorf("%s is lost: %s expires in %v", lost, key, ttl)
			}
		}
	}
}

// A permit that has expired stays expired, whichever command is late.
func TestPermits_ExpiredStayExpired(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client(t)
	acquirePermits(t, rdb, "a", 2, three)
	expire(t, rdb, "a")
	expire(t, rdb, "a:2")
	for name, late := range map[string]Call{
		"update":           UpdatePermits(semaphore, "a", 2, lease),
		"hand-over":        PassPermits(semaphore, "a", "b", 2, lease),
		"repeated pass":    PassPermits(semaphore, "gone", "a", 2, lease),
		"update of a part": UpdatePermits(semaphore, "a", 1, lease),
	} {
		if reply := mustEval(t, rdb, late); reply != int64(0) {
			t.Errorf("%s: reply %v, want that the hold is gone", name, reply)
		}
	}
	renewals, err := ReadRenew(mustEval(t, rdb, Renew([]Renewable{{Key: semaphore.Taken, Field: "a", Permits: 2}}, lease)), 1)
	if err != nil || renewals[0].Renewed || renewals[0].Err != nil {
		t.Errorf("renewal: %+v, %v", renewals, err)
	}
	wantSemaphore(t, rdb, "1", "a", "a:2")
	for _, id := range []string{"a", "a:2"} {
		if score := rdb.ZScore(ctx(), semaphore.Taken, id).Val(); score != 1 {
			t.Errorf("%s expires at %v now", id, score)
		}
	}
}

// A renewal knows permits from locks, prolongs them, and shortens what lives for too long if it has
// seen that before.
func TestRenew_Permits(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client(t)
	put(t, rdb, "lock", mine, 1, 10*time.Second)
	acquirePermits(t, rdb, "a", 2, three)
	expiry := func(id string) int64 { return int64(rdb.ZScore(ctx(), semaphore.Taken, id).Val()) }
	rdb.ZAdd(ctx(), semaphore.Taken, redis.Z{Score: float64(expiry("a") - 5000), Member: "a:2"})
	rdb.PExpire(ctx(), semaphore.Taken, time.Second)
	if err := rdb.Set(ctx(), "string", "a value", 0).Err(); err != nil {
		t.Fatal(err)
	}
	holds := []Renewable{
		{Key: semaphore.Taken, Field: "a", Permits: 2},
		{Key: "lock", Field: mine},
		{Key: semaphore.Taken, Field: "gone", Permits: 1},
		{Key: semaphore.Taken, Field: "a", Permits: 3},
		{Key: "string", Field: "a", Permits: 1},
	}
	renew := func(holds ...Renewable) []Renewal {
		t.Helper()
		results, err := ReadRenew(mustEval(t, rdb, Renew(holds, lease)), len(holds))
		if err != nil {
			t.Fatal(err)
		}
		return results
	}
	for i, r := range renew(holds...) {
		if want := i < 2; r.Renewed != want || (r.Err != nil) != (i == 4) {
			t.Errorf("%d: %+v, want renewed %v", i, r, want)
		}
	}
	if expiry("a:2") < expiry("a") || rdb.PTTL(ctx(), semaphore.Taken).Val() < lease {
		t.Errorf("expire at %d and %d, the key in %v", expiry("a"), expiry("a:2"), rdb.PTTL(ctx(), semaphore.Taken).Val())
	}
	wantTTL(t, rdb, "lock", lease)

	far := expiry("a") + time.Hour.Milliseconds()
	rdb.ZAdd(ctx(), semaphore.Taken, redis.Z{Score: float64(far), Member: "a"})
	seen := renew(holds[0])[0]
	if !seen.Renewed || seen.Expiry != far || expiry("a") != far {
		t.Errorf("%+v, want that it expires at %d", seen, far)
	}
	holds[0].Seen = far + 1000
	if r := renew(holds[0])[0]; r.Expiry != far || expiry("a") != far {
		t.Errorf("another expiry was seen: %+v", r)
	}
	holds[0].Seen = far
	if r := renew(holds[0])[0]; !r.Renewed || r.Expiry != 0 || expiry("a") >= far {
		t.Errorf("%+v, and it expires at %d, want it shortened", r, expiry("a"))
	}
}

// Of two declarations the later one is right, however often each is made. A declaration without a
// number takes what Redis has.
func TestPermits_Declarations(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client(t)
	older, newer := Declaration{Permits: 5, Age: time.Hour}, Declaration{Permits: 2, Age: time.Minute}
	free := func(d Declaration) int {
		t.Helper()
		a := acquirePermits(t, rdb, "a", 1, d)
		if !a.Granted {
			t.Fatalf("%+v", a)
		}
		return a.Free
	}
	for i, want := range []int{4, 1, 1, 1, 1} {
		if got := free([]Declaration{older, newer, older, newer, {}}[i]); got != want {
			t.Errorf("%d: %d free, want %d", i, got, want)
		}
	}
	mustEval(t, rdb, SetPermits(semaphore, 7))
	for set := rdb.Time(ctx()).Val().UnixMilli(); rdb.Time(ctx()).Val().UnixMilli() == set; { // later than that
	}
	for i, want := range []int{6, 6, 6, 8} {
		if got := free([]Declaration{older, newer, {}, {Permits: 9, Age: -time.Second}}[i]); got != want {
			t.Errorf("after SetPermits %d: %d free, want %d", i, got, want)
		}
	}
	permits, taken, err := ReadPermits(mustEval(t, rdb, CountPermits(semaphore)))
	if err != nil || permits != 9 || taken != 1 {
		t.Errorf("%d permits, %d taken, %v", permits, taken, err)
	}
}

// Fewer permits than are taken: no caller gets one until enough are released.
func TestPermits_Fewer(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client(t)
	for _, owner := range []string{"a", "b", "c"} {
		acquirePermits(t, rdb, owner, 1, three)
	}
	one := Declaration{Permits: 1}
	for i, owner := range []string{"a", "b", "c"} {
		if got := acquirePermits(t, rdb, "d", 1, one); got.Granted {
			t.Errorf("with %d of 1 taken: %+v", 3-i, got)
		}
		wantSemaphore(t, rdb, strconv.Itoa(i-2), []string{"a", "b", "c"}[i:]...)
		mustEval(t, rdb, ReleasePermits(semaphore, owner, 1))
	}
	if got := acquirePermits(t, rdb, "d", 1, one); !got.Granted || got.Free != 0 {
		t.Errorf("%+v", got)
	}
}

// A caller that wants more permits than there are is told so. If there are none at all, it waits.
func TestPermits_TooFew(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client(t)
	acquirePermits(t, rdb, "a", 1, three)
	for wants, tooFew := range map[int]bool{2: false, 3: false, 4: true} {
		want := Answer{Granted: wants == 2, TooFew: tooFew}
		got := acquirePermits(t, rdb, "b", wants, Declaration{})
		got.TTL, got.Free = 0, 0
		if got != want {
			t.Errorf("%d of 3: %+v, want %+v", wants, got, want)
		}
		mustEval(t, rdb, ReleasePermits(semaphore, "b", wants))
	}
	acquirePermits(t, rdb, "c", 2, three)
	mustEval(t, rdb, SetPermits(semaphore, 1))
	if got := acquirePermits(t, rdb, "c", 2, three); !got.Granted {
		t.Errorf("a repeat of a take that was granted: %+v", got)
	}
	mustEval(t, rdb, SetPermits(semaphore, 0))
	if got := acquirePermits(t, rdb, "b", 2, Declaration{}); got.Granted || got.TooFew {
		t.Errorf("two of none: %+v", got)
	}
}

func TestPermits_ForceRelease(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client(t)
	channel := clientChannels + "web-1.4242.k3j9x2ab"
	messages := rdb.Subscribe(ctx(), channel)
	t.Cleanup(func() { _ = messages.Close() })
	if _, err := messages.Receive(ctx()); err != nil {
		t.Fatal(err)
	}
	acquirePermits(t, rdb, "web-1.4242.k3j9x2ab:7", 2, three)
	acquirePermits(t, rdb, "\x00\xff", 1, three)
	owners := []string{"web-1.4242.k3j9x2ab:7", "gone", "\x00\xff"}
	c := ForceReleasePermits(semaphore, "s", owners)
	taken, left, err := c.ReadTaken(mustEval(t, rdb, c), len(owners))
	if err != nil || left != 0 || !slices.Equal(taken, []bool{true, false, true}) {
		t.Errorf("%v, %d, %v", taken, left, err)
	}
	wantSemaphore(t, rdb, "3")
	if m, err := messages.ReceiveMessage(ctx()); err != nil || m.Payload != "s" {
		t.Errorf("%v, %v, want the name", m, err)
	}
}

// The hex digits of an id name it, too, unless an id is that text itself. Nothing else is one.
func TestPermits_ForceReleaseByHexDigits(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client(t)
	const raw = "\x00\xff\r\n:{}%\x7f\x80ABCDEF"
	digits := hex.EncodeToString([]byte(raw))
	acquirePermits(t, rdb, raw, 1, three)
	acquirePermits(t, rdb, digits, 1, three)
	acquirePermits(t, rdb, "short", 1, three)
	force := func(owner string) bool {
		t.Helper()
		c := ForceReleasePermits(semaphore, "s", []string{owner})
		taken, _, err := c.ReadTaken(mustEval(t, rdb, c), 1)
		if err != nil {
			t.Fatal(err)
		}
		return taken[0]
	}
	for _, owner := range []string{hex.EncodeToString([]byte("short")), "x" + digits[1:], digits[:30]} {
		if force(owner) {
			t.Errorf("%q has lost a permit", owner)
		}
	}
	wantSemaphore(t, rdb, "0", raw, digits, "short")
	for i, left := range [][]string{{raw, "short"}, {"short"}} {
		if !force([]string{digits, strings.ToUpper(digits)}[i]) {
			t.Error("nothing is taken")
		}
		wantSemaphore(t, rdb, strconv.Itoa(i+1), left...)
	}
	if force(digits) {
		t.Error("a permit that is gone is taken again")
	}
}

func TestPermits_HoldersAndPresent(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client(t)
	for _, owner := range []string{"a", "b", "c"} {
		acquirePermits(t, rdb, owner, 1, three)
	}
	expire(t, rdb, "b")
	holders, err := ReadHolders(mustEval(t, rdb, PermitHolders(semaphore.Taken)))
	slices.Sort(holders)
	if err != nil || !slices.Equal(holders, []string{"a", "c"}) {
		t.Errorf("%q, %v", holders, err)
	}
	there, err := ReadPresent(mustEval(t, rdb, PresentPermits(semaphore.Taken, []string{"a", "x", "c"})), 3)
	if err != nil || !slices.Equal(there, []bool{true, false, true}) {
		t.Errorf("%v, %v", there, err)
	}
}

// Keys of other types are errors, and stay unchanged.
func TestPermits_WrongType(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client(t)
	put(t, rdb, semaphore.Free, mine, 1, lease)
	for _, c := range []Call{AcquirePermits(semaphore, "a", 1, lease, three), SetPermits(semaphore, 2), CountPermits(semaphore)} {
		if _, err := eval(rdb, c); !redis.HasErrorPrefix(err, "WRONGTYPE") {
			t.Errorf("%s of a hash: %v", c.Script.Name, err)
		}
	}
	rdb.Set(ctx(), semaphore.Free, "a value", 0)
	for _, c := range []Call{AcquirePermits(semaphore, "a", 1, lease, three), SetPermits(semaphore, 2), CountPermits(semaphore)} {
		if _, err := eval(rdb, c); !redis.HasErrorPrefix(err, "WRONGKIND") {
			t.Errorf("%s of a string: %v", c.Script.Name, err)
		}
	}
	if v := rdb.Get(ctx(), semaphore.Free).Val(); v != "a value" {
		t.Errorf("the string is %q now", v)
	}
}

// The work of a script does not grow with the number of holders.
func TestPermits_WorkOfOne(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client(t)
	work := func() int {
		t.Helper()
		if err := rdb.ConfigResetStat(ctx()).Err(); err != nil {
			t.Fatal(err)
		}
		many := Declaration{Permits: 100_000, Age: time.Minute}
		acquirePermits(t, rdb, "x", 1, many)
		mustEval(t, rdb, UpdatePermits(semaphore, "x", 1, lease))
		mustEval(t, rdb, Renew([]Renewable{{Key: semaphore.Taken, Field: "x", Permits: 1}}, lease))
		mustEval(t, rdb, PassPermits(semaphore, "x", "y", 1, lease))
		mustEval(t, rdb, ReleasePermits(semaphore, "y", 1))
		n := 0
		for name, stats := range rdb.InfoMap(ctx(), "commandstats").Val()["Commandstats"] {
			var calls int
			if _, err := fmt.Sscanf(stats, "calls=%d,", &calls); err != nil {
				t.Fatalf("%s: %q", name, stats)
			}
			n += calls
		}
		return n
	}
	acquirePermits(t, rdb, "first", 1, Declaration{Permits: 100_000, Age: time.Minute})
	few := work()
	for i := range 2000 {
		rdb.ZAdd(ctx(), semaphore.Taken, redis.Z{Score: 1e15, Member: i})
	}
	acquirePermits(t, rdb, "last", 1, Declaration{Permits: 100_000, Age: time.Minute}) // corrects the total
	if many := work(); many > few {
		t.Errorf("%d commands with 2,000 holders, %d with one", many, few)
	}
}
