package adaptertest

// A Host is a framework or router that reqlock itself runs in: its adapter passes this suite. Its
// exceptions are listed in adapter/CONFORMANCE.md.
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
	dirOfSuite   = "adapter/adaptertest"
	dirOfRouters = "internal/lab/interop/frameworks/routers"
)

// The hosts of this repository.
var (
	ServeMux   = Host{Name: "ServeMux", Adapter: "nethttp", Dir: dirOfSuite}
	Chi        = Host{Name: "chi", Adapter: "nethttp", Dir: dirOfSuite}
	Mux        = Host{Name: "mux", Adapter: "nethttp", Dir: dirOfRouters}
	HTTPRouter = Host{Name: "httprouter", Adapter: "nethttp", Dir: dirOfRouters}
	Gin        = Host{Name: "Gin", Adapter: "gin", Dir: dirOfSuite, Exceptions: noEarlyHints}
	Echo       = Host{Name: "Echo", Adapter: "echo", Dir: dirOfSuite, Exceptions: noEarlyHints}
	EchoV5     = Host{Name: "Echo v5", Adapter: "echov5", Dir: "middleware/echov5", Exceptions: noEarlyHints}
	Fiber      = Host{Name: "Fiber", Adapter: "fiber", Dir: "middleware/fiber", Exceptions: ofFiber}
	Caddy      = Host{Name: "Caddy", Dir: "caddy", Exceptions: ofCaddy}
)

var noEarlyHints = map[string]string{
	"once: early hints": "Gin and Echo take an informational answer (1xx) for the final one, without reqlock as well.",
}

// Hosts lists the hosts in the order of the list.
func Hosts() []Host { return []Host{ServeMux, Chi, Mux, HTTPRouter, Gin, Echo, EchoV5, Fiber, Caddy} }
