package redistest

import (
	"strings"
	"time"
)

// call is one command in flight: pending until Redis, or the proxy in its place, has answered it.
type call struct {
	name  string // upper case
	raw   []byte
	rules []*Rule

	own      bool   // answered by the proxy, never forwarded
	ownReply []byte // nil: close the connection instead
	replies  int    // still to come; see pubsub.go for more than one
	answered bool   // the first reply has arrived: Redis has executed it
}

func newCall(args []string, raw []byte, rules []*Rule) *call {
	c := &call{name: strings.ToUpper(args[0]), raw: raw, rules: rules, replies: repliesTo(args)}
	switch {
	case c.first(cutBefore) != nil:
		c.own = true
	case c.first(replyWith) != nil:
		c.own, c.ownReply = true, c.first(replyWith).action.reply
	case !understood(args):
		c.own, c.ownReply = true, []byte("-ERR redistest: the proxy cannot follow "+c.name+" here\r\n")
	}
	return c
}

// understood reports whether requests and replies still follow this command.
func understood(args []string) bool {
	switch strings.ToUpper(args[0]) {
	case "MONITOR", "SYNC", "PSYNC":
		return false
	case "CLIENT":
		return len(args) < 2 || !strings.EqualFold(args[1], "REPLY")
	}
	return true
}

// first returns the call's first rule with an action of this kind, or nil.
func (c *call) first(kind actionKind) *Rule {
	for _, r := range c.rules {
		if r.action.kind == kind {
			return r
		}
	}
	return nil
}

// all returns the call's rules with an action of this kind.
func (c *call) all(kind actionKind) (rules []*Rule) {
	for _, r := range c.rules {
		if r.action.kind == kind {
			rules = append(rules, r)
		}
	}
	return rules
}

// cuts reports whether the rest of the connection is dropped.
func (c *call) cuts() bool {
	return c.own && c.ownReply == nil || !c.own && c.first(cutAfter) != nil
}

// mustRun reports whether Redis must execute the call even when the client is gone.
func (c *call) mustRun() bool {
	return !c.own && (c.first(holdRequest) != nil || c.first(cutAfter) != nil)
}

// arrived triggers the rules that apply before Redis sees the command.
func (c *call) arrived() {
	for _, r := range c.rules {
		switch r.action.kind {
		case cutBefore, replyWith:
			r.tookHold()
		case holdRequest:
			if !c.own {
				r.book.owe(r)
				r.tookHold()
			}
		}
	}
}

// executed triggers the rules that apply once Redis has executed the command, and applies them to
// its first reply.
func (c *call) executed(raw []byte, now time.Time) (d delivery, deaf bool) {
	d.raw = raw
	for _, r := range c.rules {
		switch r.action.kind {
		case holdRequest:
			r.book.settle(r)
			continue
		case holdReply:
			d.holds = append(d.holds, r)
		case delayReply:
			d.due = now.Add(r.action.delay)
		case cutAfter:
			d.cut = true
		case dropReply:
			deaf = true
		}
		r.tookHold()
	}
	return d, deaf
}

// delivery is one step towards the client.
type delivery struct {
	raw   []byte
	holds []*Rule   // wait until these are released
	due   time.Time // wait until then; zero: now
	cut   bool      // close the connection instead of writing raw
}
