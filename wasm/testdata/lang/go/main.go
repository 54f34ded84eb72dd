package main

import (
	"time"

	"github.com/reqlock/reqlock/wasm/guest"
)

func init() { guest.Handle(decide, guest.PartMethod, guest.PartURI, "X-Tenant") }

func main() {} // never runs

func decide(r guest.Request, lock guest.Lock) {
	if r.Path() == "/health" {
		lock.Skip()
		return
	}
	tenants := r.HeaderValues("X-Tenant")
	if len(tenants) != 1 || tenants[0] == "" || len(tenants[0]) > 64 {
		lock.Refuse(guest.Refusal{Status: 400, Detail: "X-Tenant is missing", Reason: "no-tenant"})
		return
	}
	if n, ok := guest.Incr(tenants[0], 1, time.Minute); ok && n > 1000 {
		lock.Refuse(guest.Refusal{Status: 429, Detail: "Too many requests", Problem: "rate-limited", RetryAfter: time.Minute})
		return
	}
	lock.AddKey(tenants[0])
	switch r.Method() {
	case "GET", "HEAD":
		lock.SetMode(guest.ModeRead)
	default:
		lock.SetMode(guest.ModeWrite)
		lock.SetWait(2 * time.Second)
	}
}
