package redistest

import "strings"

// confirmations are the frames that answer the commands of the same names, one frame per channel.
// Redis also sends sunsubscribe on its own when a slot moves away.
var confirmations = map[string]struct {
	what string
	adds bool
}{
	"subscribe":    {"channels", true},
	"psubscribe":   {"patterns", true},
	"ssubscribe":   {"shards", true},
	"unsubscribe":  {"channels", false},
	"punsubscribe": {"patterns", false},
	"sunsubscribe": {"shards", false},
}

// messages are the kinds of frames that carry a published message.
var messages = map[string]bool{"message": true, "pmessage": true, "smessage": true}

// repliesTo returns how many frames answer a command: one per channel for SUBSCRIBE and similar
// commands. 0 means that it depends on the connection's subscriptions when Redis executes the
// command.
func repliesTo(args []string) int {
	c, ok := confirmations[strings.ToLower(args[0])]
	if ok && len(args) == 1 && !c.adds {
		return 0
	}
	if ok && len(args) > 1 {
		return len(args) - 1
	}
	return 1
}

// subscriptions are a connection's confirmed subscriptions.
type subscriptions map[string]map[string]bool

// note records a confirmation.
func (s subscriptions) note(kind, channel string) {
	c := confirmations[kind]
	if !c.adds {
		delete(s[c.what], channel)
		return
	}
	if s[c.what] == nil {
		s[c.what] = make(map[string]bool)
	}
	s[c.what][channel] = true
}

// confirmationsOf returns how many frames answer an unsubscribe command of this kind without a
// channel: one per subscribed channel, or one if there is none.
func (s subscriptions) confirmationsOf(kind string) int {
	return max(1, len(s[confirmations[kind].what]))
}

func (s subscriptions) any() bool {
	for _, channels := range s {
		if len(channels) > 0 {
			return true
		}
	}
	return false
}
