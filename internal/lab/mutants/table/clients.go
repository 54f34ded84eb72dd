package table

// The mutants of what a Redis client must be to keep locks.
var clientMutants = []Mutant{
	{
		Promise: "a client that hides its kind is refused",
		File:    "internal/redisclient/client.go",
		Old:     "\t\tdefault:\n\t\t\treturn Client{}, fmt.Errorf(",
		New:     "\t\tdefault:\n\t\t\treturn Client{UniversalClient: rdb}, nil\n\t\t\t_ = fmt.Sprintf(",
		Nets:    []string{"internal/redisclient TestOf"},
	},
	{
		Promise: "a client of one node of a cluster gets no lock, wherever the key is",
		File:    "core/internal/redisop/op.go",
		Old:     "if x.r.fit.known.Load() || !x.call.Acquires() {",
		New:     "if true {",
		Nets:    []string{"core TestMisfit_NodeOfACluster"},
	},
	{
		Promise: "a server is asked again once it redirects",
		File:    "core/internal/redisop/fit.go",
		Old:     "\t\tf.known.Store(false)\n",
		New:     "",
		Nets:    []string{"core TestMisfit_ClusterGrows"},
	},
	{
		Promise: "a cluster client says that the server is none",
		File:    "internal/redisclient/client.go",
		Old:     "return &WrongError{Cluster: true, How: err}",
		New:     "return err",
		Nets:    []string{"internal/redisclient TestCheckServer", "core TestMisfit_NoCluster"},
	},
	{
		Promise: "a client that does not fit never fails open",
		File:    "guard/refusal.go",
		Old:     ", errors.Is(err, core.ErrMisconfigured):",
		New:     ":",
		Nets:    []string{"guard TestMisfit_NeverFailsOpen"},
	},
	{
		Promise: "the members of a RedLock are on servers of their own",
		File:    "core/red.go",
		Old:     "if id := sharedServer(x.lock.c.servers, y.lock.c.servers); id != \"\" {",
		New:     "if id := sharedServer(x.lock.c.servers, y.lock.c.servers); id == \"none\" {",
		Nets:    []string{"core TestRed_OneServer"},
	},
	{
		Promise: "a RedLock asks each server once",
		File:    "core/servers.go",
		Old:     "\t\ts.known.Store(&ids)\n",
		New:     "\t\t_ = ids\n",
		Nets:    []string{"core TestRed_AsksServersOnce"},
	},
	{
		Promise: "a MultiLock may have a name in two databases of a server",
		File:    "core/multi.go",
		Old:     "return a.c.redis.Database() == b.c.redis.Database() && sharedServer",
		New:     "return sharedServer",
		Nets:    []string{"core TestMulti_OneServer"},
	},
}
