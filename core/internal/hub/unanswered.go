package hub

import (
	"slices"
	"sync"
)

// An unanswered holds the commands of a session that the server has not answered, oldest first. An
// error does not say which command it answers, but errors and confirmations come in the order of
// the commands.
type unanswered struct {
	mu       sync.Mutex
	commands []command
}

// A command is what was sent for an order. Each of its channels is confirmed, or an error answers
// all of it.
type command struct {
	order
	// Redis has not confirmed channels yet. A PING has none.
	channels []string
}

// sent adds a command. It must be called before the command is sent.
func (u *unanswered) sent(c command) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.commands = append(u.commands, c)
}

// confirmed removes a channel from the oldest command that it answers. A confirmed SUBSCRIBE shows
// that commands before it are answered or lost. An UNSUBSCRIBE does not, because the server may
// send the same when a slot leaves it.
func (u *unanswered) confirmed(o order, channel string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for i := range u.commands {
		c := &u.commands[i]
		if c.kind == o.kind && c.subscribe == o.subscribe {
			if at := slices.Index(c.channels, channel); at >= 0 {
				c.channels = slices.Delete(c.channels, at, at+1)
				if o.subscribe {
					u.dropLocked(i)
				}
				break
			}
		}
		if !o.subscribe {
			return
		}
	}
	if len(u.commands) > 0 && u.commands[0].kind != pings && len(u.commands[0].channels) == 0 {
		u.dropLocked(1)
	}
}

// pong removes the oldest PING, and what was sent before it.
func (u *unanswered) pong() {
	u.mu.Lock()
	defer u.mu.Unlock()
	if i := slices.IndexFunc(u.commands, func(c command) bool { return c.kind == pings }); i >= 0 {
		u.dropLocked(i + 1)
	}
}

// refused removes the oldest command, which an error answers. It returns false if there is none, or
// if the error is not about such a command.
func (u *unanswered) refused(about func(order) bool) (c command, ok bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if len(u.commands) == 0 || !about(u.commands[0].order) {
		return command{}, false
	}
	c = u.commands[0]
	u.dropLocked(1)
	return c, true
}

// dropLocked removes the oldest commands.
func (u *unanswered) dropLocked(n int) {
	if u.commands = u.commands[n:]; len(u.commands) == 0 {
		u.commands = nil // frees the memory after a burst
	}
}
