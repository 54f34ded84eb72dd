package access

import (
	"cmp"
	"slices"
	"strings"

	"github.com/reqlock/reqlock/core/internal/kinds"
	"github.com/reqlock/reqlock/core/internal/lua"
	"github.com/reqlock/reqlock/core/internal/wire"
)

// A Need is a command that a kind of lock needs, or a latch.
type Need struct {
	Kind string
	lua.Command
}

// latch are the commands that a CountDownLatch needs.
var latch = kinds.Commands{
	For:    "CountDownLatch",
	Reads:  []string{"GET KEY", "GET MARK"},
	Writes: []string{"SET KEY 1", "SET MARK 1", "DECR KEY", "DEL KEY", "DEL MARK"},
}

// Needs returns the commands that a lock of some kind needs besides those that a Probe tries, and
// those of a latch.
func Needs(key string) []Need {
	keys := map[string]string{
		"KEY":       key,
		"RECORD":    wire.RecordKey(key),
		"COUNTER":   wire.TokenCounter(key),
		"QUEUE":     wire.FairQueue(key),
		"DEADLINES": wire.FairDeadlines(key),
		"TIMEOUT":   wire.ReadTimeout(key, "owner", 1),
		"MARK":      wire.LatchMark(key, "owner"),
		"TAKEN":     wire.PermitsTaken(key),
		"DECLARED":  wire.PermitsDeclared(key),
		"FAMILY":    wire.PermitFamily(key, "owner"),
	}
	var all []Need
	var known []string
	add := func(of string, lines []string, reads bool) {
		for _, line := range lines {
			words := strings.Fields(line)
			for i, word := range words {
				words[i] = cmp.Or(keys[word], word)
			}
			all = append(all, Need{of, lua.Command{Words: words, Reads: reads}})
		}
	}
	features := []kinds.Commands{}
	for _, kind := range kinds.All() {
		features = append(features, kind.Commands...)
	}
	for _, c := range append(features, latch) {
		if slices.Contains(known, c.For) {
			continue
		}
		known = append(known, c.For)
		add(c.For, c.Reads, true)
		add(c.For, c.Writes, false)
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
