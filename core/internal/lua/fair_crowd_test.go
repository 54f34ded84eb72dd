package lua

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/reqlock/reqlock/internal/lab/redistest"
)

// A crowd is a fair lock that is held, with many waiters in the queue. All scripts are loaded.
type crowd struct {
	testing.TB
	rdb    *redis.Client
	lock   *Fair
	holder string
	// first and last are numbers of waiters in the queue.
	first, last int
	// size is how many waiters there are before each step.
	size int
}

func member(n int) string { return fmt.Sprintf("web-%d.4242.k3j9x2ab:%d", n%3, n) }

func newCrowd(t testing.TB, n int) *crowd {
	t.Helper()
	// The channels have no listeners, and nothing is done about that.
	c := &crowd{TB: t, rdb: redistest.Start(t).Client(t), lock: fairLock, holder: "web-9.1.k3j9x2ab:1"}
	for _, call := range []Call{AcquireFair(c.lock, c.holder, lease, 0, soon), ReleaseFair(c.lock, "x:1"), PassFair(c.lock, "x:1", "x:2", lease)} {
		c.run(call)
	}
	c.fill(n)
	return c
}

// fill makes n waiters queue up.
func (c *crowd) fill(n int) {
	c.Helper()
	now := c.rdb.Time(ctx()).Val()
	for c.last = 0; c.last < n; {
		pipe := c.rdb.Pipeline()
		for range min(1000, n-c.last) {
			c.last++
			pipe.RPush(ctx(), queue, member(c.last))
			pipe.Do(ctx(), "ZADD", deadlines, now.Add(time.Duration(c.last)*budget).UnixMilli(), member(c.last))
		}
		if _, err := pipe.Exec(ctx()); err != nil {
			c.Fatal(err)
		}
	}
	c.first, c.size = 1, n
}

func (c *crowd) run(call Call) any {
	c.Helper()
	reply, err := eval(c.rdb, call)
	if err != nil {
		c.Fatalf("%s: %v", call.Script.Name, err)
	}
	return reply
}

func (c *crowd) try(n int) Call { return AcquireFair(c.lock, member(n), lease, asLong, soon) }

func (c *crowd) leave(n int) Call { return ReleaseFair(c.lock, member(n)) }

// turn releases the lock, and the first in the queue takes it.
func (c *crowd) turn() {
	c.Helper()
	c.run(ReleaseFair(c.lock, c.holder))
	if reply := c.run(c.try(c.first)); reply != int64(1) {
		c.Fatalf("%d, the first in the queue, does not get the lock: %v", c.first, reply)
	}
	c.granted()
}

// pass hands the lock over to the first in the queue.
func (c *crowd) pass() {
	c.Helper()
	if reply := c.run(PassFair(c.lock, c.holder, member(c.first), lease)); reply != int64(1) {
		c.Fatalf("the lock is not handed over to %d, the first in the queue: %v", c.first, reply)
	}
	c.granted()
}

func (c *crowd) granted() {
	c.holder = member(c.first)
	c.first++
}

func (c *crowd) join() {
	c.Helper()
	c.last++
	c.run(c.try(c.last))
}

// A crowdStep is a call or two that a waiter or the holder makes.
type crowdStep struct {
	name string
	do   func(c *crowd)
}

var crowdSteps = []crowdStep{
	{"turn", (*crowd).turn},
	{"hand-over", (*crowd).pass},
	{"join", (*crowd).join},
	{"poll of the first", func(c *crowd) { c.run(c.try(c.first)) }},
	{"poll from the middle", func(c *crowd) { c.run(c.try((c.first + c.last) / 2)) }},
	{"poll of the last", func(c *crowd) { c.run(c.try(c.last)) }},
	{"the first leaves", func(c *crowd) { c.run(c.leave(c.first)); c.first++ }},
	{"the last leaves", func(c *crowd) { c.run(c.leave(c.last)); c.last-- }},
	{"one leaves that is not there", func(c *crowd) { c.run(c.leave(c.last + 1)) }},
}

// The walk through the list grows with the queue: by about 15 ns for each waiter.
var fromTheMiddle = crowdStep{"one leaves from the middle", func(c *crowd) {
	now := c.rdb.Time(ctx()).Val()
	c.rdb.LInsertBefore(ctx(), queue, member((c.first+c.last)/2), "a:1")
	c.rdb.ZAdd(ctx(), deadlines, redis.Z{Score: float64(now.Add(time.Duration(c.first+c.last) / 2 * budget).UnixMilli()), Member: "a:1"})
	c.rdb.ConfigResetStat(ctx())
	c.run(ReleaseFair(c.lock, "a:1"))
}}

// stats returns how often a command has run since c.rdb.ConfigResetStat, in scripts too, and how
// long that took.
func (c *crowd) stats(command string) (calls int, took time.Duration) {
	c.Helper()
	for line := range strings.Lines(c.rdb.Info(ctx(), "commandstats").Val()) {
		if rest, ok := strings.CutPrefix(line, "cmdstat_"+command+":"); ok {
			var usec float64
			if _, err := fmt.Sscanf(rest, "calls=%d,usec=%f", &calls, &usec); err != nil {
				c.Fatal(err)
			}
			return calls, time.Duration(usec * float64(time.Microsecond))
		}
	}
	return 0, 0
}

// cost returns the median of the times that Redis works on a step, as it counts them itself.
func (c *crowd) cost(step crowdStep) time.Duration {
	c.Helper()
	costs := make([]time.Duration, 15)
	for i := range costs {
		c.rdb.ConfigResetStat(ctx())
		step.do(c)
		_, costs[i] = c.stats("evalsha")
		for c.last-c.first+1 < c.size {
			c.join()
		}
	}
	slices.Sort(costs)
	return costs[len(costs)/2]
}

// What the scripts do does not grow with the number of waiters. A search through this queue would
// take Redis ten times as long.
func TestFairCrowd_CostsTheSame(t *testing.T) {
	t.Parallel()
	few, many := newCrowd(t, 100), newCrowd(t, 20_000)
	for _, step := range crowdSteps {
		alone, among := few.cost(step), many.cost(step)
		t.Logf("%s: %v, and %v among thousands", step.name, alone, among)
		if among > 4*alone+20*time.Microsecond {
			t.Errorf("%s: Redis works for %v, and for %v among thousands", step.name, alone, among)
		}
	}
}

// Waiters that leave together are searched together, wherever they are in the queue. The others keep
// their order.
func TestFairCrowd_LeavesTogether(t *testing.T) {
	t.Parallel()
	const n = 3000
	c := newCrowd(t, n)
	all := rand.Perm(n)
	var left []string
	for len(all) > MostJoined {
		var calls []Call
		for _, i := range all[:MostJoined] {
			calls = append(calls, c.leave(i+1))
		}
		all = all[MostJoined:]
		c.rdb.ConfigResetStat(ctx())
		for range 2 { // a repeat
			c.run(Join(calls))
		}
		if removes, _ := c.stats("lrem"); removes != 1 {
			t.Errorf("%d searches for %d waiters", removes, len(calls))
		}
		left = left[:0]
		for i := 1; i <= n; i++ {
			if slices.Contains(all, i-1) {
				left = append(left, member(i))
			}
		}
		if got := c.rdb.LRange(ctx(), queue, 0, -1).Val(); !slices.Equal(got, left) {
			t.Fatalf("%d in the queue, want %d, in their order", len(got), len(left))
		}
		if got := c.rdb.ZCard(ctx(), deadlines).Val(); got != int64(len(left)) {
			t.Errorf("%d deadlines, want %d", got, len(left))
		}
	}
}

// Waiters that leave together leave completely, also if a key was lost before.
func TestFairCrowd_LeavesAfterALoss(t *testing.T) {
	t.Parallel()
	for _, lost := range []string{queue, deadlines} {
		t.Run(lost, func(t *testing.T) {
			t.Parallel()
			c := newCrowd(t, 50)
			c.rdb.Del(ctx(), lost)
			c.run(c.try(7)) // it gets back what it has lost
			c.rdb.RPush(ctx(), queue, member(3))
			var calls []Call
			for n := 1; n <= 50; n++ {
				calls = append(calls, c.leave(n))
			}
			c.run(Join(calls))
			if keys := c.rdb.Keys(ctx(), "*").Val(); !slices.Equal(keys, []string{key}) {
				t.Errorf("left: %q", keys)
			}
		})
	}
}

// A waiter far back in the queue is told about where it is. It has a budget for each waiter before it
// that was there when it came, or for a hundred of them if its deadline was nearly over. Once it is
// among the first hundred, its deadline is exact.
func TestFairCrowd_FarBack(t *testing.T) {
	t.Parallel()
	const n = 1000
	c := newCrowd(t, n)
	for _, i := range []int{1, 100, 101, 700, n} {
		if told := c.place(i); told != i {
			t.Errorf("%d is told that it is number %d in the queue", i, told)
		}
	}
	leave := func(from, to int) {
		var calls []Call
		for i := from; i <= to; i++ {
			calls = append(calls, c.leave(i))
		}
		c.run(Join(calls))
	}
	left := func(i int) time.Duration {
		return time.UnixMilli(int64(c.rdb.ZScore(ctx(), deadlines, member(i)).Val())).Sub(c.rdb.Time(ctx()).Val())
	}
	leave(1, 300)
	for range 3 { // the others have later deadlines than they need
		c.place(n)
	}
	if least := 700*budget - time.Minute; left(n) < least {
		t.Errorf("the 700th counts as dead in %v, want at least %v", left(n), least)
	}
	for _, i := range []int{700, n} {
		soon := c.rdb.Time(ctx()).Val().Add(budget).UnixMilli()
		if err := c.rdb.Do(ctx(), "ZADD", deadlines, soon, member(i)).Err(); err != nil {
			t.Fatal(err)
		}
		c.place(i)
		if least := batch*budget - time.Minute; left(i) < least {
			t.Errorf("%d counts as dead in %v, want at least %v", i, left(i), least)
		}
	}
	leave(301, 990)
	c.place(n)
	if most := 10 * budget; left(n) > most || left(n) < most-time.Minute {
		t.Errorf("the tenth counts as dead in %v, want %v", left(n), most)
	}
}

// place returns the place in the queue that a waiter is told.
func (c *crowd) place(n int) int {
	c.Helper()
	call := c.try(n)
	answer, err := call.ReadAcquire(c.run(call))
	if err != nil || answer.Granted {
		c.Fatalf("%d: %+v, %v", n, answer, err)
	}
	return answer.Place
}

// BenchmarkFairCrowd measures how long Redis works, on what waiters do one by one and together. The
// time per operation that Go prints says nothing.
func BenchmarkFairCrowd(b *testing.B) {
	for _, n := range []int{100, 1000, 5000} {
		for _, step := range append(crowdSteps, fromTheMiddle) {
			b.Run(step.name+"/"+strconv.Itoa(n), func(b *testing.B) {
				c := newCrowd(b, n)
				for b.Loop() {
					b.ReportMetric(float64(c.cost(step).Nanoseconds())/1000, "us")
				}
			})
		}
		for _, joined := range []int{1, 20, 100, MostJoined} {
			b.Run(fmt.Sprintf("all leave by %d/%d", joined, n), func(b *testing.B) {
				c := newCrowd(b, 0)
				for b.Loop() {
					c.fill(n)
					c.rdb.ConfigResetStat(ctx())
					for group := range slices.Chunk(rand.Perm(n), joined) {
						calls := make([]Call, len(group))
						for i, member := range group {
							calls[i] = c.leave(member + 1)
						}
						c.run(Join(calls))
					}
					_, took := c.stats("evalsha")
					b.ReportMetric(float64(took.Nanoseconds())/1000/float64(n), "us-each")
				}
			})
		}
	}
}
