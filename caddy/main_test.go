package caddylock_test

import caddylock "github.com/reqlock/reqlock/caddy"

const asCaddy = caddylock.AsCaddy
