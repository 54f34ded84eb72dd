package worlds

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/reqlock/reqlock/core/internal/lua"
	"github.com/reqlock/reqlock/core/internal/wire"
	"github.com/reqlock/reqlock/internal/lab/memredis"
)

func ms(ticks int) time.Duration { return time.Duration(ticks) * tick * time.Millisecond }

// An effectKey is a command on a content of Redis, and the wire owners that listen.
type effectKey struct {
	redis   int32
	command command
	audience
}

// An effect is the result of a script.
type effect struct {
	redis   int32
	reply   reply
	drew    bool   // a fencing token
	removed uint16 // wire owners whose fields it removed
	broken  error  // the promise that it breaks; nil: none
}

// exec runs the script of a command, or returns the effect of an earlier run.
func (m *Model) exec(redis int32, c command, a audience) effect {
	key := effectKey{redis, c, a}
	e, ok := m.effects[key]
	if !ok {
		e = m.run(key)
		m.effects[key] = e
	}
	return e
}

// A message that a script published.
type published struct{ channel, message string }

// A run is one execution of a script.
type run struct {
	*Model
	command command
	call    lua.Call
	audience
	before, after *memredis.DB
	published     []published
	reply         any
	told          reply
	token         uint64
}

func (m *Model) run(key effectKey) effect {
	r := &run{Model: m, command: key.command, call: m.call(key.command), audience: key.audience, before: m.db(key.redis), after: m.db(key.redis)}
	e := effect{redis: key.redis}
	err := r.eval(r.after)
	if err == nil {
		err = r.read()
	}
	if err == nil {
		err = r.check()
	}
	if err == nil {
		err = r.checkRepeat()
	}
	if err != nil {
		e.broken = fmt.Errorf("%s: %w", r.call.Script.Name, err)
		return e
	}
	e.reply = r.told
	e.drew = m.resetCounter(r.after)
	for w := range m.wires() {
		if m.has(r.before, w) && !m.has(r.after, w) {
			e.removed |= 1 << w
		}
	}
	e.redis = m.number(r.after)
	return e
}

// eval runs the script on a database.
func (r *run) eval(db *memredis.DB) error {
	r.published = r.published[:0]
	db.Listeners = func(_, channel string) int {
		if r.Kind != Fair {
			return 1
		}
		for w := range r.wires() {
			if r.listen&(1<<w) != 0 && channel == wire.FairChannel(r.lock, r.wireName(w)) {
				return 1
			}
		}
		return 0
	}
	db.Publish = func(_, channel, message string) int {
		r.published = append(r.published, published{channel, message})
		return db.Listeners("", channel)
	}
	defer func() { db.Publish, db.Listeners = nil, nil }()
	args := r.call.EvalSHA()
	text := make([]string, len(args))
	for i, arg := range args {
		text[i] = fmt.Sprint(arg)
	}
	keys, _ := strconv.Atoi(text[2])
	r.reply = r.runner.Eval(db, r.source(r.call.Script), text[3:3+keys], text[3+keys:])
	err, _ := r.reply.(error)
	return err
}

func (m *Model) source(s *lua.Script) string {
	if replaced, ok := m.Scripts[s.Name]; ok {
		return replaced
	}
	return s.Source
}

// read reads the reply as core does.
func (r *run) read() error {
	r.told, r.token = no, 0
	yesIf := func(ok bool) {
		if ok {
			r.told = yes
		}
	}
	switch r.command.op {
	case opAcquire, opEnter:
		if _, ok := r.call.ReadRecord(r.reply); ok {
			r.told = recorded
			return nil
		}
		told, err := r.call.ReadAcquire(r.reply)
		yesIf(told.Granted)
		if told.Bound { // it leaves, as with a record
			r.told = recorded
		}
		r.token = told.Token
		return err
	case opPass:
		told, err := r.call.ReadPass(r.reply)
		if yesIf(told.Granted); told.Freed {
			r.told = freed
		}
		r.token = told.Token
		return err
	case opRenew:
		results, err := lua.ReadRenew(r.reply, 1)
		if err != nil {
			return err
		}
		yesIf(results[0].Renewed)
		return results[0].Err
	case opForce:
		taken, _, err := r.call.ReadTaken(r.reply, len(r.forced(r.command)))
		yesIf(slices.Contains(taken, true))
		return err
	default:
		done, _, err := r.call.ReadRelease(r.reply)
		yesIf(done)
		return err
	}
}

// resetCounter undoes the draw of a token, and reports whether there was one. So states that differ
// only in the number of tokens drawn are one.
func (m *Model) resetCounter(db *memredis.DB) bool {
	if m.Kind != Fenced || db.Value(m.keys.counter) == strconv.FormatUint(m.Token, 10) {
		return false
	}
	db.Do("SET", m.keys.counter, strconv.FormatUint(m.Token, 10))
	return true
}

// has reports whether a wire owner has a field in the lock's hash, or permits that are in force.
func (m *Model) has(db *memredis.DB, w uint8) bool {
	if m.Kind == Semaphore {
		return m.permitLeft(db, w) > 0
	}
	return m.hasField(db, m.wireName(w)) || m.writes(db, w)
}

func (m *Model) hasField(db *memredis.DB, field string) bool {
	_, ok := db.Field(m.lock, field)
	return ok
}

// writes reports whether a wire owner has the write side of a read/write lock.
func (m *Model) writes(db *memredis.DB, w uint8) bool {
	return m.Kind == ReadWrite && m.hasField(db, wire.WriteField(m.wireName(w)))
}

// readerLeft returns the longest TTL of the time-out keys of a wire owner's read levels, in ms; 0:
// it has none. A late renewal may restore the key of a released level, which does not count.
func (m *Model) readerLeft(db *memredis.DB, w uint8) (longest int64) {
	count, _ := db.Field(m.lock, m.wireName(w))
	levels, _ := strconv.Atoi(count)
	for level := 1; level <= levels; level++ {
		longest = max(longest, db.TTL(wire.ReadTimeout(m.lock, m.wireName(w), level)))
	}
	return longest
}

// checkRepeat runs the script again. Nothing may change, and the reply must not deny what the first
// run did.
func (r *run) checkRepeat() error {
	told := r.told
	again := r.after.Clone()
	r.resetCounter(again)
	once := r.stable(again)
	drew, publishedOnce := r.token, slices.Clone(r.published)
	if err := r.eval(again); err != nil {
		return fmt.Errorf("a repeat fails: %w", err)
	}
	if err := r.read(); err != nil {
		return fmt.Errorf("the reply to a repeat: %w", err)
	}
	r.resetCounter(again)
	if r.stable(again) != once {
		return fmt.Errorf("a repeat changes something. After the first run:\n%safter the second:\n%s", r.after, again)
	}
	was, _ := r.after.Score(r.keys.deadlines, r.wireName(r.command.from))
	if is, ok := again.Score(r.keys.deadlines, r.wireName(r.command.from)); ok && is < was {
		return fmt.Errorf("a repeat makes the deadline of %s earlier by %g ms", r.wireName(r.command.from), was-is)
	}
	ends := r.command.frees() || r.command.op == opForce || told == freed
	if r.told != told && (!ends || r.told != no) {
		return fmt.Errorf("the reply is %s, and to a repeat %s", told, r.told)
	}
	r.told, r.token, r.published = told, drew, publishedOnce
	return nil
}

// stable encodes a content without what a repeat may change in the queue of a fair lock. A repeat
// postpones the deadline of a waiter that asks, and restores a deadline that Redis lost. It drops a
// waiter that does not listen, if the first run made that waiter the first.
func (r *run) stable(db *memredis.DB) string {
	if r.Kind != Fair {
		return db.Encode()
	}
	settled := db.Clone()
	settled.Delete(r.keys.absent)
	mine := r.wireName(r.command.from)
	if _, ok := db.Score(r.keys.deadlines, mine); ok && r.command.op == opAcquire {
		settled.Do("ZADD", r.keys.deadlines, "0", mine)
	}
	for _, waiter := range r.before.List(r.keys.queue) {
		if _, ok := r.before.Score(r.keys.deadlines, waiter); !ok {
			settled.Delete(r.keys.deadlines)
		}
		if waiter != mine && !r.alive(waiter) {
			settled.Do("LREM", r.keys.queue, "0", waiter)
			settled.Do("ZREM", r.keys.deadlines, waiter)
		}
	}
	return settled.Encode()
}

// check returns the promise that the run breaks.
func (r *run) check() error {
	for _, check := range []func() error{r.checkFields, r.checkExclusion, r.checkReply, r.checkTTLs, r.checkToken, r.checkPublished, r.checkQueue, r.checkRecord} {
		if err := check(); err != nil {
			return fmt.Errorf("%w. Before:\n%safter:\n%s", err, r.before, r.after)
		}
	}
	return nil
}

// checkFields checks that a script changes only the fields of the owner that sent it, and removes
// only those of dead readers. Only a first level and a hand-over create a field.
func (r *run) checkFields() error {
	c := r.command
	for w := range r.wires() {
		had, has := r.has(r.before, w), r.has(r.after, w)
		same := r.fieldsOf(r.before, w) == r.fieldsOf(r.after, w)
		mine := w == c.from
		switch c.op {
		case opPass:
			if w == c.to && has && !had {
				if r.told != yes || !r.has(r.before, c.from) {
					return fmt.Errorf("%s gets the lock from %s, which did not hold it", r.wireName(w), r.wireName(c.from))
				}
				continue
			}
		case opEnter:
			if mine && has && !had && !r.has(r.before, c.to) {
				return fmt.Errorf("%s enters the hold of %s, which has none", r.wireName(w), r.wireName(c.to))
			}
		case opForce:
			mine = c.fields&(1<<w) != 0
		case opSet:
			mine = false
		}
		switch {
		case !mine && r.command.op == opRelease && r.Kind == ReadWrite && r.readerLeft(r.before, w) == 0 && r.readerLeft(r.after, w) == 0 && r.writes(r.before, w) == r.writes(r.after, w):
		case !mine && !same:
			return fmt.Errorf("it changes the field of %s", r.wireName(w))
		case !had && has && !c.op.asks():
			return fmt.Errorf("it creates a field for %s, which did not hold the lock", r.wireName(w))
		case had && mine && !same && c.op.asks():
			return fmt.Errorf("a repeated acquire changes what %s has", r.wireName(w))
		case had && !has && (c.op.asks() || c.op == opUpdate || c.op == opRenew):
			return fmt.Errorf("it frees the hold of %s", r.wireName(w))
		case had && has && mine && (c.frees() || c.op == opForce || c.op == opRecord && c.excl == 0 || c.op == opPass && r.told != no):
			return fmt.Errorf("the hold of %s is not freed", r.wireName(w))
		}
	}
	return nil
}

func (r *run) fieldsOf(db *memredis.DB, w uint8) string {
	if r.Kind == Semaphore {
		return strconv.FormatBool(r.has(db, w))
	}
	read, _ := db.Field(r.lock, r.wireName(w))
	write, _ := db.Field(r.lock, wire.WriteField(r.wireName(w)))
	return read + "/" + write
}

// checkExclusion checks that the lock has one holder, or that all holders are readers.
func (r *run) checkExclusion() error {
	holders, writers := 0, 0
	for w := range r.wires() {
		if r.has(r.after, w) {
			holders++
		}
		if r.writes(r.after, w) {
			writers++
		}
	}
	mode, _ := r.after.Field(r.lock, wire.ModeField)
	if r.Kind == Semaphore {
		return r.checkCounts()
	}
	beside := holders > 1 && (r.Kind != ReadWrite || writers > 0)
	if r.Guests { // only a guest may come beside a holder, and a reader
		c := r.command
		beside = beside && (c.op == opAcquire && !r.has(r.before, c.from) && r.has(r.after, c.from) || c.op == opPass && r.has(r.before, c.from) && r.told == yes)
	}
	switch {
	case beside:
		return errors.New("two owners hold the lock")
	case r.Kind == ReadWrite && holders > 0 && (mode == "write") != (writers > 0):
		return fmt.Errorf("the mode is %q, and %d of %d holders write", mode, writers, holders)
	case holders == 0 && r.after.TTL(r.lock) != -2:
		return errors.New("the hash has no holder")
	}
	return nil
}

// checkReply checks that the reply tells the truth about the hold.
func (r *run) checkReply() error {
	c := r.command
	from, had := r.has(r.after, c.from), r.has(r.before, c.from)
	switch c.op {
	case opAcquire, opEnter:
		if from != (r.told == yes) && !had || from != (r.told == yes || had) {
			return fmt.Errorf("the reply is %s, and the owner holds the lock: %t", r.told, from)
		}
		if r.told == no && (r.hasSide(r.before) || r.Kind != ReadWrite && had) {
			return errors.New("a holder is refused")
		}
	case opUpdate, opRecord:
		if had != (r.told == yes) && (c.op == opUpdate || !r.recordedBefore()) {
			return fmt.Errorf("the reply is %s, and the owner held the lock: %t", r.told, had)
		}
	case opRenew:
		if had != (r.told == yes) && r.Kind != ReadWrite {
			return fmt.Errorf("the reply is %s, and the owner held the lock: %t", r.told, had)
		}
	case opRelease, opFree, opUndo:
		if had = r.there(r.before, c.from); had != (r.told == yes) {
			return fmt.Errorf("the reply is %s, and the owner held the lock: %t", r.told, had)
		}
	case opPass:
		if to := r.has(r.after, c.to); to != (r.told == yes) {
			return fmt.Errorf("the reply is %s, and the waiter holds the lock: %t", r.told, to)
		}
	}
	return nil
}

// recordedBefore reports whether an earlier try of this command has left the record that ends the
// hold.
func (r *run) recordedBefore() bool {
	by, _ := r.before.Field(r.keys.record, "owner")
	return r.command.op == opRecord && r.command.excl == 0 && by == r.wireName(r.command.from)
}

// hasSide reports whether the owner of an acquire already has that side of a read/write lock.
func (r *run) hasSide(db *memredis.DB) bool {
	w := r.command.from
	if r.command.shared > 0 {
		return r.Kind == ReadWrite && r.has(db, w) && !r.writes(db, w)
	}
	return r.writes(db, w)
}

// checkTTLs checks that every key has a TTL, except those of a fair lock's queue and the counter of
// tokens, and that none shrinks while its hold stays.
func (r *run) checkTTLs() error {
	if r.Kind == Semaphore {
		return r.checkExpiries()
	}
	for _, name := range r.after.Keys() {
		if r.after.TTL(name) == memredis.NoTTL && !r.lasting(name) && r.before.TTL(name) != memredis.NoTTL {
			return fmt.Errorf("%s has no TTL", name)
		}
	}
	was, is := r.before.TTL(r.lock), r.after.TTL(r.lock)
	for w := range r.wires() {
		if !r.has(r.before, w) || !r.has(r.after, w) {
			continue
		}
		need := was
		if r.Kind == ReadWrite && !r.writes(r.before, w) {
			left := r.readerLeft(r.before, w)
			need = min(need, left)
			if now := r.readerLeft(r.after, w); now < left {
				return fmt.Errorf("the TTL of the reader %s shrinks from %d to %d ms", r.wireName(w), left, now)
			}
		}
		if is < need {
			return fmt.Errorf("the TTL of %s shrinks from %d to %d ms while %s holds it", r.lock, was, is, r.wireName(w))
		}
	}
	if err := r.checkReadersLeave(is); err != nil {
		return err
	}
	// The granted lease. A stray from before a downgrade grants nothing.
	outdated := r.Kind == ReadWrite && r.command.op == opUpdate && r.command.excl > 0 && !r.writes(r.before, r.command.from)
	if c := r.command; r.told == yes && c.lease > 0 && !outdated {
		lease, w := int64(c.lease)*tick, c.from
		if c.op == opPass {
			w = c.to
		}
		if is < lease || r.Kind == ReadWrite && !r.writes(r.after, w) && c.shared > 0 && r.readerLeft(r.after, w) < lease {
			return fmt.Errorf("%s was granted %d ms and has %d", r.wireName(w), lease, is)
		}
	}
	return nil
}

// checkReadersLeave checks that a reader that leaves takes dead readers along, so that the lock is
// free when the last living reader has left or its lease has ended. left is the TTL of the hash.
func (r *run) checkReadersLeave(left int64) error {
	if r.Kind != ReadWrite || r.command.op != opRelease || r.told != yes {
		return nil
	}
	longest := int64(-2)
	for w := range r.wires() {
		if r.writes(r.after, w) { // a guest, or the host of one: the hash lives for it
			return nil
		}
		if ttl := r.readerLeft(r.after, w); r.has(r.after, w) && ttl > 0 {
			longest = max(longest, ttl)
		}
	}
	if left > longest {
		return fmt.Errorf("the hash lives for %d ms, and its readers for %d", left, longest)
	}
	return nil
}

// lasting reports whether a key has no TTL.
func (m *Model) lasting(name string) bool {
	return name == m.keys.counter || name == m.keys.queue || name == m.keys.deadlines
}

// checkToken checks that a grant has a greater token than all grants before it, and that nothing
// else draws one.
func (r *run) checkToken() error {
	if r.Kind != Fenced {
		return nil
	}
	if r.told != yes || r.command.op != opAcquire && r.command.op != opPass {
		if counter := r.after.Value(r.keys.counter); counter != strconv.FormatUint(r.Token, 10) {
			return fmt.Errorf("it draws the token %s and grants nothing", counter)
		}
		return nil
	}
	if r.token <= r.Token {
		return fmt.Errorf("the token is %d, and %d was given before", r.token, r.Token)
	}
	if counter := r.after.Value(r.keys.counter); counter != strconv.FormatUint(r.token, 10) {
		return fmt.Errorf("the token is %d, and the counter %s", r.token, counter)
	}
	return nil
}

// checkPublished checks that waiters hear when the lock is free or readers may enter.
func (r *run) checkPublished() error {
	if r.Kind == Semaphore {
		return r.checkFree()
	}
	var want published
	wrote := r.writes(r.before, r.command.from) || r.command.op == opForce && r.command.excl > 0
	released := r.before.TTL(r.lock) != -2 && r.after.TTL(r.lock) == -2
	was, _ := r.before.Field(r.lock, wire.ModeField)
	is, _ := r.after.Field(r.lock, wire.ModeField)
	downgraded := wrote && !released && was == "write" && is == "read"
	switch a := r.announcement(); {
	case !released && !downgraded && !r.leavesQueue():
		return nil
	case r.Kind == Fair:
		queue := r.after.List(r.keys.queue)
		if len(queue) == 0 {
			return nil
		}
		want = r.message(queue[0])
	case wrote:
		want = published{a.Channel, wire.Unblocked}
	default:
		want = published{a.Channel, wire.Unlocked}
	}
	if !slices.Contains(r.published, want) {
		return fmt.Errorf("%q is not published on %s", want.message, want.channel)
	}
	return nil
}

// message returns what tells a waiter for a fair lock that its turn has come.
func (r *run) message(waiter string) published {
	return published{wire.FairChannel(r.lock, waiter), wire.Unlocked}
}

// leavesQueue reports whether a waiter for a free fair lock leaves the queue.
func (r *run) leavesQueue() bool {
	return r.Kind == Fair && r.command.op == opRelease && r.before.TTL(r.lock) == -2 &&
		slices.Contains(r.before.List(r.keys.queue), r.wireName(r.command.from))
}

// checkQueue checks that a waiter that listens keeps its place in the queue of a fair lock until it
// gets the lock or leaves.
func (r *run) checkQueue() error {
	if r.Kind != Fair {
		return nil
	}
	before, after := r.before.List(r.keys.queue), r.after.List(r.keys.queue)
	c := r.command
	mine := r.wireName(c.from)
	if c.op == opPass {
		mine = r.wireName(c.to)
	}
	granted := (c.op == opAcquire || c.op == opPass) && r.told == yes && !slices.Contains(r.before.Fields(r.lock), mine)
	next := 0
	for _, waiter := range before {
		place := slices.Index(after, waiter)
		if waiter == mine || !r.alive(waiter) {
			if place >= 0 && waiter != mine {
				next = max(next, place)
			}
			if waiter != mine {
				if err := r.checkDrop(waiter, place < 0); err != nil {
					return err
				}
			}
			continue
		}
		if place < 0 {
			return fmt.Errorf("%s is dropped from the queue, and it listens", waiter)
		}
		if place < next {
			return fmt.Errorf("%s overtakes others in the queue", waiter)
		}
		next = place
		if ahead := !slices.Contains(before, mine) || slices.Index(before, waiter) < slices.Index(before, mine); granted && ahead {
			return fmt.Errorf("%s gets the lock before %s, which is ahead of it and listens", mine, waiter)
		}
	}
	if c.op == opAcquire && slices.Contains(after, mine) && !slices.Contains(before, mine) && (c.notAfter == never || c.notAfter < 0) {
		return fmt.Errorf("%s joins the queue after it has given up", mine)
	}
	if head := first(before); head != "" && head == first(after) {
		if _, ok := r.after.Score(r.keys.deadlines, head); !ok && r.seesHead() {
			return fmt.Errorf("%s is first in the queue and has no deadline", head)
		}
	}
	if granted && slices.Contains(after, mine) {
		return fmt.Errorf("%s holds the lock and is in the queue", mine)
	}
	for i, waiter := range after {
		if _, noted := r.after.Field(r.keys.absent, waiter); noted && r.alive(waiter) && slices.Contains(r.published, r.message(waiter)) {
			return fmt.Errorf("%s is told that its turn has come, listens, and is noted as absent", waiter)
		}
		if slices.Index(after, waiter) != i {
			return fmt.Errorf("%s is in the queue twice", waiter)
		}
		if _, ok := r.after.Score(r.keys.deadlines, waiter); !ok && !slices.Contains(before, waiter) {
			return fmt.Errorf("%s is in the queue and has no deadline", waiter)
		}
	}
	return nil
}

func first(queue []string) string {
	if len(queue) == 0 {
		return ""
	}
	return queue[0]
}

// seesHead reports whether the script looks at the head of the queue. One that finds no hold does
// not.
func (r *run) seesHead() bool {
	c := r.command
	held := r.has(r.before, c.from)
	return c.op == opAcquire || c.op == opRelease || c.op == opPass && held
}

// checkDrop checks that a waiter that does not listen is dropped for a reason: its deadline has
// passed, or it has been absent for as long as it may. It must hear of it, because it may be alive.
func (r *run) checkDrop(waiter string, dropped bool) error {
	deadline, ok := r.before.Score(r.keys.deadlines, waiter)
	overdue := ok && deadline <= now
	if !dropped {
		if overdue && waiter == first(r.before.List(r.keys.queue)) && r.seesHead() {
			return fmt.Errorf("%s keeps its place in the queue after its deadline", waiter)
		}
		return nil
	}
	noted, _ := r.before.Field(r.keys.absent, waiter)
	since, err := strconv.ParseInt(noted, 10, 64)
	if absent := err == nil && now-since >= grace*tick; !overdue && !absent {
		return fmt.Errorf("%s is dropped from the queue, and it may be back soon", waiter)
	}
	if !slices.Contains(r.published, r.message(waiter)) {
		return fmt.Errorf("%s is dropped from the queue and does not hear of it", waiter)
	}
	return nil
}

// alive reports whether a waiter in the queue of a fair lock listens and has tried in time.
func (r *run) alive(waiter string) bool {
	for w := range r.wires() {
		if r.listen&^r.slow&(1<<w) != 0 && r.wireName(w) == waiter {
			return true
		}
	}
	return false
}

// checkRecord checks that a record stays unchanged until its TTL ends, unless a holder leaves
// another, and that no lock is granted beside a record that is not stale.
func (r *run) checkRecord() error {
	if r.Kind != Once {
		return nil
	}
	key, c := r.keys.record, r.command
	record, was := r.before.Field(key, "record")
	after, is := r.after.Field(key, "record")
	marker, _ := r.before.Field(key, "marker")
	had := r.has(r.before, c.from)
	unmarks := c.op == opUndo || c.op == opFree && had
	stale, goesStale := r.staleFrom(r.before)
	staleAfter, _ := r.staleFrom(r.after)
	switch by, _ := r.after.Field(key, "marker"); {
	case c.op == opAcquire && r.told == yes && !had && was && !(goesStale && r.before.TTL(key) <= stale):
		return errors.New("the lock is granted beside a record")
	case c.op == opAcquire && r.told == recorded && !r.Marker && r.ofHolder(goesStale):
		return errors.New("the record of a level is shown while the lock is held")
	case c.op == opFree && had && goesStale && staleAfter > max(0, r.after.TTL(key)-tick):
		return fmt.Errorf("a renewal is put off until a TTL of %d ms, of %d ms", staleAfter, r.after.TTL(key))
	case c.op == opAcquire && r.told == yes && !had && r.Marker && by != r.wireName(c.from):
		return errors.New("the lock is granted without a marker")
	case c.op == opRecord && had:
		if want := "record of "; !strings.HasPrefix(after, want) {
			return fmt.Errorf("the record is %q", after)
		}
		want := int64(2 * tick)
		if by, bound := r.before.Field(key, "binder"); bound && by != r.wireName(c.from) {
			want = max(want, r.before.TTL(key))
		}
		if r.after.TTL(key) != want {
			return fmt.Errorf("the record has a TTL of %d ms", r.after.TTL(key))
		}
		if _, ok := r.after.Field(key, "marker"); ok {
			return errors.New("the record is still a marker")
		}
	case unmarks && is && marker == r.wireName(c.from):
		return errors.New("the marker of a hold that did nothing stays")
	case was && !is && (!unmarks || marker != r.wireName(c.from)):
		return errors.New("the record is gone")
	case was && is && (record != after || r.after.TTL(key) < r.before.TTL(key)):
		return errors.New("the record changes")
	case !was && is && c.op != opAcquire:
		return errors.New("a caller that does not hold the lock leaves a record")
	}
	return r.checkBinding(had)
}

// staleFrom returns the TTL from which a record is stale. ok is false if it never is.
func (r *run) staleFrom(db *memredis.DB) (ttl int64, ok bool) {
	text, ok := db.Field(r.keys.record, "stale")
	ttl, _ = strconv.ParseInt(text, 10, 64)
	return ttl, ok
}

// ofHolder reports whether the record may be one that a hold of the lock has stored.
func (r *run) ofHolder(goesStale bool) bool {
	by, _ := r.before.Field(r.keys.record, "owner")
	for w := range r.wires() {
		if r.has(r.before, w) && (!goesStale || by == r.wireName(w)) {
			return true
		}
	}
	return false
}

// checkBinding checks that a name stays bound to what its first grant bound it to, and is granted for
// nothing else. had says that the caller held the lock before.
func (r *run) checkBinding(had bool) error {
	c, own := r.command, r.binding(r.command.from)
	before, was := r.before.Field(r.keys.record, "bound")
	after, is := r.after.Field(r.keys.record, "bound")
	granted := c.op == opAcquire && r.told == yes && !had
	switch {
	case granted && r.Marker && is && after != own:
		return fmt.Errorf("the lock is granted for %q, and the name is bound to %q", own, after)
	case was && before != after:
		return fmt.Errorf("the name was bound to %q, and is bound to %q", before, after)
	case granted && r.Marker && !is:
		return errors.New("the lock is granted, and the name is not bound")
	case !was && is && !granted:
		return errors.New("a caller that was not granted the lock binds the name")
	}
	return nil
}

// tickRedis returns the content a tick later.
func (m *Model) tickRedis(redis int32) int32 {
	next, ok := m.ticked[redis]
	if !ok {
		db := m.db(redis)
		db.Advance(tick)
		db.ShiftScores(m.keys.deadlines, -tick, now) // how long one is overdue does not matter
		db.ShiftScores(m.keys.taken, -tick, now)
		for _, absent := range db.Fields(m.keys.absent) {
			if absent == "next" {
				continue
			}
			since, _ := db.Field(m.keys.absent, absent)
			at, _ := strconv.ParseInt(since, 10, 64)
			db.Do("HSET", m.keys.absent, absent, strconv.FormatInt(at-tick, 10))
		}
		next = m.number(db)
		m.ticked[redis] = next
	}
	return next
}

// A renameKey is a content and a permutation of its wire owners.
type renameKey struct {
	redis int32
	names [maxOwners * wiresEach]uint8
}

// rename permutes the names of wire owners.
func (m *Model) rename(redis int32, names [maxOwners * wiresEach]uint8) int32 {
	key := renameKey{redis, names}
	next, ok := m.renamed[key]
	if !ok {
		var pairs []string
		for w := range names {
			if int(names[w]) != w && w < len(m.Clients)*wiresEach {
				pairs = append(pairs, m.wireName(uint8(w)), m.wireName(names[w]))
				pairs = append(pairs, m.binding(uint8(w)), m.binding(names[w]))
			}
		}
		db := m.db(redis)
		db.Rename(strings.NewReplacer(pairs...))
		next = m.number(db)
		m.renamed[key] = next
	}
	return next
}

// identity renames nothing.
func identity() (names [maxOwners * wiresEach]uint8) {
	for w := range names {
		names[w] = uint8(w)
	}
	return names
}

// forget removes a retired wire owner from the keys that may outlast it, so that its name can stand
// for a new one. These keys name the owner of a record, absent waiters, and permits that have expired.
func (m *Model) forget(redis int32, w uint8) int32 {
	name := m.wireName(w)
	if !strings.Contains(m.contents[redis], name) {
		return redis
	}
	db := m.db(redis)
	db.Do("HDEL", m.keys.absent, name)
	m.forgetPermits(db, w)
	for _, field := range []string{"owner", "marker", "binder"} {
		if value, _ := db.Field(m.keys.record, field); value == name {
			db.Do("HSET", m.keys.record, field, gone)
		}
	}
	return m.number(db)
}

// A look is what the state checks need to know about a content.
type look struct {
	present [maxOwners * wiresEach]bool // in the lock's hash
	traced  [maxOwners * wiresEach]bool // in any key
	left    [maxOwners * wiresEach]uint8
	counts  [maxOwners * wiresEach][2]string // excl, shared
	writes  [maxOwners * wiresEach]bool
	reads   [maxOwners * wiresEach]bool // has a field of the read side
	queued  [maxOwners * wiresEach]bool
	keys    []string
	rest    []string // keys that must go in a quiet world
	lasting []string // those without a TTL
}

func (m *Model) look(redis int32) *look {
	if l := m.looks[redis]; l != nil {
		return l
	}
	db := m.db(redis)
	l := &look{}
	for w := range m.wires() {
		name := m.wireName(w)
		l.present[w], l.writes[w], l.reads[w] = m.has(db, w), m.writes(db, w), m.hasField(db, name)
		l.traced[w] = strings.Contains(m.contents[redis], name)
		ttl := max(db.TTL(m.lock), 0)
		if m.Kind == ReadWrite && !l.writes[w] {
			ttl = min(ttl, m.readerLeft(db, w))
		}
		if m.Kind == Semaphore {
			ttl = m.permitLeft(db, w)
		}
		if l.present[w] {
			l.left[w] = uint8(ttl / tick)
		}
		read, _ := db.Field(m.lock, name)
		write, _ := db.Field(m.lock, wire.WriteField(name))
		if m.Kind == Semaphore && l.present[w] {
			read = "1"
		}
		l.counts[w] = [2]string{write, read}
		_, deadline := db.Score(m.keys.deadlines, name)
		l.queued[w] = deadline || slices.Contains(db.List(m.keys.queue), name)
	}
	for _, name := range db.Keys() {
		if name == m.keys.counter {
			continue
		}
		l.keys = append(l.keys, name)
		if m.remains(db, name) {
			continue
		}
		l.rest = append(l.rest, name)
		if db.TTL(name) == memredis.NoTTL && name != m.keys.taken { // permits end by themselves
			l.lasting = append(l.lasting, name)
		}
	}
	m.looks[redis] = l
	return l
}
