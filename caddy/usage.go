package caddylock

import "sync"

// A usage counts the requests that use the resources of a handler. Caddy cleans a configuration up
// while its last requests still run, so these decide when the resources may go.
type usage struct {
	// release gives the resources back.
	release func()
	// borrow takes them again for one request, which Caddy may begin on a configuration that it has
	// just cleaned up.
	borrow func() (release func())

	mu      sync.Mutex
	running int
	retired bool
	done    bool // release has been called.
}

// enter counts a request until leave is called.
func (u *usage) enter() (leave func()) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.done {
		return u.borrow()
	}
	u.running++
	return u.leave
}

// leave ends a request. The last one of a retired handler releases the resources.
func (u *usage) leave() {
	u.mu.Lock()
	u.running--
	last := u.retired && u.running == 0 && !u.done
	u.done = u.done || last
	u.mu.Unlock()
	if last {
		u.release()
	}
}

// retire releases the resources once no request runs, or now.
func (u *usage) retire(now bool) {
	u.mu.Lock()
	u.retired = true
	release := (now || u.running == 0) && !u.done
	u.done = u.done || release
	u.mu.Unlock()
	if release {
		u.release()
	}
}
