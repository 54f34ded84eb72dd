// Package redisacl turns what Redis denies to a user into the rules that permit it.
package redisacl

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// Denied reports whether an error is, or contains, a reply that the user lacks a permission.
func Denied(err error) bool {
	if err == nil {
		return false
	}
	text := err.Error()
	return strings.Contains(text, "NOPERM") || strings.Contains(text, "The user executing the script") ||
		strings.Contains(text, "ACL failure in script")
}

// A Denial is a reply that denies a user something, and what the denied command uses. Redis names
// the command only if the user may not run it at all.
type Denial struct {
	Err error
	// Key and Channel are patterns that match the keys and the channel. An empty Key: it uses none.
	Key, Channel string
	// InScript is the command that a script may lack. Redis does not name it there.
	InScript string
}

var deniedCommand = regexp.MustCompile(`'([a-z|]+)' command`)

// CommandRule returns the rule that permits the command that an error denies. It is empty if the error
// names none.
func CommandRule(err error) string {
	if command := deniedCommand.FindStringSubmatch(err.Error()); command != nil {
		return "+" + command[1]
	}
	return ""
}

// Rule returns the rule that permits what was denied.
func (d Denial) Rule() string {
	text := d.Err.Error()
	rule := CommandRule(d.Err)
	switch {
	case rule != "":
		return rule
	case d.Key == "" || strings.Contains(text, "channel"):
		return "&" + d.Channel
	case d.InScript != "" && strings.Contains(text, "can't run this command"):
		return "+" + d.InScript
	}
	return "~" + d.Key
}

// A User is the name of a user, which may be empty for the default user.
type User string

// String returns the name that rules use.
func (u User) String() string {
	if u == "" {
		return "default"
	}
	return string(u)
}

// Grant returns the command that gives rules to the user.
func (u User) Grant(rules ...string) string {
	return fmt.Sprintf("ACL SETUSER %s %s", u, strings.Join(rules, " "))
}

// Lacks returns an error with the command that permits all that was denied. It wraps the first
// denial.
func (u User) Lacks(denied []Denial) error {
	var rules []string
	for _, d := range denied {
		if rule := d.Rule(); !slices.Contains(rules, rule) {
			rules = append(rules, rule)
		}
	}
	return fmt.Errorf("the Redis user %q lacks permissions: %s (%w)", u, u.Grant(rules...), denied[0].Err)
}

// May returns a script that replies whether the user may run a command: 1 or 0. arguments are Lua
// expressions for the command and its arguments. A server before Redis 7.0 cannot tell, and the
// script replies 1.
func May(arguments string) string {
	return "if redis.acl_check_cmd then return redis.acl_check_cmd(" + arguments + ") and 1 or 0 end return 1"
}
