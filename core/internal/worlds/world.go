package worlds

import (
	"fmt"
	"hash/maphash"
	"strconv"
	"strings"

	"github.com/reqlock/reqlock/core/internal/claim"
	"github.com/reqlock/reqlock/core/internal/lua"
	"github.com/reqlock/reqlock/core/internal/wire"
	"github.com/reqlock/reqlock/internal/memredis"
)

const (
	maxOwners   = 3
	wiresEach   = 2 // wire owners that an owner may use at a time: the current and the previous one
	maxMessages = 6

	tick = 30_000 // ms
	// Now is the server's clock, which stands still.
	now = 1_764_000_000_000

	lockName = "order"
)

// A Kind is a kind of lock.
type Kind uint8

// The kinds of locks.
const (
	Plain Kind = iota
	Fenced
	Fair
	ReadWrite
	Once
)

func (k Kind) String() string { return [...]string{"plain", "fenced", "fair", "readwrite", "once"}[k] }

// A World says what exists and what may happen. Leases are in ticks.
type World struct {
	Kind    Kind
	Clients []int   // the client of each owner
	Leases  []uint8 // what acquires and re-entries ask for
	Renewal uint8   // lease of renewals; 0: there are none
	Levels  uint8   // how often an owner may enter
	Extend  bool    // owners may extend their leases by the longest of Leases
	Pass    bool    // owners may hand the lock over
	Marker  bool    // acquires of a Once leave a marker, and bind the name to the client
	Budget  uint8   // how long a waiter for a fair lock may be silent
	Token   uint64  // the counter of a fenced lock at the start

	// How often each may happen.
	Losses    uint8 // a reply is lost, or its command delayed
	Evictions uint8 // Redis loses a key, or all of them
	Forces    uint8
	Crashes   uint8
	Deaf      uint8 // a waiter for a fair lock loses its subscription
	Freezes   uint8 // a client whose only owner waits for a fair lock stops, and its connection stands

	Scripts map[string]string // replacements for the texts of scripts, by name
}

// An opcode is a kind of command.
type opcode uint8

const (
	opAcquire opcode = iota
	opUpdate
	opRelease
	opFree // a release that removes the marker with the hold
	opUndo // and also without it
	opRecord
	opPass
	opRenew
	opForce
)

func (o opcode) String() string {
	return [...]string{"acquire", "update", "release", "release without record", "undo", "record", "pass", "renew", "force"}[o]
}

// frees reports whether the command is a release of the last level.
func (c command) frees() bool { return c.op == opRelease || c.op == opFree || c.op == opUndo }

// never is the notAfter of a command that does not queue up.
const never = -100

// A command is one call to Redis.
type command struct {
	op       opcode
	from, to uint8 // wire owners: owner * wiresEach + number
	excl     uint8 // levels; an acquire has one level, of either side
	shared   uint8
	deepest  uint8
	lease    uint8
	notAfter int8   // ticks from now, or never
	fields   uint16 // force: of these wire owners
}

// A role says what a message means to its client.
type role uint8

const (
	change  role = iota // the one change of a hold that may be in flight
	renewal             // a renewal of the same hold, besides the change
	stray               // given up: nothing reads its reply
)

// A reply is an answer of Redis.
type reply uint8

const (
	none reply = iota // not yet
	yes
	no
	freed
	recorded
)

func (r reply) String() string { return [...]string{"", "yes", "no", "freed", "a record"}[r] }

// A message is a command on its way to Redis, or its reply on the way back.
type message struct {
	command
	role   role
	reply  reply
	age    uint8 // ticks since it was sent
	token  uint8 // the age of the token in its reply
	again  bool  // an earlier try was given up
	asked  uint8 // update: the lease that its owner wants; the command also has what others need
	enters bool  // update: the lease is for the read side
	more   claim.Entry
}

// A State is everything in a world at one time.
type State struct {
	redis    int32 // the number of its content
	owners   [maxOwners]owner
	messages [maxMessages]message
	n        uint8

	losses, evictions, forces, crashes, deafs, freezes uint8 // how many may still happen

	newest uint8 // the age of the newest token that a client has accepted; see rankTokens
}

// A Model explores a World.
type Model struct {
	World
	runner   *memredis.Runner
	lock     string
	keys     keys
	contents []string
	numbers  map[string]int32
	effects  map[effectKey]effect
	ticked   map[int32]int32
	renamed  map[renameKey]int32
	looks    map[int32]*look
	perms    []perm
	settled  map[[2]uint64]struct{} // hashes of quiet worlds that become empty
	seeds    [2]maphash.Seed
	maxLease uint8
	key      []byte
	key2     []byte
}

type keys struct {
	counter, queue, deadlines, absent, record, prefix, suffix string
}

// New returns a model. The caller closes it.
func New(w World) *Model {
	m := &Model{
		World:   w,
		runner:  memredis.NewRunner(),
		lock:    lockName,
		numbers: make(map[string]int32),
		effects: make(map[effectKey]effect),
		ticked:  make(map[int32]int32),
		renamed: make(map[renameKey]int32),
		looks:   make(map[int32]*look),
		settled: make(map[[2]uint64]struct{}),
		seeds:   [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()},
	}
	m.keys = keys{
		counter:   wire.TokenCounter(lockName),
		queue:     wire.FairQueue(lockName),
		deadlines: wire.FairDeadlines(lockName),
		absent:    wire.FairDeadlines(lockName) + ":absent",
		record:    wire.RecordKey(lockName),
	}
	m.keys.prefix, m.keys.suffix = wire.ReadTimeouts(lockName)
	m.maxLease = w.Renewal
	for _, lease := range w.Leases {
		m.maxLease = max(m.maxLease, lease)
	}
	m.perms = permutations(w.Clients)
	return m
}

// Close frees the interpreter.
func (m *Model) Close() { m.runner.Close() }

// Start is the empty world.
func (m *Model) Start() State {
	s := State{losses: m.Losses, evictions: m.Evictions, forces: m.Forces, crashes: m.Crashes, deafs: m.Deaf, freezes: m.Freezes, newest: 1}
	db := &memredis.DB{}
	if m.Kind == Fenced {
		db.Do("SET", m.keys.counter, fmt.Sprint(m.Token))
	}
	s.redis = m.number(db)
	return s
}

// number returns the number of a content.
func (m *Model) number(db *memredis.DB) int32 {
	content := db.Encode()
	n, ok := m.numbers[content]
	if !ok {
		n = int32(len(m.contents))
		m.contents = append(m.contents, content)
		m.numbers[content] = n
	}
	return n
}

func (m *Model) db(number int32) *memredis.DB { return memredis.Decode(m.contents[number], now) }

func (m *Model) client(o int) int { return m.Clients[o] }

// wires returns the number of wire owners.
func (m *Model) wires() uint8 { return uint8(len(m.Clients) * wiresEach) }

// spare is an owner's second wire owner, left by an earlier hold.
const spare = 1

// wireOf returns the number of a wire owner of an owner.
func wireOf(o, slot int) uint8 { return uint8(o*wiresEach + slot) }

func ownerOf(w uint8) int { return int(w) / wiresEach }

// wireName returns the wire owner's name in Redis. All names have the same length.
func (m *Model) wireName(w uint8) string {
	return wire.Owner(string(rune('A'+m.client(ownerOf(w)))), uint64(10+w))
}

// gone is the name of a wire owner that no message names any more.
const gone = "Z:99"

// announcement returns what a release publishes.
func (m *Model) announcement() lua.Announcement {
	a := lua.Announcement{Channel: wire.LockChannel(m.lock), Message: wire.Unlocked, Commands: []string{"PUBLISH"}}
	if m.Kind == ReadWrite {
		a.Channel = wire.ReadWriteChannel(m.lock)
	}
	return a
}

// recordTTL is how long a record of a Once lasts, in ticks.
const recordTTL = 2

// grace is how long a waiter for a fair lock may be absent, or leave the free lock alone, in ticks. A
// live waiter asks in each tick.
const grace = 2

func (m *Model) fair() *lua.Fair {
	f := &lua.Fair{
		Lock: m.lock, Queue: m.keys.queue, Deadlines: m.keys.deadlines,
		Budget: ms(int(m.Budget)), Grace: ms(grace), Counts: true, Announcement: m.announcement(),
	}
	f.Channel = wire.FairChannel(m.lock, "")
	return f
}

// binding returns what a wire owner binds the name of a Once to.
func (m *Model) binding(w uint8) string { return "client " + strconv.Itoa(m.client(ownerOf(w))) }

// call returns the script that a command runs, as core/kind.go builds it.
func (m *Model) call(c command) lua.Call {
	from := m.wireName(c.from)
	lease := ms(int(c.lease))
	a := m.announcement()
	levels := int(c.excl + c.shared)
	switch c.op {
	case opAcquire:
		switch {
		case m.Kind == Fenced:
			return lua.AcquireFenced(m.lock, m.keys.counter, from, lease)
		case m.Kind == Fair:
			notAfter := int64(0)
			if c.notAfter != never {
				notAfter = now + int64(c.notAfter)*tick
			}
			return lua.AcquireFair(m.fair(), from, lease, notAfter, ms(1))
		case m.Kind == ReadWrite && c.shared > 0:
			return lua.AcquireRead(m.lock, wire.ReadTimeout(m.lock, from, 1), from, lease)
		case m.Kind == ReadWrite:
			return lua.AcquireWrite(m.lock, wire.WriteField(from), lease)
		case m.Kind == Once:
			marks := lua.Marks{}
			if m.Marker {
				marks = lua.Marks{Marker: "marker", Binding: m.binding(c.from), TTL: ms(int(m.maxLease + 1))}
			}
			return lua.OnceAcquire(m.lock, m.keys.record, from, lease, marks)
		}
		return lua.Acquire(m.lock, from, lease)
	case opUpdate:
		if m.Kind == ReadWrite {
			return m.updateReadWrite(c)
		}
		return lua.Update(m.lock, from, levels, lease)
	case opRelease:
		switch m.Kind {
		case ReadWrite:
			return m.updateReadWrite(c)
		case Fair:
			return lua.ReleaseFair(m.fair(), from)
		}
		return lua.Release(m.lock, from, a)
	case opFree, opUndo:
		return lua.OnceRelease(m.lock, m.keys.record, from, lua.Removal{Gone: c.op == opUndo}, a)
	case opRecord:
		return lua.OnceRecord(m.lock, m.keys.record, from, levels, lua.Record{Value: "record of " + strings.Repeat("I", levels+1), TTL: ms(recordTTL)}, a)
	case opPass:
		to := m.wireName(c.to)
		switch m.Kind {
		case Fenced:
			return lua.PassFenced(m.lock, m.keys.counter, from, to, lease)
		case Fair:
			return lua.PassFair(m.fair(), from, to, lease)
		case ReadWrite:
			return lua.Pass(m.lock, wire.WriteField(from), wire.WriteField(to), lease)
		}
		return lua.Pass(m.lock, from, to, lease)
	case opRenew:
		r := lua.Renewable{Key: m.lock, Field: from}
		if m.Kind == ReadWrite {
			r.Timeouts, r.Lease = m.timeouts(from, c.shared), lease
			if c.excl > 0 {
				r.Field = wire.WriteField(from)
			}
		}
		return lua.Renew([]lua.Renewable{r}, ms(int(m.Renewal)))
	case opForce:
		if m.Kind == Fair {
			return lua.ForceReleaseFair(m.fair(), m.forced(c))
		}
		if c.excl > 0 {
			a.Message = wire.Unblocked
		}
		return lua.ForceRelease(m.lock, m.forced(c), a)
	}
	panic("worlds: no such command")
}

func (m *Model) updateReadWrite(c command) lua.Call {
	from := m.wireName(c.from)
	return lua.UpdateReadWrite(lua.ReadWriteHold{
		Key: m.lock, Timeouts: m.timeouts(from, c.deepest), Owner: from,
		Reads: int(c.shared), Writes: int(c.excl),
		Prefix: m.keys.prefix, Suffix: m.keys.suffix, Certain: true, WriteMessage: wire.Unblocked,
	}, ms(int(c.lease)), m.announcement())
}

func (m *Model) timeouts(owner string, levels uint8) []string {
	keys := make([]string, levels)
	for i := range keys {
		keys[i] = wire.ReadTimeout(m.lock, owner, i+1)
	}
	return keys
}

// forced returns the fields that a force must end. A field of the write side ends its read field,
// too.
func (m *Model) forced(c command) []string {
	var fields []string
	for w := range m.wires() {
		if c.fields&(1<<w) == 0 {
			continue
		}
		name := m.wireName(w)
		if m.Kind == ReadWrite && c.excl > 0 {
			fields = append(fields, wire.WriteField(name))
		}
		fields = append(fields, name)
	}
	return fields
}
