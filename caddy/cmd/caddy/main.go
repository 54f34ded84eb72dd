// Caddy is Caddy with its standard modules and those of reqlock.
//
//	go run ./cmd/caddy run --config Caddyfile
package main

import (
	caddycmd "github.com/caddyserver/caddy/v2/cmd"

	_ "github.com/caddyserver/caddy/v2/modules/standard"
	_ "github.com/reqlock/reqlock/caddy"
)

func main() { caddycmd.Main() }
