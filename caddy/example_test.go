package caddylock_test

import (
	"encoding/json"
	"fmt"
	"log"

	"github.com/caddyserver/caddy/v2/caddyconfig"
	_ "github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"

	_ "github.com/reqlock/reqlock/caddy" // adds the directives
)

// A Caddy that imports this package reads the directive reqlock, and runs its handler before the
// reverse proxy.
func Example() {
	const caddyfile = `
{
	reqlock {
		redis redis://127.0.0.1:6379
	}
}
:8080 {
	reqlock {
		key order:{path.1}
		wait 2s
	}
}`
	config, _, err := caddyconfig.GetAdapter("caddyfile").Adapt([]byte(caddyfile), nil)
	if err != nil {
		log.Fatal(err)
	}
	var adapted struct {
		Apps struct {
			HTTP struct {
				Servers map[string]struct {
					Routes []struct{ Handle []json.RawMessage }
				}
			}
		}
	}
	if err := json.Unmarshal(config, &adapted); err != nil {
		log.Fatal(err)
	}
	fmt.Println(string(adapted.Apps.HTTP.Servers["srv0"].Routes[0].Handle[0]))
	// Output: {"handler":"reqlock","keys":["order:{http.request.uri.path.1}"],"wait":2000000000}
}
