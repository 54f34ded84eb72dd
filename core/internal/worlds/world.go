package worlds

import (
	"fmt"
	"hash/maphash"
	"strconv"
	"strings"

	"github.com/reqlock/reqlock/core/internal/claim"
	"github.com/reqlock/reqlock/core/internal/kinds"
	"github.com/reqlock/reqlock/core/internal/lua"
	"github.com/reqlock/reqlock/core/internal/wire"
	"github.com/reqlock/reqlock/internal/lab/memredis"
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
	Semaphore
)

func (k Kind) String() string {
	return [...]string{"plain", "fenced", "fair", "readwrite", "once", "semaphore"}[k]
}

// A World says what exists and what may happen. Leases are in ticks.
type World struct {
	Kind    Kind
	Clients []int   // the client of each owner
	Leases  []uint8 // what acquires and re-entries ask for
	Renewal uint8   // lease of renewals; 0: there are none
	Levels  uint8   // how often an owner may enter
	Extend  bool    // owners may extend their leases by the longest of Leases
	Pass    bool    // owners may hand the lock over
	Guests  bool    // owners may enter as guests of a holder
	Marker  bool    // acquires of a Once leave a marker, and bind the name to the client
	Stale   bool    // records of a Once are stale in their last tick, and a release may put off the renewal
	Budget  uint8   // how long a waiter for a fair lock may be silent
	Token   uint64  // the counter of a fenced lock at the start
	Permits []uint8 // how many permits each client declares; the client made last is right
	Takes   uint8   // how many permits each acquire takes
	Sets    []uint8 // the numbers that SetPermits may set

	// How often each may happen.
	Losses    uint8 // a reply is lost, or its command delayed
	Evictions uint8 // Redis loses a key, or all of them
	Forces    uint8
	Crashes   uint8
	Deaf      uint8 // a waiter for a fair lock loses its subscription
	Freezes   uint8 // a client whose only owner waits for a fair lock stops, and its connection stands
	Resizes   uint8 // SetPermits is called

	Scripts map[string]string // replacements for the texts of scripts, by name
}

// An opcode is a kind of command.
type opcode uint8

const (
	opAcquire opcode = iota
	opUpdate
	opRelease
	opFree // a release that removes the marker with the hold, or puts off the next renewal
	opUndo // and also without it
	opRecord
	opPass
	opRenew
	opForce
	opSet
	opEnter // as a guest
)

func (o opcode) String() string {
	return [...]string{"acquire", "update", "release", "release without record", "undo", "record", "pass", "renew", "force", "set permits", "enter"}[o]
}

// asks reports whether the command is an attempt to get the lock for a new hold.
func (o opcode) asks() bool { return o == opAcquire || o == opEnter }

// frees reports whether the command is a release of the last level.
func (c command) frees() bool { return c.op == opRelease || c.op == opFree || c.op == opUndo }

// never is the notAfter of a command that does not queue up.
const never = -100

// A command is one call to Redis.
type command struct {
	op       opcode
	from, to uint8 // wire owners: owner * wiresEach + number; to is the heir's, or the host's of a guest
	excl     uint8 // levels; an acquire has one level, of either side; the number that SetPermits sets
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
	more   claim.Addition
}

// A State is everything in a world at one time.
type State struct {
	redis    int32 // the number of its content
	owners   [maxOwners]owner
	messages [maxMessages]message
	n        uint8

	losses, evictions, forces, crashes, deafs, freezes, resizes uint8 // how many may still happen

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
	counter, queue, deadlines, absent, record, prefix, suffix, taken, declared string
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
		taken:     wire.PermitsTaken(lockName),
		declared:  wire.PermitsDeclared(lockName),
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
	s := State{losses: m.Losses, evictions: m.Evictions, forces: m.Forces, crashes: m.Crashes, deafs: m.Deaf, freezes: m.Freezes, resizes: m.Resizes, newest: 1}
	db := &memredis.DB{}
	if m.Kind == Fenced {
		db.Do("SET", m.keys.counter, fmt.Sprint(m.Token))
	}
	s.redis = m.number(db)
	return s
}

// number returns the number of a content.
func (m *Model) number(db *memredis.DB) int32 {
	m.holdTTLs(db)
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

// binding returns what a wire owner binds the name of a Once to.
func (m *Model) binding(w uint8) string { return "client " + strconv.Itoa(m.client(ownerOf(w))) }

// settings returns what scripts are told.
func (m *Model) settings() kinds.Settings {
	return kinds.Settings{
		Publish: []string{"PUBLISH"}, FairBudget: ms(int(m.Budget)), FairGrace: ms(grace), FairAbsentPause: ms(1), CountsListeners: true,
	}
}

// kind returns the kind of a hold.
func (m *Model) kind(shared bool) *kinds.Kind {
	switch {
	case m.Kind == ReadWrite && shared:
		return kinds.Read
	case m.Kind == ReadWrite:
		return kinds.Write
	case m.Kind == Fenced:
		return kinds.Fenced
	case m.Kind == Fair:
		return kinds.Fair
	case m.Kind == Once:
		return &kinds.Once
	case m.Kind == Semaphore:
		return &kinds.Semaphore
	}
	return kinds.Plain
}

// terms returns what a wire owner demands of a Once or a semaphore.
func (m *Model) terms(w uint8) *kinds.Terms {
	if m.Kind == Semaphore {
		declares := int(m.Permits[m.client(ownerOf(w))])
		return &kinds.Terms{PermitTerms: kinds.PermitTerms{Takes: int(m.Takes), Declares: declares}}
	}
	t := &kinds.Terms{OnceTerms: kinds.OnceTerms{RecordKey: m.keys.record}}
	if m.Marker {
		t.Marks = lua.Marks{Marker: "marker", Binding: m.binding(w), TTL: ms(int(m.maxLease + 1))}
	}
	return t
}

// call returns the script that a command runs, or no call if the kind has no such command.
func (m *Model) call(c command) lua.Call {
	settings, lease, kind, terms := m.settings(), ms(int(c.lease)), m.kind(c.excl == 0 && c.shared > 0), m.terms(c.from)
	settings.Age = m.age(c.from)
	counts := kinds.Hold{
		Terms: terms, Key: m.lock, Wire: m.wireName(c.from), Deepest: int32(c.deepest),
		Counts: claim.Counts{Exclusive: int32(c.excl), Shared: int32(c.shared)},
	}
	switch c.op {
	case opAcquire:
		t := kinds.Try{Terms: terms, Key: m.lock, Wire: counts.Wire, Lease: lease}
		if c.notAfter != never {
			t.NotAfter = now + int64(c.notAfter)*tick
		}
		return kind.Acquire(settings, t)
	case opEnter:
		host := kind.Guest(kinds.GuestTerms{Host: m.wireName(c.to)})
		return host.Acquire(settings, kinds.Try{Terms: terms, Key: m.lock, Wire: counts.Wire, Lease: lease})
	case opUpdate:
		return kind.Update(settings, counts, lease)
	case opRelease:
		return kind.Release(settings, counts)
	case opFree, opUndo:
		removal := lua.Removal{Gone: c.op == opUndo}
		if m.Stale {
			removal.Pause = ms(1)
		}
		return kinds.Marked(settings, counts, removal)
	case opRecord:
		record := lua.Record{Value: "record of " + strings.Repeat("I", counts.Total()+1), TTL: ms(recordTTL)}
		if m.Stale {
			record.TTL, record.Stale = ms(recordTTL-1), ms(1)
		}
		return kinds.Once.Record(settings, counts, record)
	case opPass:
		if kind = m.kind(false); kind.HandOver == nil {
			return lua.Call{}
		}
		return kind.HandOver(settings, counts, m.wireName(c.to), lease)
	case opRenew:
		counts.Deepest = counts.Shared
		r := kind.Renew(counts)
		if m.Kind == ReadWrite {
			r.Lease = lease
		}
		return lua.Renew([]lua.Renewable{r}, ms(int(m.Renewal)))
	case opForce:
		return m.kind(c.excl == 0).Force(settings, m.lock, m.forced(c))
	case opSet:
		if m.Kind != Semaphore {
			return lua.Call{}
		}
		return lua.SetPermits(settings.Permits(m.lock), int(c.excl))
	}
	panic("worlds: no such command")
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
