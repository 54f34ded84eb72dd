package main

// The mutants of what a Redis client must be to keep locks.
var clientMutants = []mutant{
	{
		promise: "a client that hides its kind is refused",
		file:    "internal/redisclient/client.go",
		old:     "\t\tdefault:\n\t\t\treturn Client{}, fmt.Errorf(",
		new:     "\t\tdefault:\n\t\t\treturn Client{UniversalClient: rdb}, nil\n\t\t\t_ = fmt.Sprintf(",
		nets:    []string{"internal/redisclient TestOf"},
	},
	{
		promise: "a client of one node of a cluster gets no lock, wherever the key is",
		file:    "core/internal/redisop/op.go",
		old:     "if x.r.fit.known.Load() || !x.call.Acquires() {",
		new:     "if true {",
		nets:    []string{"core TestMisfit_NodeOfACluster"},
	},
	{
		promise: "a server is asked again once it redirects",
		file:    "core/internal/redisop/fit.go",
		old:     "\t\tf.known.Store(false)\n",
		new:     "",
		nets:    []string{"core TestMisfit_ClusterGrows"},
	},
	{
		promise: "a cluster client says that the server is none",
		file:    "internal/redisclient/client.go",
		old:     "return &WrongError{Cluster: true, How: err}",
		new:     "return err",
		nets:    []string{"internal/redisclient TestCheckServer", "core TestMisfit_NoCluster"},
	},
	{
		promise: "a client that does not fit never fails open",
		file:    "guard/problem.go",
		old:     ", errors.Is(err, core.ErrMisconfigured):",
		new:     ":",
		nets:    []string{"guard TestMisfit_NeverFailsOpen"},
	},
	{
		promise: "the members of a RedLock are on servers of their own",
		file:    "core/red.go",
		old:     "if id := sharedServer(x.lock.c.servers, y.lock.c.servers); id != \"\" {",
		new:     "if id := sharedServer(x.lock.c.servers, y.lock.c.servers); id == \"none\" {",
		nets:    []string{"core TestRed_OneServer"},
	},
	{
		promise: "a RedLock asks each server once",
		file:    "core/servers.go",
		old:     "\t\ts.known.Store(&ids)\n",
		new:     "\t\t_ = ids\n",
		nets:    []string{"core TestRed_AsksServersOnce"},
	},
	{
		promise: "a MultiLock may have a name in two databases of a server",
		file:    "core/multi.go",
		old:     "return a.c.redis.Database() == b.c.redis.Database() && sharedServer",
		new:     "return sharedServer",
		nets:    []string{"core TestMulti_OneServer"},
	},
}
