package lua

import (
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/reqlock/reqlock/core/internal/wire"
	"github.com/reqlock/reqlock/internal/lab/redistest"
)

// A permitFamily is who uses the two permits that "a" has.
type permitFamily struct {
	*testing.T
	rdb *redis.Client
}

func newPermitFamily(t *testing.T) permitFamily {
	t.Helper()
	rdb := redistest.Start(t).Client(t)
	if got := acquirePermits(t, rdb, "a", 2, three); !got.Granted {
		t.Fatalf("%+v", got)
	}
	return permitFamily{t, rdb}
}

func (f permitFamily) of(member string) Family {
	return Family{Key: wire.PermitFamily("s", "a"), Owner: "a", Count: 2, Member: member}
}

// enters fails the test unless the entry of a guest beside host ends as wanted.
func (f permitFamily) enters(host, guest string, want bool) {
	f.Helper()
	c := EnterPermits(semaphore, f.of(guest), host, lease)
	if answer, err := c.ReadAcquire(mustEval(f.T, f.rdb, c)); err != nil || answer.Granted != want {
		f.Errorf("%s enters beside %s: %+v, %v, want %v", guest, host, answer, err, want)
	}
}

// leaves fails the test unless the member was there.
func (f permitFamily) leaves(member string, want bool) {
	f.Helper()
	c := LeavePermits(semaphore, f.of(member))
	if left, _, err := c.ReadRelease(mustEval(f.T, f.rdb, c)); err != nil || left != want {
		f.Errorf("%s leaves: %v, %v, want %v", member, left, err, want)
	}
}

// updates fails the test unless a guest is found.
func (f permitFamily) updates(guest string, lease time.Duration, want bool) {
	f.Helper()
	c := UpdateGuestPermits(semaphore, f.of(guest), lease)
	if updated, err := c.ReadUpdate(mustEval(f.T, f.rdb, c)); err != nil || updated != want {
		f.Errorf("update of %s: %v, %v, want %v", guest, updated, err, want)
	}
}

func (f permitFamily) wantMembers(want ...string) {
	f.Helper()
	if got := f.rdb.ZRange(ctx(), f.of("").Key, 0, -1).Val(); !slices.Equal(got, want) {
		f.Errorf("the family is %q, want %q", got, want)
	}
}

func (f permitFamily) wantTaken(free string, ids ...string) {
	f.Helper()
	wantSemaphore(f.T, f.rdb, free, ids...)
}

// ends makes the lease of a member of a family end.
func (f permitFamily) ends(member string) {
	f.rdb.ZAddXX(ctx(), f.of("").Key, redis.Z{Score: 1, Member: member})
}

// Guests use the permits of their host, and free them only when all have left, in any order. Each
// command may come twice.
func TestPermitGuests_LeaveInAnyOrder(t *testing.T) {
	t.Parallel()
	orders := [][]string{{"a", "b", "c"}, {"a", "c", "b"}, {"b", "a", "c"}, {"b", "c", "a"}, {"c", "a", "b"}, {"c", "b", "a"}}
	for _, order := range orders {
		f := newPermitFamily(t)
		for _, guest := range []string{"b", "b", "c", "c"} {
			f.enters("a", guest, true)
			f.wantTaken("1", "a", "a:2")
		}
		for i, member := range order {
			f.leaves(member, true)
			f.leaves(member, false)
			if i < 2 {
				f.wantTaken("1", "a", "a:2")
			}
		}
		f.wantTaken("3")
		f.wantMembers()
		f.enters("a", "d", false)
	}
}

// The last guest that leaves removes the family, so that nothing is left in Redis if the host dies.
func TestPermitGuests_FamilyOfOne(t *testing.T) {
	t.Parallel()
	f := newPermitFamily(t)
	f.enters("a", "b", true)
	f.wantMembers("b", "a")
	if ttl := f.rdb.PTTL(ctx(), f.of("").Key).Val(); ttl < lease {
		t.Errorf("the family lives for %v", ttl)
	}
	f.leaves("b", true)
	f.wantMembers()
	f.enters("a", "b", true)
}

// A host that has left has no further guests, though those that it has go on, and may have guests.
func TestPermitGuests_HostGone(t *testing.T) {
	t.Parallel()
	f := newPermitFamily(t)
	f.enters("stranger", "b", false)
	f.enters("a", "b", true)
	f.enters("b", "c", true)
	f.leaves("a", true)
	f.enters("a", "d", false)
	f.leaves("b", true)
	f.enters("b", "d", false)
	f.enters("c", "d", true)
	f.updates("b", lease, false)
	f.updates("c", lease, true)
	f.leaves("c", true)
	f.leaves("d", true)
	f.wantTaken("3")
}

// A guest whose lease has ended counts no more, and a host that has left has left for good.
func TestPermitGuests_GuestDies(t *testing.T) {
	t.Parallel()
	f := newPermitFamily(t)
	f.enters("a", "b", true)
	f.ends("b")
	f.enters("b", "c", false)
	f.updates("b", lease, false)
	f.leaves("a", true)
	f.wantTaken("3")

	f = newPermitFamily(t)
	f.enters("a", "b", true)
	f.leaves("a", true)
	f.ends("b")
	f.enters("a", "c", false)
	f.leaves("b", true) // late
	f.wantTaken("3")
}

// A guest whose host dies keeps the permits, by its renewals too.
func TestPermitGuests_HostDies(t *testing.T) {
	t.Parallel()
	f := newPermitFamily(t)
	f.enters("a", "b", true)
	hold := Renewable{Key: semaphore.Taken, Field: f.of("b").Field(), Permits: 2, Family: f.of("b").Key}
	other := Renewable{Key: "h", Field: mine}
	put(t, f.rdb, "h", mine, 1, lease)
	renew := func(holds ...Renewable) []Renewal {
		t.Helper()
		results, err := ReadRenew(mustEval(t, f.rdb, Renew(holds, 2*lease)), len(holds))
		if err != nil {
			t.Fatal(err)
		}
		return results
	}
	read := Renewable{Key: "r", Field: mine, Timeouts: []string{"r:1"}}
	put(t, f.rdb, "r", mine, 1, lease)
	for i, r := range renew(other, hold, read) {
		if !r.Renewed || r.Err != nil {
			t.Errorf("hold %d: %+v", i, r)
		}
	}
	wantTTL(t, f.rdb, "r:1", 2*lease)
	now := f.rdb.Time(ctx()).Val()
	for _, m := range [][2]string{{semaphore.Taken, "a"}, {semaphore.Taken, "a:2"}, {f.of("").Key, "b"}} {
		score := f.rdb.ZScore(ctx(), m[0], m[1]).Val()
		if left := time.UnixMilli(int64(score)).Sub(now); left < lease || left > 2*lease {
			t.Errorf("%s of %s ends in %v", m[1], m[0], left)
		}
	}
	if ttl := f.rdb.PTTL(ctx(), f.of("").Key).Val(); ttl < 2*lease {
		t.Errorf("the family lives for %v", ttl)
	}
	f.updates("b", 0, true)
	f.ends("b")
	if r := renew(hold); r[0].Renewed {
		t.Errorf("a guest whose lease has ended: %+v", r)
	}
	f.rdb.Del(ctx(), f.of("").Key)
	if r := renew(hold); r[0].Renewed {
		t.Errorf("a guest without a family: %+v", r)
	}
	f.rdb.Set(ctx(), f.of("").Key, "text", 0)
	if r := renew(hold); r[0].Renewed || r[0].Err == nil {
		t.Errorf("a family of another type: %+v", r)
	}
}

// Without the permits there is no family, whatever its key says.
func TestPermitGuests_PermitsGone(t *testing.T) {
	t.Parallel()
	f := newPermitFamily(t)
	f.enters("a", "b", true)
	expire(t, f.rdb, "a:2")
	f.enters("a", "c", false)
	f.enters("a", "b", false)
	f.updates("b", lease, false)
	acquirePermits(t, f.rdb, "x", 2, three) // removes what has expired
	f.leaves("b", true)
	f.leaves("a", true)
	f.leaves("a", false)
	f.wantTaken("1", "x", "x:2")
	f.wantMembers()
}

// ForceRelease tells the guests, too, and they do not go on.
func TestPermitGuests_ForceRelease(t *testing.T) {
	t.Parallel()
	f := newPermitFamily(t)
	const guest = "web-1.4242.k3j9x2ab:7"
	messages := f.rdb.Subscribe(ctx(), clientChannels+"web-1.4242.k3j9x2ab")
	t.Cleanup(func() { _ = messages.Close() })
	if _, err := messages.Receive(ctx()); err != nil {
		t.Fatal(err)
	}
	f.enters("a", guest, true)
	c := ForceReleasePermits(semaphore, "s", []string{"x", "a"})
	if taken, _, err := c.ReadTaken(mustEval(t, f.rdb, c), 2); err != nil || !slices.Equal(taken, []bool{false, true}) {
		t.Errorf("%v, %v", taken, err)
	}
	if m, err := messages.ReceiveMessage(ctx()); err != nil || m.Payload != "s" {
		t.Errorf("%v, %v, want the name", m, err)
	}
	f.updates(guest, lease, false)
	f.leaves(guest, false)
	f.wantTaken("3")
	f.wantMembers()
}
