package worlds

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/reqlock/reqlock/core/internal/lua"
	"github.com/reqlock/reqlock/core/internal/wire"
	"github.com/reqlock/reqlock/internal/lab/memredis"
)

// The four of a search: host takes the only permit, guest uses it, further is a guest of the guest,
// and stranger wants a permit.
const (
	host = iota
	guest
	further
	stranger
	players
)

// A player acts once: it takes or enters, renews, and leaves.
type player struct {
	asked  bool
	left   uint8 // ticks that its lease has left by its clock; 0: it believes in no hold
	gone   bool  // Redis has confirmed that it left
	stray  uint8 // its latest command may arrive once more: 1 for each sort
	strays uint8 // ticks within which it may
}

// strays of a player, by what they do.
const (
	noStray uint8 = iota
	asks
	renews
	leaves
)

// A family is a state of the search.
type family struct {
	db      *memredis.DB
	players [players]player
	ticks   int
	losses  int  // replies that may still be lost
	lost    bool // a lease has ended, or a command was lost, so Redis may keep something for a lease
	path    string
}

const familyLease = 2 // ticks

var (
	permits = &lua.Semaphore{
		Free: lockName, Taken: wire.PermitsTaken(lockName), Declared: wire.PermitsDeclared(lockName),
		Announcement: lua.Announcement{Channel: wire.PermitChannel(lockName), Commands: []string{"PUBLISH"}},
	}
	playerNames = [players]string{"host", "guest", "further", "stranger"}
)

// TestFamilies_EachState searches all states of a semaphore with one permit, the guests of its holder,
// and a stranger. Commands are lost, come twice and late, leases end, and tokens come late. The
// stranger never has the permit beside one of the family, and gets it when all have left.
func TestFamilies_EachState(t *testing.T) {
	t.Parallel()
	runner := memredis.NewRunner()
	defer runner.Close()
	seen := make(map[string]bool)
	queue := []*family{{db: &memredis.DB{Now: now}, losses: 1}}
	if *full {
		queue[0].losses = 2
	}
	granted := 0
	for len(queue) > 0 {
		f := queue[0]
		queue = queue[1:]
		key := fmt.Sprint(f.db.Encode(), f.players, f.ticks, f.losses, f.lost)
		if seen[key] {
			continue
		}
		seen[key] = true
		if err := f.check(runner); err != nil {
			t.Fatalf("%v, after:%s\n%s", err, f.path, f.db)
		}
		if f.players[stranger].left > 0 {
			granted++
		}
		queue = append(queue, f.next(runner)...)
	}
	if granted == 0 {
		t.Error("the stranger never had the permit")
	}
	t.Logf("%d states", len(seen))
}

// run runs a command, and returns its reply.
func (f *family) run(runner *memredis.Runner, c lua.Call) any {
	args := c.EvalSHA()
	text := make([]string, len(args))
	for i, arg := range args {
		text[i] = fmt.Sprint(arg)
	}
	var keys int
	_, _ = fmt.Sscan(text[2], &keys) // it is a number
	return runner.Eval(f.db, c.Script.Source, text[3:3+keys], text[3+keys:])
}

func (f *family) of(p int) lua.Family {
	return lua.Family{Key: wire.PermitFamily(lockName, playerNames[host]), Owner: playerNames[host], Count: 1, Member: playerNames[p]}
}

const familyLeaseTime = familyLease * tick * time.Millisecond

// command returns the command of a player.
func (f *family) command(p int, what uint8) lua.Call {
	member := p == guest || p == further
	switch {
	case what == asks && member:
		return lua.EnterPermits(permits, f.of(p), playerNames[p-1], familyLeaseTime)
	case what == asks:
		return lua.AcquirePermits(permits, playerNames[p], 1, familyLeaseTime, lua.Declaration{Permits: 1})
	case what == renews && member:
		r := f.of(p)
		return lua.Renew([]lua.Renewable{{Key: permits.Taken, Field: r.Field(), Permits: 1, Family: r.Key}}, familyLeaseTime)
	case what == renews:
		return lua.Renew([]lua.Renewable{{Key: permits.Taken, Field: playerNames[p], Permits: 1}}, familyLeaseTime)
	case member || p == host && f.players[guest].asked: // the host knows whom it has let in
		return lua.LeavePermits(permits, f.of(p))
	}
	return lua.ReleasePermits(permits, playerNames[p], 1)
}

// agrees reports whether a reply grants, renews or frees.
func agrees(c lua.Call, what uint8, reply any) (bool, error) {
	switch what {
	case asks:
		answer, err := c.ReadAcquire(reply)
		return answer.Granted, err
	case renews:
		results, err := lua.ReadRenew(reply, 1)
		if err != nil {
			return false, err
		}
		return results[0].Renewed, results[0].Err
	}
	freed, _, err := c.ReadRelease(reply)
	return freed, err
}

func (f *family) clone(step string) *family {
	next := *f
	next.db, next.path = f.db.Clone(), f.path+"\n"+step
	return &next
}

// next returns the states after one more step.
func (f *family) next(runner *memredis.Runner) (all []*family) {
	for p := range players {
		was := &f.players[p]
		member := p == guest || p == further
		if !was.asked && (!member || f.players[p-1].asked) {
			all = append(all, f.act(runner, p, asks)...)
		}
		if was.left > 0 {
			all = append(all, f.act(runner, p, renews)...)
			all = append(all, f.act(runner, p, leaves)...)
		}
		if was.stray != noStray {
			next := f.clone(playerNames[p] + "'s latest command arrives again")
			next.run(runner, next.command(p, was.stray))
			next.players[p].stray, next.players[p].strays = noStray, 0
			all = append(all, next)
		}
	}
	if f.ticks < 4 {
		next := f.clone("a tick passes")
		next.tick()
		all = append(all, next)
	}
	return all
}

// act returns the states after a command of a player: it had an answer, or it had none and may have
// arrived or not, and may arrive again.
func (f *family) act(runner *memredis.Runner, p int, what uint8) (all []*family) {
	verb := [...]string{asks: "asks", renews: "renews", leaves: "leaves"}[what]
	answered := f.clone(playerNames[p] + " " + verb)
	answered.players[p].asked = true
	c := answered.command(p, what)
	yes, err := agrees(c, what, answered.run(runner, c))
	if err != nil {
		panic(err)
	}
	one := &answered.players[p]
	switch {
	case what == leaves:
		one.left, one.gone = 0, yes
	case yes:
		one.left = familyLease
	default:
		one.left = 0
	}
	all = append(all, answered)
	if f.losses == 0 {
		return all
	}
	for _, arrives := range []bool{false, true} {
		unanswered := f.clone(fmt.Sprintf("%s %s without an answer, arrived: %t", playerNames[p], verb, arrives))
		unanswered.lost = true
		unanswered.losses--
		one := &unanswered.players[p]
		one.asked = true
		if arrives {
			unanswered.run(runner, unanswered.command(p, what))
		}
		if one.stray, one.strays = what, familyLease; what != renews {
			one.left = 0 // who has no answer to a try believes in nothing
		}
		all = append(all, unanswered)
	}
	return all
}

func (f *family) tick() {
	f.ticks++
	f.db.Now += tick
	for p := range f.players {
		one := &f.players[p]
		if one.left > 0 {
			if one.left--; one.left == 0 {
				f.lost = true
			}
		}
		if one.strays > 0 {
			if one.strays--; one.strays == 0 {
				one.stray = noStray
			}
		}
	}
}

// check returns the promise that a state breaks.
func (f *family) check(runner *memredis.Runner) error {
	var believers []string
	over := true
	for p, one := range f.players {
		if one.left > 0 {
			believers = append(believers, playerNames[p])
		}
		over = over && one.left == 0
	}
	if f.players[stranger].left > 0 && len(believers) > 1 {
		return fmt.Errorf("%s have the permit", strings.Join(believers, " and "))
	}
	free, taken := f.db.Value(permits.Free), len(f.db.Elements(permits.Taken))
	if n := 0; free != "" {
		if _, err := fmt.Sscan(free, &n); err != nil || n+taken != 1 {
			return fmt.Errorf("%s permits are free and %d are taken, want 1 in all", free, taken)
		}
	}
	if !over {
		return nil
	}
	later := f.clone("")
	if f.lost {
		later.db.Now += 2 * familyLease * tick // what is left ends with the lease
	}
	c := lua.AcquirePermits(permits, "another", 1, familyLeaseTime, lua.Declaration{Permits: 1})
	if answer, err := c.ReadAcquire(later.run(runner, c)); err != nil || !answer.Granted {
		return fmt.Errorf("nobody has the permit, and another does not get it: %+v, %v", answer, err)
	}
	return nil
}
