package sim

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/delegation"
)

// hasGuests reports whether the callers of a seed delegate. When guests came, no seed in testdata was
// one of these, so all of those kept their worlds.
func hasGuests(seed uint64) bool { return seed%11 == 9 }

// haveGuests makes the callers of a world delegate. Its locks are of the kinds that have guests. Other
// worlds get no maps for them, because the runtime draws a random number for each map.
func (w *world) haveGuests(rng *rand.Rand) {
	w.cfg.guests = true
	w.oracle.invited, w.oracle.families = make(map[visit]struct{}), make(map[member]familyName)
	for i := range w.cfg.names {
		w.cfg.names[i].kind, w.cfg.names[i].permits = []string{"lock", "fair", "fenced", "rw", "rw"}[rng.IntN(5)], 0
	}
}

// delegationKeys returns those of all processes.
var delegationKeys = sync.OnceValue(func() *delegation.Keys {
	keys, err := delegation.NewKeys(bytes.Repeat([]byte("k"), 32))
	if err != nil {
		panic(err)
	}
	return keys
})

// An invitation is the right of a process to enter the hold of a claim.
type invitation struct {
	host   *claim
	tokens string
	// until is when the first of the tokens may expire.
	until time.Duration
	// generation is 1 for the guests of a caller that is no guest.
	generation int
}

// mostGenerations bounds how long guests delegate on.
const mostGenerations = 3

// A member is a hold of a lock, by its wire owner.
type member struct{ name, owner string }

// A visit is the entry of a process into a hold.
type visit struct {
	host  member
	guest string // the name of the process
}

// invite lets a caller of some process enter the lease, now or later.
func (k *caller) invite(g *grant) {
	w, inv := k.world, &invitation{host: g.claim, generation: 1}
	if host := g.op.invited; host != nil {
		inv.generation = host.generation + 1
	}
	proc := k.partner()
	if proc == nil || inv.generation > mostGenerations {
		return
	}
	var err error
	inv.tokens, err = g.lease.Delegate(proc.name)
	if err != nil {
		if g.lease.Err() == nil {
			w.oracle.violate(g.op.names[0], "%s could not delegate its lease: %v", g.op, err)
		}
		return
	}
	inv.until = expiry(inv.tokens, proc.name).Sub(w.start)
	w.oracle.invite(inv, proc)
	k.count++
	guest := &caller{process: proc, world: w, name: fmt.Sprintf("%s>%s/%d", k.name, proc.name, k.count)}
	guest.rng = w.stream("caller "+guest.name, 0)
	p := g.parts[k.rng.IntN(len(g.parts))]
	w.note(g.op.name, "invites %s to %s as %s", guest.name, p.name, p.owner)
	k.process.work.Go(func() { guest.visit(inv, p) }) // the process waits for what it calls
}

// expiry returns when the first of some tokens expires.
func expiry(tokens, audience string) (first time.Time) {
	for token := range strings.SplitSeq(tokens, ",") {
		g, err := delegationKeys().Verify(strings.TrimSpace(token), audience, time.Now())
		if err != nil {
			panic("sim: a new token is no good: " + err.Error())
		}
		if first.IsZero() || g.Expires.Before(first) {
			first = g.Expires
		}
	}
	return first
}

// partner draws a process that is not closing. It may be the caller's own. nil: there is none.
func (k *caller) partner() *process {
	k.world.mu.Lock()
	defer k.world.mu.Unlock()
	open := slices.DeleteFunc(slices.Clone(k.world.processes), func(proc *process) bool { return proc.closing })
	if len(open) == 0 {
		return nil
	}
	return open[k.rng.IntN(len(open))]
}

// visit acquires the lock of a part with an invitation, holds it for a while, and releases it.
func (k *caller) visit(inv *invitation, host part) {
	switch k.rng.IntN(8) {
	case 0:
		k.sleep(k.duration(2))
	case 1: // beyond the lease of the host, unless it is renewed
		k.sleep(k.world.cfg.options.WatchdogTimeout + delegation.Skew + k.duration(1))
	case 2, 3, 4:
		k.sleep(k.duration(0.3))
	}
	if !k.working() {
		return
	}
	p := k.newOp(nil)
	p.invited, p.names = inv, []string{host.name}
	l := lockName{name: host.name, kind: k.world.kindOf(host.name)}
	locker := l.locker(k.process)
	if p.kind = l.kind; l.kind == "rw" {
		p.kind = "write"
		if k.chance(0.5) || host.kind == "read" && k.chance(0.8) {
			p.kind, locker = "read", k.process.locks.ReadWriteLock(host.name).Read()
		}
	}
	var opts core.AcquireOptions
	switch k.rng.IntN(3) {
	case 1:
		opts.WaitTime = k.duration(3)
	case 2:
		opts.WaitTime = core.WaitForever
	}
	if k.chance(0.4) {
		opts.LeaseTime = max(k.minLease(), k.duration(2))
	}
	ctx := core.WithDelegation(context.Background(), inv.tokens)
	g := k.acquire(ctx, p, opts, func(ctx context.Context) (*core.Lease, *core.OnceLease, []byte, error) {
		lease, err := locker.Acquire(ctx, opts)
		return lease, nil, nil, err
	})
	if g == nil {
		return
	}
	k.hold(g, k.duration(1))
	k.release(g)
}

// visits reports whether a call of Acquire must enter the hold that it is invited to, and wait for
// nothing.
func (p *op) visits() bool { return p.invited != nil && p.parent == nil && p.began < p.invited.until }

// member returns the hold of a lock that guests are invited to.
func (inv *invitation) member(name string) member {
	i := slices.IndexFunc(inv.host.parts, func(p part) bool { return p.name == name })
	return member{name, inv.host.parts[i].owner}
}

// invite notes that a process may enter the holds of a claim.
func (o *oracle) invite(inv *invitation, proc *process) {
	o.world.mu.Lock()
	defer o.world.mu.Unlock()
	for _, p := range inv.host.parts {
		o.invited[visit{member{p.name, p.owner}, proc.name}] = struct{}{}
	}
}

// A familyName is the wire owner of the first host, who is no guest: all of the family entered because
// of that hold.
type familyName string

// family returns the family of a hold. One without guests is its own.
func (o *oracle) family(m member) familyName {
	if name, known := o.families[m]; known {
		return name
	}
	return familyName(m.owner)
}

// oneFamily reports whether all holds in the hash of a lock are of one family.
func (o *oracle) oneFamily(name string, fields []string) bool {
	var first familyName
	for _, f := range fields {
		if f == "mode" {
			continue
		}
		family := o.family(member{name, strings.TrimSuffix(f, ":write")})
		if first == "" {
			first = family
		}
		if family != first {
			return false
		}
	}
	return true
}

// An entering is the entry of a guest: the arguments of enter.lua begin with the field of the host and
// that of the guest.
type entering struct {
	host, guest member
	// hostField and guestField are the fields in the hash.
	hostField, guestField string
	// hadHost and hadGuest say what the hash had before the script.
	hadHost, hadGuest bool
}

// entering returns the entry that a script is about to make, if its process was invited to that hold.
func (o *oracle) entering(n *node, keys, args []string) *entering {
	if !o.world.cfg.guests || len(keys) == 0 || len(args) < 2 {
		return nil
	}
	e := &entering{hostField: args[0], guestField: args[1]}
	e.host = member{keys[0], strings.TrimSuffix(args[0], ":write")}
	e.guest = member{keys[0], strings.TrimSuffix(args[1], ":write")}
	process, _, _ := strings.Cut(e.guest.owner, ".")
	if _, invited := o.invited[visit{e.host, process}]; !invited {
		return nil
	}
	_, e.hadHost = n.db.Field(keys[0], e.hostField)
	_, e.hadGuest = n.db.Field(keys[0], e.guestField)
	return e
}

// entered makes a guest a member of its host's family after the script has run. A hand-over, which takes
// the field of the old hold away, makes no guest.
func (o *oracle) entered(n *node, e *entering) {
	if e == nil || e.hadGuest {
		return
	}
	if _, has := n.db.Field(e.guest.name, e.guestField); !has {
		return
	}
	if !e.hadHost {
		o.violate(e.guest.name, "%s has entered %s as a guest of %s, which does not hold it", e.guest.owner, e.guest.name, e.host.owner)
	}
	if _, has := n.db.Field(e.host.name, e.hostField); has || !e.hadHost {
		family := o.family(e.host)
		o.families[e.host], o.families[e.guest] = family, family
	}
}

// hasGuests reports whether an entry of a hash is a hold of a family. All of the family prolong the
// hash.
func (o *oracle) hasGuests(e entry) bool {
	_, known := o.families[member{e.key, ownerOf(e)}]
	return known
}

// isGuest reports whether a claim is in the family that it was invited to.
func (o *oracle) isGuest(c *claim) bool {
	if c.op.invited == nil {
		return false
	}
	p := c.parts[0]
	_, known := o.families[member{p.name, p.owner}]
	return known && o.family(member{p.name, p.owner}) == o.family(c.op.invited.member(p.name))
}

// checkGuest checks a grant to a caller that was invited: it is a guest, and has its host's fencing
// token. The caller has the world's mutex.
func (o *oracle) checkGuest(c *claim) {
	name := c.parts[0].name
	if !o.isGuest(c) {
		if c.op.visits() {
			o.violate(name, "%s was invited by %s, and got %s as a stranger", c.op, c.op.invited.host.op, name)
		}
		return
	}
	if c.op.parent == nil {
		o.world.guests++
	}
	host := c.op.invited.host
	if c.token != host.token && host.op.kind != "multi" { // a MultiLock does not say the tokens of its members
		o.violate(name, "%s has the fencing token %d, and its host %s has %d", c.op, c.token, host.op, host.token)
	}
}

// turnedAway reports whether a call had a reason to fail with ErrParentLost: its host has left, or may
// have lost the lock. over says that the host's lease had ended. The caller has the world's mutex.
func (o *oracle) turnedAway(p *op, err error, over bool) bool {
	inv := p.invited
	if inv == nil || !errors.Is(err, core.ErrParentLost) {
		return false
	}
	if inv.host.op.parent != nil && inv.host.op.kind == "read" { // the write level around it may have ended since
		return true
	}
	return over || inv.host.released || inv.host.process.dead || o.damagedSince(p.names, inv.host.op.began)
}
