package worlds

import (
	"fmt"
	"strings"
)

// ownerName names an owner in a trace.
func (m *Model) ownerName(o int) string {
	return fmt.Sprintf("%c%d", 'A'+rune(m.client(o)), o+1)
}

func (m *Model) describeMessage(msg message) string {
	var b strings.Builder
	if msg.role == stray {
		b.WriteString("stray ")
	}
	fmt.Fprintf(&b, "%s", msg.op)
	if msg.op == opForce {
		fmt.Fprintf(&b, " of %v", m.forced(msg.command))
	} else {
		fmt.Fprintf(&b, " of %s (%s)", m.wireName(msg.from), m.ownerName(ownerOf(msg.from)))
	}
	if msg.op == opPass || msg.op == opEnter {
		fmt.Fprintf(&b, " to %s (%s)", m.wireName(msg.to), m.ownerName(ownerOf(msg.to)))
	}
	switch msg.op {
	case opUpdate, opRecord, opAcquire, opEnter:
		if m.Kind == ReadWrite {
			fmt.Fprintf(&b, ", %d write and %d read levels", msg.excl, msg.shared)
		} else if !msg.op.asks() {
			fmt.Fprintf(&b, ", %d levels", msg.excl)
		}
	}
	if msg.lease > 0 {
		fmt.Fprintf(&b, ", lease %d", msg.lease)
	}
	if msg.op == opAcquire && msg.notAfter != never {
		fmt.Fprintf(&b, ", queues up within %d", msg.notAfter)
	}
	if msg.age > 0 {
		fmt.Fprintf(&b, ", sent %d ago", msg.age)
	}
	if msg.reply != none {
		fmt.Fprintf(&b, ", reply %s", msg.reply)
	}
	return b.String()
}

// standing says where an owner stands.
func (own *owner) standing() string {
	switch {
	case own.dead:
		return "dead"
	case own.wait.Waits():
		return own.wait.String()
	case own.idle():
		return "idle"
	}
	return own.hold.State().String()
}

// Describe prints a state: the owners, the messages in flight, and the content of Redis.
func (m *Model) Describe(s State) string {
	var b strings.Builder
	for o := range m.Clients {
		own := &s.owners[o]
		fmt.Fprintf(&b, "%s %s", m.ownerName(o), own.standing())
		if own.uses[0] == current {
			fmt.Fprintf(&b, " as %s", m.wireName(wireOf(o, 0)))
		}
		if own.holds() {
			fmt.Fprintf(&b, " for %d, %d+%d levels", own.left, own.excl(), own.shared())
		}
		for _, flag := range []struct {
			is   bool
			name string
		}{{own.robbed, "robbed"}, {own.forced, "forced"}, {own.deaf, "deaf"}, {own.frozen, "frozen"}, {own.slow, "slow"}, {own.earlier.There, "has a place"}, {own.reads, "reads"}} {
			if flag.is {
				b.WriteString(", " + flag.name)
			}
		}
		if own.uses[spare] == unclean {
			fmt.Fprintf(&b, ", has to clean up %s", m.wireName(wireOf(o, spare)))
		}
		b.WriteString("; ")
	}
	for _, msg := range s.messages[:s.n] {
		fmt.Fprintf(&b, "\non its way: %s", m.describeMessage(msg))
	}
	b.WriteString("\n" + m.db(s.redis).String())
	return b.String()
}
