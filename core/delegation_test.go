package core

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"

	"github.com/reqlock/reqlock/delegation"
	"github.com/reqlock/reqlock/internal/lab/redistest"
)

// service makes a client one of a service that delegates.
func service(t testing.TB, name string) func(*Options) {
	t.Helper()
	keys, err := delegation.NewKeys(bytes.Repeat([]byte("k"), 32))
	if err != nil {
		t.Fatal(err)
	}
	return func(o *Options) { o.Delegation = delegation.Service{Keys: keys, Name: name} }
}

// delegated returns a context with the tokens of a lease.
func delegated(t testing.TB, lease *Lease, audience string) context.Context {
	t.Helper()
	token, err := lease.Delegate(audience)
	if err != nil {
		t.Fatal(err)
	}
	return WithDelegation(bg, token)
}

// delegable are the lockers whose leases have guests.
var delegable = map[string]func(c *Client) Locker{
	"lock":         func(c *Client) Locker { return c.Lock("a") },
	"fair":         func(c *Client) Locker { return c.FairLock("a") },
	"fenced":       func(c *Client) Locker { return c.FencedLock("a") },
	"fenced fair":  func(c *Client) Locker { return c.FairLock("a").Fenced() },
	"write":        func(c *Client) Locker { return c.ReadWriteLock("a").Write() },
	"fenced write": func(c *Client) Locker { return c.ReadWriteLock("a").Write().Fenced() },
	"multi":        func(c *Client) Locker { return MultiLock(c.Lock("a"), c.ReadWriteLock("b").Write()) },
	"permit":       func(c *Client) Locker { return c.Semaphore("a", 1) },
	"permits":      func(c *Client) Locker { return MultiLock(c.Semaphore("a", 1), c.Semaphore("b", 2)) },
}

// A guest enters while its host holds the lock, and others get it when both have left, in any order.
func TestGuest_Enters(t *testing.T) {
	for name, locker := range delegable {
		for _, first := range []string{"host", "guest"} {
			t.Run(name+", first to leave: "+first, func(t *testing.T) {
				t.Parallel()
				fx := newRedis(t)
				a, b, other := fx.newLocks(t, service(t, "a")), fx.newLocks(t, service(t, "b")), fx.newLocks(t)
				host := mustAcquire(t, bg, locker(a), AcquireOptions{})
				ctx := delegated(t, host, "b")
				waiting := acquireAsync(bg, locker(other), AcquireOptions{WaitTime: WaitForever})
				eventually(t, "the waiter", func() bool { return other.Stats().Waiting > 0 })
				guest := mustAcquire(t, ctx, locker(b), AcquireOptions{})
				again := mustAcquire(t, guest.Context(), locker(b), AcquireOptions{})
				if x, _ := host.Token(); x > 0 {
					if y, _ := guest.Token(); y != x {
						t.Errorf("the guest has token %d, want the host's %d", y, x)
					}
				}
				mustRelease(t, again)
				leases := []*Lease{host, guest}
				if first == "guest" {
					leases = []*Lease{guest, host}
				}
				mustRelease(t, leases[0])
				wantErr(t, "another client", tryAcquire(locker(fx.newLocks(t))), ErrNotAcquired)
				if err := leases[1].Err(); err != nil {
					t.Errorf("the lease that stays: %v", err)
				}
				mustRelease(t, leases[1])
				got := mustReceive(t, "the lock for another", waiting)
				if got.err != nil {
					t.Fatal(got.err)
				}
				mustRelease(t, got.lease)
				if n := b.Counters().Guests; n == 0 || a.Counters().HandOvers != 0 {
					t.Errorf("%d guests and %d hand-overs", n, a.Counters().HandOvers)
				}
			})
		}
	}
}

// Readers are guests of readers. No waiter of the same process keeps one out.
func TestGuest_OfAReader(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	a, b := fx.newLocks(t, service(t, "a")), fx.newLocks(t, service(t, "b"))
	host := mustAcquire(t, bg, a.ReadWriteLock("a").Read(), AcquireOptions{})
	ctx := delegated(t, host, "b")
	writer := acquireAsync(bg, b.ReadWriteLock("a").Write(), AcquireOptions{WaitTime: WaitForever})
	eventuallyAsleepFor(t, b, "a", false)
	wantErr(t, "a writer below a reader", tryWith(ctx, b.ReadWriteLock("a").Write()), ErrUpgrade)
	guest := mustAcquire(t, ctx, b.ReadWriteLock("a").Read(), AcquireOptions{})
	mustRelease(t, host)
	wantErr(t, "another writer", tryAcquire(a.ReadWriteLock("a").Write()), ErrNotAcquired)
	mustRelease(t, guest)
	mustRelease(t, mustReceive(t, "the writer", writer).lease)
}

// A guest that reads below a writer keeps all others out, and a writer that goes on as a reader lets
// readers in only when the guest has left.
func TestGuest_OfAWriter(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	a, b := fx.newLocks(t, service(t, "a")), fx.newLocks(t, service(t, "b"))
	l := a.ReadWriteLock("a")
	host := mustAcquire(t, bg, l.Write(), AcquireOptions{})
	reads := mustAcquire(t, host.Context(), l.Read(), AcquireOptions{})
	guest := mustAcquire(t, delegated(t, host, "b"), b.ReadWriteLock("a").Read(), AcquireOptions{})
	mustRelease(t, host)
	other := fx.newLocks(t)
	wantErr(t, "a reader beside the guest", tryAcquire(other.ReadWriteLock("a").Read()), ErrNotAcquired)
	waiting := acquireAsync(bg, other.ReadWriteLock("a").Read(), AcquireOptions{WaitTime: WaitForever})
	eventuallyAsleepFor(t, other, "a", false)
	mustRelease(t, guest)
	mustRelease(t, mustReceive(t, "the reader", waiting).lease)
	wantErr(t, "a writer beside the reader", tryAcquire(other.ReadWriteLock("a").Write()), ErrNotAcquired)
	mustRelease(t, reads)
	mustRelease(t, mustAcquire(t, bg, other.ReadWriteLock("a").Write(), AcquireOptions{}))
}

// What the host holds decides what its guest may have.
func TestGuest_WrongKind(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	a, b := fx.newLocks(t, service(t, "a")), fx.newLocks(t, service(t, "b"))
	host := mustAcquire(t, bg, a.Lock("a"), AcquireOptions{})
	ctx := delegated(t, host, "b")
	wantErr(t, "a token below a lock without", tryWith(ctx, b.FencedLock("a")), ErrWrongKind)
	wantErr(t, "a writer below a lock", tryWith(ctx, b.ReadWriteLock("a").Write()), ErrWrongKind)
	mustRelease(t, mustAcquire(t, ctx, b.FairLock("a"), AcquireOptions{}))
	mustRelease(t, host)
}

// A guest that comes after the hold is over is refused at once.
func TestGuest_ParentLost(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	a, b := fx.newLocks(t, service(t, "a")), fx.newLocks(t, service(t, "b"))
	host := mustAcquire(t, bg, a.Lock("a"), AcquireOptions{})
	ctx := delegated(t, host, "b")
	mustRelease(t, host)
	for _, held := range []bool{false, true} {
		if held {
			host = mustAcquire(t, bg, a.Lock("a"), AcquireOptions{})
		}
		_, err := b.Lock("a").Acquire(ctx, AcquireOptions{WaitTime: WaitForever})
		wantErr(t, "Acquire", err, ErrParentLost)
	}
	if n := b.Counters().ParentsLost; n != 2 {
		t.Errorf("%d parents lost, want 2", n)
	}
	mustRelease(t, host)
}

// Tokens that are no good give nothing: their bearer waits like anyone. So does one for another lock.
func TestGuest_TokensIgnored(t *testing.T) {
	t.Parallel()
	var log lockedBuffer
	fx := newRedis(t)
	a, b := fx.newLocks(t, service(t, "a")), fx.newLocks(t, service(t, "b"), logTo(&log))
	elsewhere := mustAcquire(t, bg, a.Lock("another"), AcquireOptions{})
	host := mustAcquire(t, bg, a.Lock("a"), AcquireOptions{})
	good, _ := host.Delegate("b")
	forged := []byte(good)
	if forged[20] == 'A' { // It is a letter of the payload.
		forged[20] = 'B'
	} else {
		forged[20] = 'A'
	}
	strange, _ := host.Delegate("c")
	other, _ := elsewhere.Delegate("b")
	expired := a.opts.Delegation.Keys
	old, err := expired.Sign(delegation.Grant{Lock: delegation.LockIDOf("a"), Kind: "lock", Owner: holdOf(host).wire, Expires: time.Now().Add(-time.Minute), Audience: "b"})
	if err != nil {
		t.Fatal(err)
	}
	ignored := uint64(0)
	for what, token := range map[string]string{"forged": string(forged), "for another service": strange, "expired": old, "no token": "x", "for another lock": other} {
		wantErr(t, what, tryWith(WithDelegation(bg, token), b.Lock("a")), ErrNotAcquired)
		if what != "for another lock" {
			ignored++
		}
	}
	if n := b.Counters().TokensIgnored; n != ignored || b.Counters().Guests != 0 {
		t.Errorf("%d tokens ignored, want %d", n, ignored)
	}
	if n := strings.Count(log.String(), "tokens ignored"); n != int(ignored) || strings.Contains(log.String(), good[:20]) {
		t.Errorf("%d lines:\n%s", n, log.String())
	}
	// Beside the others, and below an owner, the good one counts.
	all := strings.Join([]string{string(forged), strange, other, good}, ", ")
	mustRelease(t, mustAcquire(t, WithOwner(WithDelegation(bg, all)), b.Lock("a"), AcquireOptions{}))
	wantErr(t, "a new owner", tryWith(WithNewOwner(WithDelegation(bg, good)), b.Lock("a")), ErrNotAcquired)
	wantErr(t, "too many before it", tryWith(WithDelegation(bg, strings.Repeat("x,", mostDelegated)+good), b.Lock("a")), ErrNotAcquired)
	wantErr(t, "a service without keys", tryWith(WithDelegation(bg, good), fx.newLocks(t).Lock("a")), ErrNotAcquired)
	mustRelease(t, host)
	mustRelease(t, elsewhere)
}

// A guest may have guests. Each holds for itself.
func TestGuest_OfAGuest(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	var leases []*Lease
	var clients []*Client
	ctx := bg
	for _, name := range []string{"a", "b", "c", "d"} {
		c := fx.newLocks(t, service(t, name))
		leases, clients = append(leases, mustAcquire(t, ctx, c.FencedLock("a"), AcquireOptions{})), append(clients, c)
		tokens, err := Delegation(leases[len(leases)-1].Context(), string(name[0]+1))
		if err != nil || strings.Contains(tokens, ",") {
			t.Fatalf("%q, %v", tokens, err)
		}
		ctx = WithDelegation(bg, tokens)
	}
	for i, lease := range leases[:3] {
		mustRelease(t, lease)
		wantErr(t, "another", tryAcquire(clients[i].Lock("a")), ErrNotAcquired)
	}
	mustRelease(t, leases[3])
	mustRelease(t, mustAcquire(t, bg, clients[0].Lock("a"), AcquireOptions{}))
}

// Two services may run in one process, with one client. Guests do not displace each other or the host,
// and a waiter of the process gets the lock after all of them.
func TestGuest_InTheSameProcess(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	c := fx.newLocks(t, service(t, "a"))
	host := mustAcquire(t, bg, c.Lock("a"), AcquireOptions{})
	ctx := delegated(t, host, "a")
	waiting := acquireAsync(bg, c.Lock("a"), AcquireOptions{WaitTime: WaitForever})
	eventuallyAsleepFor(t, c, "a", false)
	guests := make([]*Lease, 8)
	inParallel(len(guests), func(i int) { guests[i] = mustAcquire(t, ctx, c.Lock("a"), AcquireOptions{}) })
	leases := append(guests[1:], host, guests[0])
	for _, lease := range leases {
		if err := lease.Err(); err != nil {
			t.Error(err)
		}
		mustRelease(t, lease)
	}
	mustRelease(t, mustReceive(t, "the lock", waiting).lease)
}

// The hold of a guest stands for itself when its host is lost. Its watchdog renews it, and does not cut
// a longer lease of the host.
func TestGuest_HostLost(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	a, b := fx.newLocks(t, service(t, "a")), fx.newLocks(t, service(t, "b"), watchdogTimeout(time.Second))
	host := mustAcquire(t, bg, a.Lock("a"), AcquireOptions{LeaseTime: time.Hour})
	guest := mustAcquire(t, delegated(t, host, "b"), b.Lock("a"), AcquireOptions{})
	renewed := func() { // the watchdog renews it twice more
		before := b.Counters().Commands
		eventually(t, "renewals", func() bool { return b.Counters().Commands > before+2 })
	}
	renewed()
	if ttl := fx.rdb.PTTL(bg, "a").Val(); ttl < 50*time.Minute {
		t.Errorf("the host's lease was cut to %v", ttl)
	}
	fx.rdb.HDel(bg, "a", holdOf(host).wire)
	fx.rdb.PExpire(bg, "a", 500*time.Millisecond)
	renewed()
	wantErr(t, "another", tryAcquire(a.Lock("a")), ErrNotAcquired)
	if err := guest.Err(); err != nil {
		t.Errorf("the guest: %v", err)
	}
	mustRelease(t, guest)
	wantErr(t, "the host", host.Release(bg), ErrLockLost)
}

// Redis refuses to free a hold of a family for longer than its lease. The others keep the hash, so the
// cleaner goes on, and in the end the lock is free when they have left.
func TestGuest_CleanedUpAfterItsLease(t *testing.T) {
	t.Parallel()
	for _, lost := range []string{"host", "guest"} {
		t.Run(lost, func(t *testing.T) {
			t.Parallel()
			fx := newRedis(t)
			brief, proxy := fx.newProxiedLocks(t, service(t, "b"))
			other := fx.newLocks(t, service(t, "b"))
			refused := proxy.OnEvery(runsScript(releaseScript), redistest.ReplyWith("-ERR some trouble\r\n"))
			short := AcquireOptions{LeaseTime: 500 * time.Millisecond}
			host, guest := other, brief
			hostTime, guestTime := AcquireOptions{LeaseTime: time.Hour}, short
			if lost == "host" {
				host, guest, hostTime, guestTime = brief, other, short, hostTime
			}
			ends := mustAcquire(t, bg, host.Lock("a"), hostTime)
			stays := mustAcquire(t, delegated(t, ends, "b"), guest.Lock("a"), guestTime)
			if lost == "guest" {
				ends, stays = stays, ends
			}
			mustReceive(t, "the end of the lease", ends.Done())
			eventually(t, "attempts to free the hold after its lease", func() bool {
				brief.cleaner.mu.Lock()
				defer brief.cleaner.mu.Unlock()
				for u := range brief.cleaner.pending {
					return u.claim.Failures() > 6 // they take more than three seconds
				}
				return false
			})
			refused.Remove()
			eventually(t, "the hold to be freed", func() bool { return len(fx.hash(t, "a")) == 1 && brief.Stats() == Stats{} })
			mustRelease(t, stays)
			mustRelease(t, mustAcquire(t, bg, brief.Lock("a"), AcquireOptions{}))
		})
	}
}

// Who frees the lock by force ends the guests, too.
func TestGuest_Forced(t *testing.T) {
	t.Parallel()
	fx := newRedisWithInboxes(t)
	a, b := fx.newLocks(t, service(t, "a")), fx.newLocks(t, service(t, "b"))
	host := mustAcquire(t, bg, a.Lock("a"), AcquireOptions{})
	guest := mustAcquire(t, delegated(t, host, "b"), b.Lock("a"), AcquireOptions{})
	if forced, err := fx.newLocks(t).Lock("a").ForceUnlock(bg); err != nil || !forced {
		t.Fatalf("ForceUnlock: %t, %v", forced, err)
	}
	for _, lease := range []*Lease{host, guest} {
		mustReceive(t, "the loss", lease.Done())
		wantErr(t, "the loss", lease.Err(), ErrLockLost)
	}
}

// Who frees a writer by force leaves a guest that has become a reader alone, and lets readers in.
func TestGuest_ForcedBesideAReader(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	a, b, other := fx.newLocks(t, service(t, "a")), fx.newLocks(t, service(t, "b")), fx.newLocks(t)
	host := mustAcquire(t, bg, a.ReadWriteLock("a").Write(), AcquireOptions{})
	l := b.ReadWriteLock("a")
	guest := mustAcquire(t, delegated(t, host, "b"), l.Write(), AcquireOptions{})
	reads := mustAcquire(t, guest.Context(), l.Read(), AcquireOptions{})
	mustRelease(t, guest)
	waiting := acquireAsync(bg, other.ReadWriteLock("a").Read(), AcquireOptions{WaitTime: WaitForever})
	eventuallyAsleepFor(t, other, "a", false)
	if forced, err := other.ReadWriteLock("a").Write().ForceUnlock(bg); err != nil || !forced {
		t.Fatalf("ForceUnlock: %t, %v", forced, err)
	}
	mustReceive(t, "the loss", host.Done())
	got := mustReceive(t, "the lock for a reader", waiting)
	if got.err != nil || reads.Err() != nil {
		t.Fatalf("the reader: %v; the guest: %v", got.err, reads.Err())
	}
	wantErr(t, "a writer beside the readers", tryAcquire(other.ReadWriteLock("a").Write()), ErrNotAcquired)
	mustRelease(t, got.lease)
	mustRelease(t, reads)
}

// An entry whose reply is lost is repeated, and leaves one hold. If the caller has left, it is undone.
func TestGuest_RepliesLost(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	a := fx.newLocks(t, service(t, "a"))
	b, proxy := fx.newLossyLocks(t, service(t, "b"))
	host := mustAcquire(t, bg, a.Lock("a"), AcquireOptions{})
	proxy.OnMatch(1, runsScript(enterScript), redistest.CutAfter)
	guest := mustAcquire(t, delegated(t, host, "b"), b.Lock("a"), AcquireOptions{})
	if n := fx.rdb.HLen(bg, "a").Val(); n != 2 {
		t.Errorf("%d fields, want 2", n)
	}
	mustRelease(t, guest)

	rule := proxy.OnMatch(1, runsScript(enterScript), redistest.HoldRequest)
	ctx, cancel := context.WithCancel(delegated(t, host, "b"))
	left := acquireAsync(ctx, b.Lock("a"), AcquireOptions{})
	mustReceive(t, "the entry", rule.Hit())
	cancel()
	wantErr(t, "a guest that leaves", mustReceive(t, "its error", left).err, context.Canceled)
	rule.Release()
	eventually(t, "the entry to be undone", func() bool { return fx.rdb.HLen(bg, "a").Val() == 1 && b.Stats() == Stats{} })
	mustRelease(t, host)
}

// What cannot be delegated is refused at the caller.
func TestDelegate_Refused(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	c, plain := fx.newLocks(t, service(t, "a")), fx.newLocks(t)
	masters := newMasters(t, 3)
	var members []Locker
	for _, m := range masters {
		members = append(members, m.newLocks(t, service(t, "a")).Lock("a"))
	}
	for what, l := range map[string]Locker{
		"a Once": onceLocker{c.Once("once")}, "a RedLock": RedLock(members...), "no keys": plain.Lock("plain"),
	} {
		lease := mustAcquire(t, bg, l, AcquireOptions{WaitTime: patience})
		_, err := lease.Delegate("b")
		wantErr(t, what, err, ErrInvalidOptions)
		tokens, err := Delegation(lease.Context(), "b")
		if tokens != "" || (err == nil) != (what == "a Once") {
			t.Errorf("%s: Delegation returns %q, %v", what, tokens, err)
		}
		mustRelease(t, lease)
	}
	lease := mustAcquire(t, bg, c.Lock("a"), AcquireOptions{})
	for _, audience := range []string{"", "a,b", strings.Repeat("a", 65)} {
		_, err := lease.Delegate(audience)
		wantErr(t, "the audience "+audience, err, ErrInvalidOptions)
	}
	mustRelease(t, lease)
	_, err := lease.Delegate("b")
	wantErr(t, "a lease that was released", err, ErrReleased)
	if tokens, err := Delegation(lease.Context(), "b"); tokens != "" || err != nil {
		t.Errorf("Delegation of a lease that was released: %q, %v", tokens, err)
	}
	both := mustAcquire(t, bg, MultiLock(c.Lock("a"), c.Lock("b")), AcquireOptions{})
	mustRelease(t, both)
	_, err = both.Delegate("b")
	wantErr(t, "a lease of two that was released", err, ErrReleased)
	var many []Locker
	for i := range mostDelegated + 1 {
		many = append(many, c.Lock("many"+strings.Repeat("x", i)))
	}
	all := mustAcquire(t, bg, MultiLock(many...), AcquireOptions{})
	_, err = all.Delegate("b")
	wantErr(t, "too many", err, ErrInvalidOptions)
	mustRelease(t, all)
	_, err = New(fx.rdb, Options{Delegation: delegation.Service{Name: "a"}})
	wantErr(t, "a name without keys", err, ErrInvalidOptions)
}
