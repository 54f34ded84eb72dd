package table

// The mutants of coalesce.Do.
var doMutants = []Mutant{
	{
		Promise: "callers of one process get only answers of runs that overlapped their wait",
		File:    "coalesce/group.go",
		Old:     "\tif groups.byKey[l.of.key] == l.of {\n\t\tdelete(groups.byKey, l.of.key)\n\t}\n\tl.of.outcome = o\n",
		New: "\ttime.AfterFunc(100*time.Millisecond, func() {\n\t\tgroups.mu.Lock()\n\t\tdefer groups.mu.Unlock()\n\t\tif groups.byKey[l.of.key] == l.of {\n" +
			"\t\t\tdelete(groups.byKey, l.of.key)\n\t\t}\n\t})\n\tl.of.outcome = o\n",
		Nets: []string{"coalesce TestDo_Faults"},
	},
	{
		Promise: "callers of other processes get only answers of runs whose time is not over",
		File:    "coalesce/run.go",
		Old:     "_ = r.lease.ReleaseWith(ctx, r.record, r.ttl)",
		New:     "_ = r.lease.ReleaseWith(ctx, r.record, r.ttl+3*time.Second)",
		Nets:    []string{"coalesce TestDo_Faults"},
	},
	{
		Promise: "no caller sees what another does to its result",
		File:    "coalesce/result.go",
		Old:     "return t.Kind() < reflect.Array",
		New:     "return t.Kind() == reflect.Map || t.Kind() < reflect.Array",
		Nets:    []string{"coalesce TestDo_Faults"},
	},
	{
		Promise: "when a run loses its lock, another caller of its process runs",
		File:    "coalesce/do.go",
		Old:     "\tdefer context.AfterFunc(own, r.lead.cede)()\n",
		New:     "",
		Nets:    []string{"coalesce TestDo_LostRunGoesOn"},
	},
	{
		Promise: "when the caller that asks Redis leaves, another one asks",
		File:    "coalesce/group.go",
		Old:     "\tif l.of.waiting > 0 {\n",
		New:     "\tif l.of.waiting > 1 {\n",
		Nets:    []string{"coalesce TestDo_LeaderLeaves"},
	},
	{
		Promise: "a caller that leaves ends no other caller's wait",
		File:    "coalesce/enter.go",
		Old:     "return watched(ctx).Err() == nil && ",
		New:     "return ",
		Nets:    []string{"coalesce TestDo_LeaderLeavesEarly"},
	},
	{
		Promise: "a framework's context that never ends stands for one that does",
		File:    "coalesce/enter.go",
		Old:     "if ctx.Done() == nil {",
		New:     "if false {",
		Nets:    []string{"coalesce TestDo_FrameworkContext"},
	},
	{
		Promise: "a run that calls Do with its own key does not wait for itself",
		File:    "coalesce/enter.go",
		Old:     "if reenters(ctx, key) {",
		New:     "if false {",
		Nets:    []string{"coalesce TestDo_Nested"},
	},
}
