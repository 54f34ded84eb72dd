package access

import (
	"cmp"
	"slices"
	"strings"

	"github.com/reqlock/reqlock/core/internal/lua"
	"github.com/reqlock/reqlock/core/internal/wire"
)

// A Need is a command that a kind of lock needs.
type Need struct {
	Kind string
	lua.Command
}

// otherCommands lists, by kind, the commands besides those that a Probe tries. KEY is the lock, and
// the other words in capitals after the command are its further keys.
var otherCommands = []struct {
	kind string
	// reads is true if the commands change nothing.
	reads bool
	lines []string
}{
	{"Once", true, []string{"HGET RECORD f"}},
	{"Once", false, []string{"HSET RECORD f 1", "HDEL RECORD f", "PEXPIRE RECORD 1", "DEL RECORD"}},
	{"fenced", true, []string{"GET COUNTER"}},
	{"fenced", false, []string{"HSETNX KEY f 1", "INCR COUNTER"}},
	{"fair", true, []string{"TIME", "LINDEX QUEUE 0", "LRANGE QUEUE 0 0", "LPOS QUEUE owner", "LLEN QUEUE",
		"ZSCORE DEADLINES owner", "ZRANK DEADLINES owner", "ZCARD DEADLINES"}},
	{"fair", false, []string{"RPUSH QUEUE owner", "LREM QUEUE 0 owner", "LSET QUEUE 0 owner", "ZADD DEADLINES 1 owner",
		"ZREM DEADLINES owner", "DEL DEADLINES"}},
	{"read/write", true, []string{"EXISTS KEY", "PTTL TIMEOUT"}},
	{"read/write", false, []string{"HSETNX KEY f 1", "SET TIMEOUT 1", "DEL TIMEOUT"}},
}

// Needs returns the commands that a lock of some kind needs besides those that a Probe tries.
func Needs(key string) []Need {
	keys := map[string]string{
		"KEY":       key,
		"RECORD":    wire.RecordKey(key),
		"COUNTER":   wire.TokenCounter(key),
		"QUEUE":     wire.FairQueue(key),
		"DEADLINES": wire.FairDeadlines(key),
		"TIMEOUT":   wire.ReadTimeout(key, "owner", 1),
	}
	var all []Need
	for _, other := range otherCommands {
		for _, line := range other.lines {
			words := strings.Fields(line)
			for i, word := range words {
				words[i] = cmp.Or(keys[word], word)
			}
			all = append(all, Need{other.kind, lua.Command{Words: words, Reads: other.reads}})
		}
	}
	return all
}

// Judge returns what abilities for a list of needs mean: the kinds that the user cannot use, in the
// order of the list, and the commands that the server lacks, each with the kinds that need it.
func Judge(needs []Need, able []lua.Ability) (forbidden, lacking []string) {
	kinds := make(map[string][]string) // It has the kinds by the command that is lacking.
	for i, n := range needs {
		switch able[i] {
		case lua.Unknown:
			kinds[n.Words[0]] = append(kinds[n.Words[0]], n.Kind)
		case lua.Forbidden:
			if !slices.Contains(forbidden, n.Kind) {
				forbidden = append(forbidden, n.Kind)
			}
		}
	}
	for command, of := range kinds {
		slices.Sort(of)
		lacking = append(lacking, command+" (for "+strings.Join(slices.Compact(of), ", ")+")")
	}
	slices.Sort(lacking)
	return forbidden, lacking
}
