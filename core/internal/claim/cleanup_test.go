package claim

import (
	"testing"
	"time"
)

var (
	answered = CleanupReply{Sure: true, Heard: true}
	refused  = CleanupReply{Sure: true, Failed: true, Heard: true}
	silence  = CleanupReply{Sure: true, Failed: true} // the command did not reach Redis
	lost     = CleanupReply{Failed: true}             // it may have
	wrong    = CleanupReply{Sure: true, Failed: true, Heard: true, Ended: true}
	lostOnce = CleanupReply{Heard: true} // answered after a try that was lost
)

// A clean-up that may have strays is done a time-out after Redis first answers again.
func TestCleanup_Settle(t *testing.T) {
	t.Parallel()
	const timeout = time.Second
	type try struct {
		at    time.Duration
		reply CleanupReply
		done  bool
	}
	there, stray, coming := Leftovers{There: true}, Leftovers{There: true, Stray: true}, Leftovers{Stray: true}
	for name, test := range map[string]struct {
		left  Leftovers
		tries []try
	}{
		"nothing to wait for":                 {there, []try{{0, answered, true}}},
		"a wrong kind is an answer":           {there, []try{{0, wrong, true}}},
		"a refusal, then an answer":           {there, []try{{0, refused, false}, {1, answered, true}}},
		"strays":                              {stray, []try{{0, answered, false}, {500, answered, false}, {1000, answered, true}}},
		"strays, and Redis answers":           {coming, []try{{999, answered, false}, {1000, answered, true}}},
		"its own try is lost":                 {there, []try{{0, lost, false}, {100, answered, false}, {1099, answered, false}, {1100, answered, true}}},
		"lost long ago":                       {there, []try{{0, lost, false}, {5000, answered, false}, {6000, answered, true}}},
		"lost again":                          {stray, []try{{0, answered, false}, {900, lost, false}, {1000, answered, false}, {2000, answered, true}}},
		"an answer after a lost try":          {there, []try{{0, lostOnce, false}, {1000, answered, true}}},
		"a refusal does not start the wait":   {stray, []try{{0, refused, false}, {500, answered, false}, {1000, answered, false}, {1500, answered, true}}},
		"a refusal does not restart the wait": {stray, []try{{0, answered, false}, {900, refused, false}, {1000, answered, true}}},
	} {
		t.Run(name, func(t *testing.T) {
			began := time.Now()
			c, pause := NewCleanup(test.left, began, time.Hour, timeout)
			if late := pause == timeout; late == test.left.There {
				t.Errorf("the first attempt is in %s", pause)
			}
			for _, try := range test.tries {
				v := c.After(began.Add(try.at*time.Millisecond), timeout, try.reply)
				if v.Done != try.done || !v.Done && (v.Pause <= 0 || v.Pause > timeout) || v.GivenUp {
					t.Fatalf("after %d ms: %+v, want done %v", try.at, v, try.done)
				}
			}
		})
	}
}

// An outage may hold a stray back until Redis answers. Its hold lasts for the lease after that.
func TestCleanup_Expires(t *testing.T) {
	t.Parallel()
	const lease, timeout = 10 * time.Second, time.Second
	type try struct {
		at      time.Duration
		reply   CleanupReply
		expired bool
	}
	there, stray := Leftovers{There: true}, Leftovers{There: true, Stray: true}
	for name, test := range map[string]struct {
		left  Leftovers
		tries []try
	}{
		"no strays":                  {there, []try{{9, silence, false}, {11, silence, true}}},
		"no answer":                  {stray, []try{{9, silence, false}, {100, silence, false}, {1000, silence, false}}},
		"a refusal after the outage": {stray, []try{{100, silence, false}, {110, refused, false}, {112, refused, true}}},
		"a refusal all the time":     {stray, []try{{9, refused, false}, {11, refused, true}}},
		"a late answer":              {stray, []try{{11, answered, false}}},
	} {
		t.Run(name, func(t *testing.T) {
			began := time.Now()
			c, _ := NewCleanup(test.left, began, lease, timeout)
			for _, try := range test.tries {
				if v := c.After(began.Add(try.at*time.Second), timeout, try.reply); v.GivenUp != try.expired {
					t.Errorf("after %d s: %+v, want given up %v", try.at, v, try.expired)
				}
			}
		})
	}
}
