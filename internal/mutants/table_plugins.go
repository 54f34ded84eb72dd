package main

// The mutants of wasm.
var pluginMutants = []mutant{
	{
		promise: "a plugin that keeps failing is suspended",
		file:    "wasm/breaker.go",
		old:     "b.failures >= b.after {",
		new:     "b.failures < 0 {",
		nets:    []string{"wasm TestBreaker_OpensAfterFailuresInARow", "wasm TestSuspended"},
	},
	{
		promise: "a success between failures keeps a plugin running",
		file:    "wasm/breaker.go",
		old:     "\tb.state, b.failures, b.pause = BreakerClosed, 0, 0\n",
		new:     "\tb.state, b.pause = BreakerClosed, 0\n",
		nets:    []string{"wasm TestBreaker_OpensAfterFailuresInARow"},
	},
	{
		promise: "one call at a time tries a suspended plugin",
		file:    "wasm/breaker.go",
		old:     "\tcase b.state == BreakerHalfOpen:\n\t\tretry = b.first\n",
		new:     "",
		nets:    []string{"wasm TestBreaker_Probes"},
	},
	{
		promise: "a plugin that fails again is suspended for longer",
		file:    "wasm/breaker.go",
		old:     "min(2*b.pause, ",
		new:     "min(b.pause, ",
		nets:    []string{"wasm TestBreaker_Probes"},
	},
	{
		promise: "requests without a key suspend no plugin",
		file:    "wasm/plugin.go",
		old:     "errors.Is(err, errDenied), errors.Is(err, ErrNoKey):",
		new:     "errors.Is(err, errDenied):",
		nets:    []string{"wasm TestSuspended_NotByClients"},
	},
	{
		promise: "the queue for a plugin is bounded",
		file:    "wasm/queue.go",
		old:     "q.queued.Add(1) > q.longest {",
		new:     "q.queued.Add(1) < 0 {",
		nets:    []string{"wasm TestMaxQueue"},
	},
	{
		promise: "a plugin fails open only by its own fault",
		file:    "wasm/plugin.go",
		old:     "failOpen := p.cfg.FailOpen && outcome.fault()",
		new:     "failOpen := p.cfg.FailOpen && err != nil",
		nets:    []string{"wasm TestFailOpen"},
	},
	{
		promise: "a plugin fails open only if asked to",
		file:    "wasm/plugin.go",
		old:     "failOpen := p.cfg.FailOpen && outcome.fault()",
		new:     "failOpen := outcome.fault()",
		nets:    []string{"wasm TestGuardNeverFailsOpen"},
	},
}
