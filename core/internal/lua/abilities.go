package lua

import _ "embed"

var (
	//go:embed abilities.lua
	abilitiesSource string

	abilities = script("abilities", abilitiesSource, 0)
)

// An Ability says whether a command can be run.
type Ability int

// The abilities.
const (
	Unknown   Ability = -1 // The server does not have the command.
	Forbidden Ability = 0  // The user may not run it.
	Able      Ability = 1  // The server and the user have it, as far as is known.
)

// A Command is a command with arguments, for Abilities.
type Command struct {
	Words []string
	// Reads is true if the command changes nothing, so it may be tried.
	Reads bool
}

// Abilities asks whether commands can be run, without running any that writes; see abilities.lua.
// The key must not exist. ReadAbilities reads its reply.
func Abilities(key string, commands []Command) Call {
	c := call(abilities, 1, 8*len(commands))
	c.add(key)
	for _, command := range commands {
		reads := 0
		if command.Reads {
			reads = 1
		}
		c.add(reads, len(command.Words))
		for _, word := range command.Words {
			c.add(word)
		}
	}
	return c
}

// ReadAbilities reads the reply of an Abilities call for n commands.
func ReadAbilities(reply any, n int) ([]Ability, error) {
	list, ok := reply.([]any)
	if !ok || len(list) != n {
		return nil, unexpected(abilities, reply)
	}
	numbers, ok := integers(list)
	if !ok {
		return nil, unexpected(abilities, reply)
	}
	found := make([]Ability, n)
	for i, number := range numbers {
		if number < int64(Unknown) || number > int64(Able) {
			return nil, unexpected(abilities, reply)
		}
		found[i] = Ability(number)
	}
	return found, nil
}
