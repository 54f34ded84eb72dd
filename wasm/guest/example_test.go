package guest_test

import "github.com/reqlock/reqlock/wasm/guest"

// A plugin calls Handle from the init function of its main package.
func Example() {
	guest.Handle(func(r guest.Request, lock guest.Lock) {
		tenant := r.Header("X-Tenant")
		if tenant == "" {
			lock.Deny(400, "X-Tenant is missing")
			return
		}
		lock.AddKey("tenant:" + tenant)
	}, "X-Tenant")
}
