package redistest

import (
	"bufio"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"
)

// Action says what happens to a command that a rule has picked. Several rules may pick the same
// command. Then CutBefore beats ReplyWith, which beats all others, and the others add up.
type Action struct {
	kind  actionKind
	delay time.Duration
	reply []byte
}

type actionKind int

const (
	dropReply actionKind = iota + 1
	cutBefore
	cutAfter
	holdRequest
	holdReply
	delayReply
	replyWith
)

var (
	// DropReply lets Redis execute the command and drops the reply. The connection stays open, but
	// the client gets nothing more on it, because it could not tell later replies from the lost
	// one.
	DropReply = Action{kind: dropReply}

	// CutBefore closes the connection instead of forwarding the command. Redis sees neither it nor
	// later commands of the same pipeline. Earlier ones are executed and answered first.
	CutBefore = Action{kind: cutBefore}

	// CutAfter lets Redis execute the command, then closes the connection without a reply. Earlier
	// commands of the same pipeline are answered first; later ones never reach Redis.
	CutAfter = Action{kind: cutAfter}

	// HoldRequest holds the command, and later ones of the same connection, until [Rule.Release],
	// then forwards it. It does so even if the client has hung up or [Proxy.Cut] has closed its
	// connection: the command arrives late, as a stray. Its reply is delivered if the client is
	// still connected.
	HoldRequest = Action{kind: holdRequest}

	// HoldReply lets Redis execute the command and holds its reply, and later ones of the same
	// connection, until [Rule.Release].
	HoldReply = Action{kind: holdReply}
)

// Delay delivers the reply d after its arrival. Later replies on the same connection wait. It
// panics if d is not positive.
func Delay(d time.Duration) Action {
	if d <= 0 {
		panic(fmt.Sprintf("redistest: Delay(%v): must be longer than 0", d))
	}
	return Action{kind: delayReply, delay: d}
}

// ReplyWith answers the command with raw instead of forwarding it, after the replies to earlier
// commands. It panics if raw is not one or more complete RESP replies, such as
// "-TRYAGAIN busy\r\n".
func ReplyWith(raw string) Action {
	in := respReader{in: bufio.NewReader(strings.NewReader(raw))}
	_, err := in.reply()
	for err == nil {
		if _, err = in.reply(); err == io.EOF {
			return Action{kind: replyWith, reply: []byte(raw)}
		}
	}
	panic(fmt.Sprintf(`redistest: ReplyWith(%q): %v; want whole replies, such as "-TRYAGAIN busy\r\n"`, raw, err))
}

// Rule is an instruction to the proxy. It is safe for concurrent use.
type Rule struct {
	book   *ruleBook
	action Action

	// Guarded by the mutex of the book.
	match func(args []string) bool // nil: published messages
	// The rule triggers when it reaches 0; for messages: how many to drop; < 0: always.
	left int
	owed int // held commands that Redis has not answered

	hit, released, done            chan struct{}
	hitOnce, releaseOnce, doneOnce sync.Once
}

// Hit returns a channel that is closed when the rule first triggers. DropReply, CutAfter, HoldReply
// and Delay trigger when the reply arrives at the proxy, so Redis has executed the command;
// SwallowMessages at the first message; the others when the command arrives.
func (r *Rule) Hit() <-chan struct{} { return r.hit }

// Release releases what HoldRequest or HoldReply holds, now and from now on.
func (r *Rule) Release() { r.releaseOnce.Do(func() { close(r.released) }) }

// Done returns a channel that is closed when Redis has answered everything that HoldRequest held.
// It stays open if Redis dies first.
func (r *Rule) Done() <-chan struct{} { return r.done }

// Remove disarms the rule for later commands and messages. What it holds stays held until Release.
func (r *Rule) Remove() { r.book.remove(r) }

func (r *Rule) tookHold() { r.hitOnce.Do(func() { close(r.hit) }) }

// ruleBook is the list of armed rules.
type ruleBook struct {
	mu       sync.Mutex
	commands []*Rule
	messages []*Rule
}

func (b *ruleBook) newRule(match func([]string) bool, n int, do Action) *Rule {
	return &Rule{
		book: b, action: do, match: match, left: n,
		hit: make(chan struct{}), released: make(chan struct{}), done: make(chan struct{}),
	}
}

func (b *ruleBook) onCommand(match func([]string) bool, n int, do Action) *Rule {
	if do.kind == 0 {
		panic("redistest: the zero Action is invalid: want DropReply, CutBefore, Delay(...) ...")
	}
	if match == nil {
		panic("redistest: a rule without a match function")
	}
	r := b.newRule(match, n, do)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.commands = append(b.commands, r)
	return r
}

func (b *ruleBook) onMessage(n int) *Rule {
	if n == 0 {
		panic("redistest: SwallowMessages(0): want the number of messages, or -1 for all")
	}
	r := b.newRule(nil, n, Action{})
	b.mu.Lock()
	defer b.mu.Unlock()
	b.messages = append(b.messages, r)
	return r
}

// take counts a command for every rule and returns those that it triggers, in the order they were
// armed.
func (b *ruleBook) take(args []string) []*Rule {
	b.mu.Lock()
	defer b.mu.Unlock()
	var taken []*Rule
	for _, r := range slices.Clone(b.commands) {
		if !r.match(args) {
			continue
		}
		if r.left > 0 {
			if r.left--; r.left > 0 {
				continue
			}
			b.drop(r)
		}
		taken = append(taken, r)
	}
	return taken
}

// swallows reports whether to drop a message that has just arrived.
func (b *ruleBook) swallows() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.messages) == 0 {
		return false
	}
	r := b.messages[0]
	if r.left > 0 {
		if r.left--; r.left == 0 {
			b.drop(r)
		}
	}
	r.tookHold()
	return true
}

// owe records a command that the rule holds; settle records that Redis has answered it.
func (b *ruleBook) owe(r *Rule) {
	b.mu.Lock()
	defer b.mu.Unlock()
	r.owed++
}

func (b *ruleBook) settle(r *Rule) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if r.owed--; r.owed == 0 {
		r.doneOnce.Do(func() { close(r.done) })
	}
}

func (b *ruleBook) remove(r *Rule) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.drop(r)
}

func (b *ruleBook) drop(r *Rule) {
	is := func(other *Rule) bool { return other == r }
	b.commands = slices.DeleteFunc(b.commands, is)
	b.messages = slices.DeleteFunc(b.messages, is)
}
