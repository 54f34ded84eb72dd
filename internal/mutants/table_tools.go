package main

// toolMutants break what people see of locks: inspect and the reqlock command.
var toolMutants = []mutant{
	{
		promise: "list shows no hash of another program",
		file:    "inspect/read.go",
		old:     "if !ok || err != nil || count < 1 ||",
		new:     "if !ok && err != nil && count < 1 ||",
		nets:    []string{"inspect TestList_Kinds"},
	},
	{
		promise: "a hash without a TTL is a lock only if its owner is one of reqlock or Redisson",
		file:    "inspect/read.go",
		old:     "!isLockClient(client) {",
		new:     "false {",
		nets:    []string{"inspect TestList_Kinds/single"},
	},
	{
		promise: "a prefix is text, not a pattern",
		file:    "inspect/list.go",
		old:     "!strings.HasPrefix(name, s.opts.Prefix) ||",
		new:     "",
		nets:    []string{"inspect TestList_Kinds/single"},
	},
	{
		promise: "a waiter that no client listens for is shown as absent",
		file:    "inspect/listeners.go",
		old:     "w.Absent = count.complete && count.of(keys.FairChannel(w.Owner)) == 0",
		new:     "w.Absent = count.complete && count.of(keys.FairChannel(w.Owner)) < 0",
		nets:    []string{"inspect TestShow_AbsentWaiter/single"},
	},
	{
		promise: "unlock frees only the holder that its question was about",
		file:    "cmd/reqlock/unlock.go",
		old:     "if !slices.Equal(owners(now), owners(l)) {",
		new:     "if !slices.Equal(owners(now), owners(now)) {",
		nets:    []string{"cmd/reqlock TestUnlock_HolderChanges"},
	},
	{
		promise: "a name cannot change what a terminal shows",
		file:    "cmd/reqlock/text.go",
		old:     "|| strings.ContainsFunc(s, bad) {",
		new:     "|| s == \"\\x00\" && strings.ContainsFunc(s, bad) {",
		nets:    []string{"cmd/reqlock TestGolden/ls"},
	},
	{
		promise: "an error never shows a password",
		file:    "cmd/reqlock/connect.go",
		old:     "if _, err := url.Parse(base + \"://\" + rest); err != nil {",
		new:     "if _, err := url.Parse(base + \"://\"); err != nil {",
		nets:    []string{"cmd/reqlock TestUsage"},
	},
	{
		promise: "doctor fails a Redis that may evict locks",
		file:    "cmd/reqlock/doctor.go",
		old:     "if policy != \"noeviction\" {",
		new:     "if false {",
		nets:    []string{"cmd/reqlock TestDiagnose"},
	},
}
