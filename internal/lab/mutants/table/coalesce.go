package table

// The mutants of coalesce.
var coalesceMutants = []Mutant{
	{
		Promise: "no one waits for the renewal of a stale answer",
		File:    "coalesce/attempt.go",
		Old:     "if a.lease.Renews() {",
		New:     "if false {",
		Nets:    []string{"coalesce TestServe_Stale"},
	},
	{
		Promise: "a renewal that fails leaves the stale answer",
		File:    "coalesce/attempt.go",
		Old:     "if renews && failed {",
		New:     "if false {",
		Nets:    []string{"coalesce TestServe_StaleAndFailed"},
	},
	{
		Promise: "who has the new answer shares nothing that was asked for before",
		File:    "coalesce/group.go",
		Old:     "\tdelete(groups.byKey, key)\n}",
		New:     "}",
		Nets:    []string{"coalesce TestRenewed"},
	},
	{
		Promise: "an answer with a cookie is not shared",
		File:    "coalesce/verdict.go",
		Old:     `case len(a.header["Set-Cookie"]) > 0:`,
		New:     `case false:`,
		Nets:    []string{"coalesce TestUnshared"},
	},
	{
		Promise: "an answer to someone who says who asks is shared only if it is public",
		File:    "coalesce/verdict.go",
		Old:     "case credentials && !public:",
		New:     "case false && public && credentials:",
		Nets:    []string{"coalesce TestUnshared", "coalesce TestServe_Users"},
	},
	{
		Promise: "an answer that varies by more than the key is not shared",
		File:    "coalesce/verdict.go",
		Old:     "return becauseVary",
		New:     "return \"\"",
		Nets:    []string{"coalesce TestUnshared"},
	},
	{
		Promise: "the user is a part of the key",
		File:    "coalesce/key.go",
		Old:     `parts = append(parts, "user", user)`,
		New:     `_ = user`,
		Nets:    []string{"coalesce TestName", "coalesce TestServe_Users/User"},
	},
	{
		Promise: "the client that leaves does not end the run of all",
		File:    "coalesce/attempt.go",
		Old:     "if c.follows.Load() {",
		New:     "{",
		Nets:    []string{"coalesce TestServe_ClientLeaves"},
	},
	{
		Promise: "few of those who run for themselves do so at once",
		File:    "coalesce/attempt.go",
		Old:     "a.g.cfg.Limit == 0 || !errors.As(err, &solo)",
		New:     "true",
		Nets:    []string{"coalesce TestServe_Limit"},
	},
	{
		Promise: "who waits for the limit does so for what is left of WaitTime",
		File:    "coalesce/attempt.go",
		Old:     "max(0, opts.WaitTime-time.Since(began))",
		New:     "time.Minute",
		Nets:    []string{"coalesce TestServe_LimitIsReached"},
	},
	{
		Promise: "what is sealed is not deflated",
		File:    "coalesce/attempt.go",
		Old:     "done.encode(a.g.cfg.Codec == nil)",
		New:     "done.encode(true)",
		Nets:    []string{"coalesce TestServe_Packs"},
	},
}
