package caddylock_test

import (
	"net/http"
	"testing"
)

// Each handler with a limit takes a permit. So a request that passes three of them is one too many for
// a limit of two, which another key and a lock do not use up.
func TestLimit(t *testing.T) {
	t.Parallel()
	const limit = "reqlock {\n key {path.1}\n limit 2\n }\n"
	p := startCaddy(t, caddyfile("reqlock {\n embedded\n }", `
		route /two/* {
			`+limit+limit+`
			reqlock {
				key {path.1}
			}
			respond "two inside"
		}
		route /three/* {
			`+limit+limit+limit+`
			respond "three inside"
		}`))
	for range 3 {
		if a := p.do(t, http.MethodGet, "/two/acme"); a.status != http.StatusOK || a.body != "two inside" {
			t.Errorf("two: %v", a)
		}
		if a := p.do(t, http.MethodGet, "/three/acme"); a.status != http.StatusTooManyRequests || a.problem() != "limit" || a.header.Get("Retry-After") != "1" {
			t.Errorf("three: %v, %v", a, a.header)
		}
	}
}
