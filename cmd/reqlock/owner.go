package main

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/reqlock/reqlock/inspect"
)

var (
	ownClient  = regexp.MustCompile(`^(.+)\.[a-z0-9]{8}$`)
	hostAndPid = regexp.MustCompile(`^(.+)\.(\d+)$`)
)

// processOf says in words which process an owner belongs to.
func processOf(client, owner string) string {
	if isRedisson(client) {
		thread := strings.TrimSuffix(strings.TrimPrefix(owner, client+":"), ":write")
		return "Redisson, thread " + thread
	}
	own := ownClient.FindStringSubmatch(client)
	if own == nil {
		return "unknown program"
	}
	if p := hostAndPid.FindStringSubmatch(own[1]); p != nil {
		return fmt.Sprintf("host %s, pid %s", printable(p[1]), p[2])
	}
	return printable(own[1])
}

// brief is a client for a narrow column.
func brief(client string) string {
	if isRedisson(client) {
		return "Redisson " + client
	}
	return printable(client)
}

// holders names the clients that hold a lock, each once, at most two.
func holders(l *inspect.Lock) string {
	var names []string
	seen := make(map[string]bool)
	for _, h := range l.Holders {
		if !seen[h.Client] {
			seen[h.Client] = true
			names = append(names, brief(h.Client))
		}
	}
	more := int64(len(names)) + l.MoreHolders - 2
	if more <= 0 {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s, +%d", strings.Join(names[:min(2, len(names))], ", "), more)
}

// entered is the number of holds, or of levels that one holder has entered.
func entered(l *inspect.Lock) (n int64) {
	for _, h := range l.Holders {
		if !h.Expired {
			n += h.Count
		}
	}
	return n + l.MoreHolders
}

// waiting is how many wait. A fair lock has a queue; of others only the clients that listen are
// known.
func waiting(l *inspect.Lock) string {
	switch n := int64(len(l.Queue)) + l.MoreQueue; {
	case n > 0:
		return fmt.Sprint(n)
	case l.Listeners < 0:
		return "?"
	}
	return fmt.Sprint(l.Listeners)
}
