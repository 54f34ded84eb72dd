package worlds

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/reqlock/reqlock/core/internal/wire"
	"github.com/reqlock/reqlock/internal/lab/memredis"
)

// day is how long the keys of a semaphore live after their last use, ms. Worlds are shorter, so these
// keys do not expire in them.
const day = 24 * 3600 * 1000

// holdTTLs sets the TTLs of a semaphore's keys, so that states that differ only in these are one.
func (m *Model) holdTTLs(db *memredis.DB) {
	if m.Kind != Semaphore {
		return
	}
	for _, key := range []string{m.lock, m.keys.taken, m.keys.declared} {
		if db.TTL(key) > 0 {
			db.Do("PEXPIRE", key, strconv.Itoa(day))
		}
	}
}

// age returns how old the declaration of a wire owner is. The clients were made in their order.
func (m *Model) age(w uint8) time.Duration { return ms(10 - m.client(ownerOf(w))) }

// holdsKey returns the key that has the holders.
func (m *Model) holdsKey() string {
	if m.Kind == Semaphore {
		return m.keys.taken
	}
	return m.lock
}

// remains reports whether a key may remain when all is quiet: the counters of a semaphore, and permits
// that have expired.
func (m *Model) remains(db *memredis.DB, key string) bool {
	if m.Kind != Semaphore {
		return false
	}
	return key != m.keys.taken || m.inForce(db) == 0
}

// scores returns when the permits of a wire owner expire. It has all of them or none.
func (m *Model) scores(db *memredis.DB, w uint8) (all []float64) {
	for i := range int(m.Takes) {
		if score, ok := db.Score(m.keys.taken, wire.PermitID(m.wireName(w), i+1)); ok {
			all = append(all, score)
		}
	}
	return all
}

// permitLeft returns how long all permits of a wire owner are in force, ms.
func (m *Model) permitLeft(db *memredis.DB, w uint8) int64 {
	all := m.scores(db, w)
	if len(all) < int(m.Takes) || len(all) == 0 {
		return 0
	}
	return max(0, int64(slices.Min(all))-now)
}

// there reports whether Redis has something of a wire owner. Permits that have expired are there until
// an acquire removes them, and count as taken.
func (m *Model) there(db *memredis.DB, w uint8) bool {
	return m.has(db, w) || m.Kind == Semaphore && len(m.scores(db, w)) > 0
}

// inForce returns how many permits are in force.
func (m *Model) inForce(db *memredis.DB) (n int) {
	for _, id := range db.Elements(m.keys.taken) {
		if score, _ := db.Score(m.keys.taken, id); score > now {
			n++
		}
	}
	return n
}

// most returns the largest number of permits that a semaphore may have.
func (m *Model) most() int { return int(slices.Max(append(slices.Clone(m.Permits), m.Sets...))) }

// freePermits returns how many permits are free. known is false if Redis does not know.
func (m *Model) freePermits(db *memredis.DB) (n int, known bool) {
	n, err := strconv.Atoi(db.Value(m.lock))
	return n, err == nil
}

// total returns how many permits are free or taken.
func (m *Model) total(db *memredis.DB) (n int, known bool) {
	n, known = m.freePermits(db)
	return n + len(db.Elements(m.keys.taken)), known
}

// declared returns how many permits Redis has noted, and since when.
func (m *Model) declared(db *memredis.DB) (n int, since int64, known bool) {
	_, err := fmt.Sscanf(db.Value(m.keys.declared), "%d %d", &n, &since)
	return n, since, err == nil
}

// forgetPermits gives those permits of a wire owner that have expired a name of no owner.
func (m *Model) forgetPermits(db *memredis.DB, w uint8) {
	for i := range int(m.Takes) {
		id := wire.PermitID(m.wireName(w), i+1)
		if score, ok := db.Score(m.keys.taken, id); !ok || score > now {
			continue
		}
		ttl := db.TTL(m.keys.taken)
		n := 1
		for {
			if _, used := db.Score(m.keys.taken, wire.PermitID(gone, n)); !used {
				break
			}
			n++
		}
		db.Do("ZADD", m.keys.taken, strconv.FormatInt(now, 10), wire.PermitID(gone, n))
		db.Do("ZREM", m.keys.taken, id)
		if ttl > 0 {
			db.Do("PEXPIRE", m.keys.taken, strconv.FormatInt(ttl, 10))
		}
	}
}

// checkBelievers checks that no more clients believe that they have permits than there ever are.
func (m *Model) checkBelievers(holders int) error {
	if n := holders * int(m.Takes); n > m.most() {
		return fmt.Errorf("the owners believe that they have %d permits, and there are %d at most", n, m.most())
	}
	return nil
}

// checkCounts checks that a grant leaves no more permits in force than were declared last, that an
// owner has all its permits or none, and that each permit is either free or taken.
func (r *run) checkCounts() error {
	permits, _, known := r.declared(r.after)
	if !known {
		permits = r.most()
	}
	before, after := r.inForce(r.before), r.inForce(r.after)
	if after > permits && (after > before || r.granted()) {
		return fmt.Errorf("%d permits are in force, and there are %d", after, permits)
	}
	for w := range r.wires() {
		if all := r.scores(r.after, w); len(all) != 0 && (len(all) != int(r.Takes) || slices.Min(all) != slices.Max(all)) {
			return fmt.Errorf("%s has %d permits that end at %v, want %d", r.wireName(w), len(all), all, r.Takes)
		}
	}
	total, known := r.total(r.after)
	want, wanted := r.wantTotal()
	switch {
	case known != wanted:
		return fmt.Errorf("the number of free permits is known: %t, want %t", known, wanted)
	case known && total != want:
		return fmt.Errorf("%d permits are free or taken, want %d", total, want)
	}
	return nil
}

// granted reports whether the command gave permits to an owner that had none.
func (r *run) granted() bool {
	c := r.command
	return r.told == yes && (c.op == opAcquire && !r.has(r.before, c.from) || c.op == opPass && !r.has(r.before, c.to))
}

// wantTotal returns how many permits must be free or taken after the command. known is false if the
// number of free ones is lost.
func (r *run) wantTotal() (n int, known bool) {
	n, known = r.total(r.before)
	switch r.command.op {
	case opSet:
		return int(r.command.excl), true
	case opAcquire:
	default:
		return n, known
	}
	mine := r.terms(r.command.from).Declares
	if known && (mine == 0 || mine == n) {
		return n, true
	}
	stored, since, noted := r.declared(r.before)
	if mine > 0 && (!noted || since < now-r.age(r.command.from).Milliseconds()) {
		return mine, true
	}
	return stored, noted
}

// checkExpiries checks that the keys of a semaphore expire, unless SetPermits was called, and not
// before half a day; that no permit ends earlier than it would have; and that a grant is for the whole
// lease.
func (r *run) checkExpiries() error {
	forever := r.command.op == opSet || r.before.TTL(r.lock) == memredis.NoTTL || r.before.TTL(r.keys.declared) == memredis.NoTTL
	for _, name := range r.after.Keys() {
		ttl := r.after.TTL(name)
		if ttl == memredis.NoTTL && !forever && r.before.TTL(name) != memredis.NoTTL {
			return fmt.Errorf("%s has no TTL", name)
		}
		if ttl != memredis.NoTTL && ttl < day/2 {
			return fmt.Errorf("%s has a TTL of %d ms", name, ttl)
		}
	}
	for w := range r.wires() {
		was, is := r.permitLeft(r.before, w), r.permitLeft(r.after, w)
		if was > 0 && is > 0 && is < was {
			return fmt.Errorf("the permits of %s end in %d ms, and would have in %d", r.wireName(w), is, was)
		}
	}
	c := r.command
	holder := c.from
	if c.op == opPass {
		holder = c.to
	}
	if left := r.permitLeft(r.after, holder); r.told == yes && !c.frees() && c.op != opForce && c.op != opSet && left < int64(c.lease)*tick {
		return fmt.Errorf("%s was granted %d ms and has %d", r.wireName(holder), int64(c.lease)*tick, left)
	}
	return nil
}

// checkFree checks that waiters hear how many permits are free if there are more than before.
func (r *run) checkFree() error {
	before, _ := r.freePermits(r.before)
	after, known := r.freePermits(r.after)
	if !known || after <= max(before, 0) {
		return nil
	}
	want := published{wire.PermitChannel(r.lock), strconv.Itoa(after)}
	if !slices.Contains(r.published, want) {
		return errors.New("more permits are free, and waiters do not hear of it")
	}
	return nil
}
