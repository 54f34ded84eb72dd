// Package hosts lists the frameworks and routers that reqlock runs in, for docs/conformance.md.
package hosts

// A Host is a framework or router whose adapter passes the suite of package adaptertest.
type Host struct {
	// Name is the adapter's.
	Name string
	// Adapter is the package that users import, below middleware/.
	Adapter string
	// Dir has the test that runs the suite.
	Dir string
	// Exceptions are tests that the suite leaves out, with the reason.
	Exceptions map[string]string
}

const (
	root    = "adapter/adaptertest"
	routers = "internal/lab/interop/frameworks/routers"
)

// The hosts.
var (
	ServeMux   = Host{Name: "ServeMux", Adapter: "nethttp", Dir: root}
	Chi        = Host{Name: "chi", Adapter: "nethttp", Dir: root}
	Mux        = Host{Name: "mux", Adapter: "nethttp", Dir: routers}
	HTTPRouter = Host{Name: "httprouter", Adapter: "nethttp", Dir: routers}
	Gin        = Host{Name: "Gin", Adapter: "gin", Dir: root, Exceptions: noEarlyHints}
	Echo       = Host{Name: "Echo", Adapter: "echo", Dir: root, Exceptions: noEarlyHints}
	EchoV5     = Host{Name: "Echo v5", Adapter: "echov5", Dir: "middleware/echov5", Exceptions: noEarlyHints}
	Fiber      = Host{Name: "Fiber", Adapter: "fiber", Dir: "middleware/fiber", Exceptions: ofFiber}
	Caddy      = Host{Name: "Caddy", Dir: "caddy", Exceptions: ofCaddy}
)

var noEarlyHints = map[string]string{
	"once: early hints": "Gin and Echo take an informational answer (1xx) for the final one, without reqlock as well.",
}

// All lists the hosts in the order of the table.
func All() []Host { return []Host{ServeMux, Chi, Mux, HTTPRouter, Gin, Echo, EchoV5, Fiber, Caddy} }
