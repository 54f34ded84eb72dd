package histories

import (
	"strings"
	"testing"
	"time"
)

// Check rejects a history with a defect, and accepts the same one without it.
func TestCheck(t *testing.T) {
	t.Parallel()
	ms := int64(time.Millisecond)
	call := func(what What, hold string, begin, end int64, change func(*Call)) Call {
		process := int(hold[0])
		c := Call{Process: process, Name: "a", Kind: "lock", Hold: hold, Owner: hold, What: what, Begin: begin * ms, End: end * ms}
		if what == Acquire {
			c.Result = Granted
		} else {
			c.Result, c.Valid = Released, begin*ms
		}
		if change != nil {
			change(&c)
		}
		return c
	}
	result := func(r Result) func(*Call) { return func(c *Call) { c.Result = r } }
	token := func(n uint64) func(*Call) { return func(c *Call) { c.Kind, c.Token = "fenced", n } }
	reads := func(c *Call) { c.Kind = "read" }
	lost := func(valid int64) func(*Call) { return func(c *Call) { c.Result, c.Valid = Lost, valid*ms } }
	permits := func(takes int) func(*Call) {
		return func(c *Call) { c.Kind, c.Takes, c.Permits = "semaphore", takes, 3 }
	}
	waits := func(change func(*Call)) func(*Call) {
		return func(c *Call) {
			c.Wait = 500 * time.Millisecond
			if change != nil {
				change(c)
			}
		}
	}
	of := func(owner string) func(*Call) { return func(c *Call) { c.Owner = owner } }
	leaves := func(record string) func(*Call) { return func(c *Call) { c.Record = record } }
	finds := func(record string) func(*Call) { return func(c *Call) { c.Result, c.Record = Found, record } }
	fault := func(loss Loss, begin, end int64) Fault {
		return Fault{What: "a fault", Loss: loss, Begin: begin * ms, End: end * ms}
	}

	for name, test := range map[string]struct {
		calls  []Call
		faults []Fault
		says   string // "": the history is right
	}{
		"one after another": {calls: []Call{
			call(Acquire, "a", 1, 2, nil), call(Release, "a", 3, 4, nil), call(Acquire, "b", 5, 6, nil), call(Release, "b", 7, 8, nil)}},
		"a waiter is granted while the holder releases": {calls: []Call{
			call(Acquire, "a", 1, 2, nil), call(Acquire, "b", 1, 7, nil), call(Release, "a", 6, 8, nil), call(Release, "b", 9, 10, nil)}},
		"two holders": {says: "no order", calls: []Call{
			call(Acquire, "a", 1, 2, nil), call(Acquire, "b", 3, 4, nil), call(Release, "a", 5, 6, nil), call(Release, "b", 7, 8, nil)}},
		"two readers": {calls: []Call{
			call(Acquire, "a", 1, 2, reads), call(Acquire, "b", 3, 4, reads), call(Release, "a", 5, 6, reads), call(Release, "b", 7, 8, reads)}},
		"a reader and a writer": {says: "no order", calls: []Call{
			call(Acquire, "a", 1, 2, reads), call(Acquire, "b", 3, 4, nil), call(Release, "a", 5, 6, reads), call(Release, "b", 7, 8, nil)}},
		"three permits of three": {calls: []Call{
			call(Acquire, "a", 1, 2, permits(1)), call(Acquire, "b", 3, 4, permits(2)), call(Release, "a", 5, 6, permits(1)),
			call(Acquire, "c", 7, 8, permits(1)), call(Release, "b", 9, 10, permits(2)), call(Release, "c", 9, 10, permits(1))}},
		"four permits of three": {says: "no order", calls: []Call{
			call(Acquire, "a", 1, 2, permits(1)), call(Acquire, "b", 3, 4, permits(2)), call(Acquire, "c", 7, 8, permits(1)),
			call(Release, "a", 9, 10, permits(1)), call(Release, "b", 9, 10, permits(2)), call(Release, "c", 9, 10, permits(1))}},
		"four permits of three, one of them lost before": {calls: []Call{
			call(Acquire, "a", 1, 2, permits(1)), call(Acquire, "b", 3, 4, permits(2)), call(Acquire, "c", 7, 8, permits(1)),
			call(Release, "a", 9, 10, func(c *Call) { permits(1)(c); lost(6)(c) }), call(Release, "b", 9, 10, permits(2)), call(Release, "c", 9, 10, permits(1))}},
		"refused two permits while one is free": {calls: []Call{
			call(Acquire, "a", 1, 2, permits(2)), call(Acquire, "b", 3, 4, func(c *Call) { permits(2)(c); c.Result = Refused }), call(Release, "a", 5, 6, permits(2))}},
		"refused a permit while one is free": {says: "no order", calls: []Call{
			call(Acquire, "a", 1, 2, permits(2)), call(Acquire, "b", 3, 4, func(c *Call) { permits(1)(c); c.Result = Refused }), call(Release, "a", 5, 6, permits(2))}},
		"a waiter beside a free permit": {says: "too long", calls: []Call{
			call(Acquire, "a", 1, 2, permits(3)), call(Acquire, "b", 3, 200, waits(permits(2))), call(Release, "a", 5, 6, permits(3)), call(Release, "b", 201, 202, permits(2))}},
		"a waiter beside too few free permits": {calls: []Call{
			call(Acquire, "a", 1, 2, permits(2)), call(Acquire, "b", 3, 200, waits(permits(2))), call(Release, "a", 198, 199, permits(2)), call(Release, "b", 201, 202, permits(2))}},
		"waiters behind one that wants more": {calls: []Call{
			call(Acquire, "a", 1, 2, permits(2)), call(Acquire, "b", 3, 200, waits(permits(2))), call(Acquire, "c", 4, 202, waits(permits(1))),
			call(Release, "a", 198, 199, permits(2)), call(Release, "b", 205, 206, permits(2)), call(Release, "c", 205, 206, permits(1))}},
		"permits that others take in turn": {calls: []Call{
			call(Acquire, "a", 1, 2, permits(3)), call(Acquire, "w", 3, 120, waits(permits(3))), call(Release, "a", 40, 41, permits(3)),
			call(Acquire, "b", 60, 61, permits(1)), call(Release, "b", 100, 101, permits(1)), call(Release, "w", 151, 152, permits(3))}},
		"permits that others take in turn for too long": {says: "too long", calls: []Call{
			call(Acquire, "a", 1, 2, permits(3)), call(Acquire, "w", 3, 150, waits(permits(3))), call(Release, "a", 40, 41, permits(3)),
			call(Acquire, "b", 60, 61, permits(1)), call(Release, "b", 100, 101, permits(1)), call(Release, "w", 151, 152, permits(3))}},
		"a waiter beside a free lock": {says: "too long", calls: []Call{
			call(Acquire, "a", 1, 2, nil), call(Acquire, "b", 3, 200, waits(nil)), call(Release, "a", 5, 6, nil), call(Release, "b", 201, 202, nil)}},
		"a waiter beside a free lock after a fault": {faults: []Fault{fault(Nothing, 100, 101)}, calls: []Call{
			call(Acquire, "a", 1, 2, nil), call(Acquire, "b", 3, 200, waits(nil)), call(Release, "a", 5, 6, nil), call(Release, "b", 201, 202, nil)}},
		"one owner twice": {calls: []Call{
			call(Acquire, "a", 1, 2, nil), call(Acquire, "b", 3, 4, of("a")), call(Release, "b", 5, 6, of("a")), call(Release, "a", 7, 8, nil)}},
		"a guest stays when its host has left": {calls: []Call{
			call(Acquire, "a", 1, 2, nil), call(Acquire, "b", 3, 4, of("a")), call(Release, "a", 5, 6, of("a")), call(Release, "b", 7, 8, of("a")),
			call(Acquire, "c", 9, 10, nil), call(Release, "c", 11, 12, nil)}},
		"a stranger beside a guest whose host has left": {says: "no order", calls: []Call{
			call(Acquire, "a", 1, 2, nil), call(Acquire, "b", 3, 4, of("a")), call(Release, "a", 5, 6, of("a")),
			call(Acquire, "c", 7, 8, nil), call(Release, "b", 9, 10, of("a")), call(Release, "c", 11, 12, nil)}},
		"a stranger beside a host whose guest has left": {says: "no order", calls: []Call{
			call(Acquire, "a", 1, 2, nil), call(Acquire, "b", 3, 4, of("a")), call(Release, "b", 5, 6, of("a")),
			call(Acquire, "c", 7, 8, nil), call(Release, "a", 9, 10, of("a")), call(Release, "c", 11, 12, nil)}},
		"a stranger after a guest whose host was killed": {calls: []Call{
			call(Acquire, "a", 1, 2, nil), call(Acquire, "b", 3, 4, of("a")), call(Release, "b", 5, 6, of("a")),
			call(Acquire, "c", 7, 8, nil), call(Release, "c", 11, 12, nil)}},
		"a stranger beside a guest whose host was lost": {says: "no order", calls: []Call{
			call(Acquire, "a", 1, 2, nil), call(Acquire, "b", 3, 4, of("a")), call(Release, "a", 5, 6, func(c *Call) { of("a")(c); lost(4)(c) }),
			call(Acquire, "c", 7, 8, nil), call(Release, "b", 9, 10, of("a")), call(Release, "c", 11, 12, nil)}},
		"a grant between two levels": {says: "no order", calls: []Call{
			call(Acquire, "a", 1, 2, nil), call(Acquire, "b", 3, 4, of("a")), call(Release, "b", 5, 6, of("a")),
			call(Acquire, "c", 7, 8, nil), call(Release, "a", 9, 10, nil), call(Release, "c", 11, 12, nil)}},
		"a lease that was lost before the next grant": {calls: []Call{
			call(Acquire, "a", 1, 2, nil), call(Acquire, "b", 6, 7, nil), call(Release, "a", 9, 9, lost(5)), call(Release, "b", 10, 11, nil)}},
		"a lease that was valid after the next grant": {says: "no order", calls: []Call{
			call(Acquire, "a", 1, 2, nil), call(Acquire, "b", 6, 7, nil), call(Release, "a", 9, 9, lost(8)), call(Release, "b", 10, 11, nil)}},
		"a lease that was lost at once": {calls: []Call{
			call(Acquire, "a", 1, 5, nil), call(Acquire, "b", 4, 7, nil), call(Release, "a", 9, 9, lost(0)), call(Release, "b", 10, 11, nil)}},
		"a holder that was killed": {calls: []Call{
			call(Acquire, "a", 1, 2, nil), call(Acquire, "b", 6, 7, nil), call(Release, "b", 10, 11, nil)}},
		"a release that succeeds twice": {says: "no order", calls: []Call{
			call(Acquire, "a", 1, 2, nil), call(Acquire, "b", 3, 4, of("a")), call(Release, "b", 5, 6, lost(0)), call(Release, "a", 7, 8, nil),
			call(Acquire, "c", 4, 4, nil), call(Release, "c", 4, 5, nil)}},
		"a token twice": {says: "no order", calls: []Call{
			call(Acquire, "a", 1, 2, token(4)), call(Release, "a", 3, 4, token(4)), call(Acquire, "b", 5, 6, token(4)), call(Release, "b", 7, 8, token(4))}},
		"tokens that rise": {calls: []Call{
			call(Acquire, "a", 1, 2, token(4)), call(Release, "a", 3, 4, token(4)), call(Acquire, "b", 5, 6, token(9)), call(Release, "b", 7, 8, token(9))}},
		"another token of one hold": {says: "no order", calls: []Call{
			call(Acquire, "a", 1, 2, token(4)), call(Acquire, "b", 3, 4, func(c *Call) { token(5)(c); c.Owner = "a" }),
			call(Release, "b", 5, 6, nil), call(Release, "a", 7, 8, nil)}},
		"refused by a holder": {calls: []Call{
			call(Acquire, "a", 1, 2, nil), call(Acquire, "b", 3, 4, result(Refused)), call(Release, "a", 5, 6, nil)}},
		"refused by nothing": {says: "no order", calls: []Call{
			call(Acquire, "a", 1, 2, nil), call(Release, "a", 3, 4, nil), call(Acquire, "b", 5, 6, result(Refused))}},
		"refused while a lost lock may be there": {calls: []Call{
			call(Acquire, "a", 1, 2, nil), call(Release, "a", 3, 4, lost(2)), call(Acquire, "b", 5, 6, result(Refused))}},
		"refused after a command whose outcome is unknown": {calls: []Call{
			call(Acquire, "a", 1, 2, result(Failed)), call(Acquire, "b", 50, 60, result(Refused))}},
		"refused long after a command whose outcome is unknown": {says: "no order", calls: []Call{
			call(Acquire, "a", 1, 2, result(Failed)), call(Acquire, "b", 500, 600, result(Refused))}},
		"refused after a process was killed while it asked": {faults: []Fault{fault(Nothing, 20, 30)}, calls: []Call{
			call(Began, "a", 1, 0, nil), call(Acquire, "b", 120, 121, result(Refused))}},
		"a record": {calls: []Call{
			call(Acquire, "a", 1, 2, nil), call(Release, "a", 3, 4, leaves("r")), call(Acquire, "b", 5, 6, finds("r"))}},
		"a grant in spite of a record": {says: "no order", calls: []Call{
			call(Acquire, "a", 1, 2, nil), call(Release, "a", 3, 4, leaves("r")), call(Acquire, "b", 5, 6, nil), call(Release, "b", 7, 8, nil)}},
		"another record": {says: "no order", calls: []Call{
			call(Acquire, "a", 1, 2, nil), call(Release, "a", 3, 4, leaves("r")), call(Acquire, "b", 5, 6, finds("s"))}},
		"a record that was written late": {calls: []Call{
			call(Acquire, "a", 1, 2, nil), call(Release, "a", 3, 4, func(c *Call) { c.Result, c.Record = Failed, "r" }), call(Acquire, "b", 9, 10, finds("r"))}},
		"a record of a process that was killed while it left it": {faults: []Fault{fault(Nothing, 5, 6)}, calls: []Call{
			call(Acquire, "a", 1, 2, nil), call(Leaving, "a", 3, 0, func(c *Call) { c.Result, c.Record, c.Valid = "", "r", 3*ms }), call(Acquire, "b", 9, 10, finds("r"))}},
		"a grant in spite of a record of a process that was killed": {says: "no order", faults: []Fault{fault(Nothing, 5, 6)}, calls: []Call{
			call(Acquire, "a", 1, 2, nil), call(Leaving, "a", 3, 0, func(c *Call) { c.Result, c.Record, c.Valid = "", "r", 3*ms }),
			call(Acquire, "b", 9, 10, finds("r")), call(Acquire, "c", 11, 12, nil), call(Release, "c", 13, 14, nil)}},
		"all data is lost while the lock is held": {faults: []Fault{fault(All, 3, 4)}, calls: []Call{
			call(Acquire, "a", 1, 2, token(7)), call(Acquire, "b", 5, 6, token(1)), call(Release, "b", 7, 8, token(1)), call(Release, "a", 9, 9, lost(8))}},
		"two holders after all data is lost": {says: "no order", faults: []Fault{fault(All, 3, 4)}, calls: []Call{
			call(Acquire, "a", 5, 6, nil), call(Acquire, "b", 7, 8, nil), call(Release, "a", 9, 10, nil), call(Release, "b", 9, 10, nil)}},
		"a release that succeeds after all data is lost": {says: "no order", faults: []Fault{fault(All, 3, 4)}, calls: []Call{
			call(Acquire, "a", 1, 2, nil), call(Release, "a", 5, 6, nil)}},
		"a release whose first reply is lost after all data is lost": {faults: []Fault{fault(All, 3, 4), fault(Nothing, 5, 8)}, calls: []Call{
			call(Acquire, "a", 1, 2, nil), call(Release, "a", 6, 9, nil)}},
		"a lease outlives the data for too long": {says: "too long", faults: []Fault{fault(All, 3, 4)}, calls: []Call{
			call(Acquire, "a", 1, 2, nil), call(Release, "a", 70, 70, lost(60))}},
		"a record survives a failover that loses data": {faults: []Fault{fault(LastSome, 10, 20)}, calls: []Call{
			call(Acquire, "a", 1, 2, nil), call(Release, "a", 3, 4, leaves("r")), call(Acquire, "b", 21, 22, finds("r")), call(Acquire, "c", 23, 24, finds("r"))}},
		"two records survive a failover": {says: "no order", faults: []Fault{fault(LastSome, 10, 20)}, calls: []Call{
			call(Acquire, "a", 1, 2, nil), call(Release, "a", 3, 4, leaves("r")), call(Acquire, "b", 21, 22, finds("r")), call(Acquire, "c", 23, 24, finds("s"))}},
		"a grant in spite of a record that survived": {says: "no order", faults: []Fault{fault(LastSome, 10, 20)}, calls: []Call{
			call(Acquire, "a", 1, 2, nil), call(Release, "a", 3, 4, leaves("r")), call(Acquire, "b", 21, 22, finds("r")),
			call(Acquire, "c", 23, 24, nil), call(Release, "c", 25, 26, nil)}},
		"two holders across a failover that loses data": {faults: []Fault{fault(LastSome, 10, 20)}, calls: []Call{
			call(Acquire, "a", 1, 2, nil), call(Acquire, "b", 21, 22, nil), call(Release, "a", 23, 24, nil), call(Release, "b", 25, 26, nil)}},
		"a grant after a release that a failover interrupts": {faults: []Fault{fault(LastSome, 10, 20)}, calls: []Call{
			call(Acquire, "a", 1, 2, nil), call(Acquire, "b", 3, 9, nil), call(Release, "a", 7, 12, nil), call(Release, "b", 21, 22, nil)}},
		"two holders after a failover that loses data": {says: "no order", faults: []Fault{fault(LastSome, 10, 20)}, calls: []Call{
			call(Acquire, "a", 21, 22, nil), call(Acquire, "b", 23, 24, nil), call(Release, "a", 25, 26, nil), call(Release, "b", 27, 28, nil)}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := &History{Calls: test.calls, Faults: test.faults, Watchdog: 50 * time.Millisecond, Hidden: 100 * time.Millisecond, Prompt: 50 * time.Millisecond}
			violations, _ := Check(h)
			var text []string
			for _, v := range violations {
				text = append(text, v.String())
			}
			all := strings.Join(text, "\n")
			if test.says == "" && all != "" || !strings.Contains(all, test.says) {
				t.Errorf("violations: %q, want %q", all, test.says)
			}
		})
	}
}
