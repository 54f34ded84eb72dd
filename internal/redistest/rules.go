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

// Action says what becomes of a command that a rule has picked. Several rules may pick the same command; then CutBefore
// goes before ReplyWith, which goes before everything else, and the rest adds up.
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
	// DropReply lets Redis execute the command and drops the reply. The connection stays open, but nothing reaches the
	// client on it any more: it could not tell later replies from the lost one.
	DropReply = Action{kind: dropReply}

	// CutBefore closes the connection instead of forwarding the command. Redis never sees it, nor what follows it in the
	// same pipeline. What came before it is executed and answered first.
	CutBefore = Action{kind: cutBefore}

	// CutAfter lets Redis execute the command, then closes the connection without a reply. What came before it in the same
	// pipeline is answered first; what follows it never reaches Redis.
	CutAfter = Action{kind: cutAfter}

	// HoldRequest keeps the command, and what follows it on the same connection, until [Rule.Release], then forwards it. It
	// does so even if the client has hung up or [Proxy.Cut] has closed its connection in the meantime: the command arrives
	// late, as a stray. Its reply is delivered if the client is still there.
	HoldRequest = Action{kind: holdRequest}

	// HoldReply lets Redis execute the command and keeps the reply, and what follows it on the same connection, until
	// [Rule.Release].
	HoldReply = Action{kind: holdReply}
)

// Delay has the reply delivered d after its arrival; what follows it on the same connection waits behind it. It panics if d
// is not positive.
func Delay(d time.Duration) Action {
	if d <= 0 {
		panic(fmt.Sprintf("redistest: Delay(%v): must be longer than 0", d))
	}
	return Action{kind: delayReply, delay: d}
}

// ReplyWith has the command answered with raw instead of forwarding it, after the replies to what was before it. It panics
// if raw is not one or more complete RESP replies, such as "-TRYAGAIN busy\r\n".
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

// Rule is one order to the proxy. It is safe for concurrent use.
type Rule struct {
	book   *ruleBook
	action Action

	// Guarded by the mutex of the book.
	match func(args []string) bool // nil: published messages
	left  int                      // takes hold when it gets to 0; in front of messages: how many to swallow; < 0: always
	owed  int                      // held commands that Redis has not answered

	hit, released, done            chan struct{}
	hitOnce, releaseOnce, doneOnce sync.Once
}

// Hit is closed when the rule first took hold: DropReply, CutAfter, HoldReply and Delay when the reply has arrived at the
// proxy, so Redis has executed the command; the others when the command arrives; SwallowMessages at the first message.
func (r *Rule) Hit() <-chan struct{} { return r.hit }

// Release lets go what HoldRequest or HoldReply holds, and whatever they would hold from now on.
func (r *Rule) Release() { r.releaseOnce.Do(func() { close(r.released) }) }

// Done is closed when Redis has answered everything that HoldRequest held. It stays open if Redis dies before.
func (r *Rule) Done() <-chan struct{} { return r.done }

// Remove ends the rule for commands and messages that have not arrived yet. What it holds stays held until Release.
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
		panic("redistest: the zero Action means nothing: want DropReply, CutBefore, Delay(...) ...")
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

// take counts a command for every rule and returns those that take hold of it, in the order in which they were armed.
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

// swallows says whether a message that has just arrived is to vanish.
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

// owe notes a command that the rule holds, settle that Redis has answered it.
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
