package main

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/reqlock/reqlock/inspect"
)

var (
	ownClient = regexp.MustCompile(`^(.+)\.[a-z0-9]{8}$`)
	// hostAndPid is followed by the command if the process is reqlock run; see jobID.
	hostAndPid = regexp.MustCompile(`^(.+?)\.(\d+)(?:\.(\d*[A-Za-z_-].*))?$`)
	// permit is the ID of a permit of Redisson. It does not name the process.
	permit = regexp.MustCompile(`^[0-9a-f]{32}$`)
)

// processOf says in words which process an owner belongs to.
func processOf(client, owner string) string {
	if permit.MatchString(owner) {
		return "Redisson"
	}
	if isRedisson(client) {
		thread := strings.TrimSuffix(strings.TrimPrefix(owner, client+":"), ":write")
		return "Redisson, thread " + thread
	}
	own := ownClient.FindStringSubmatch(client)
	if own == nil {
		return "unknown program"
	}
	if p := hostAndPid.FindStringSubmatch(own[1]); p != nil {
		process := fmt.Sprintf("host %s, pid %s", printable(p[1]), p[2])
		if p[3] != "" {
			process += ", runs " + printable(p[3])
		}
		return process
	}
	return printable(own[1])
}

// brief is a client for a narrow column.
func brief(h *inspect.Holder) string {
	switch {
	case h.Client == "":
		return processOf("", h.Owner)
	case isRedisson(h.Client):
		return "Redisson " + h.Client
	}
	return printable(h.Client)
}

// holders names the clients that hold a lock, each once, at most two.
func holders(l *inspect.Lock) string {
	var names []string
	for i := range l.Holders {
		if name := brief(&l.Holders[i]); !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	more := int64(len(names)) + l.MoreHolders - 2
	if more <= 0 {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s, +%d", strings.Join(names[:min(2, len(names))], ", "), more)
}

// entered is the number of holds, of levels that one holder has entered, or of permits that are taken.
func entered(l *inspect.Lock) (n int64) {
	for _, h := range l.Holders {
		if !h.Expired {
			n += h.Count
		}
	}
	return n + l.MoreHolders
}

func enteredText(l *inspect.Lock) string {
	if l.Semaphore == nil || l.Permits < 0 {
		return fmt.Sprint(entered(l))
	}
	return fmt.Sprintf("%d of %d", l.Taken, l.Permits)
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
