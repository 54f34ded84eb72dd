package redistest

import "strings"

// confirmations are the frames that answer the commands of the same names: one frame a channel. Redis also sends
// sunsubscribe unasked, when a slot leaves it.
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

// repliesTo is how many frames answer a command: one for each channel of a SUBSCRIBE and its kin. 0: depends on what the
// connection is subscribed to when Redis executes it.
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

// subscriptions is what one connection is subscribed to, as far as Redis has confirmed it.
type subscriptions map[string]map[string]bool

// note takes a confirmation in.
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

// confirmationsOf is how many frames an unsubscribe command of this kind without a channel yields: one a channel, or one
// that says that there was none.
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
