//go:build interop

package redisson

import (
	"strconv"
	"testing"
)

// testTokens acquires a fenced lock alternately. Its tokens rise whichever side acquires.
func (topo *topology) testTokens(t *testing.T) {
	name, thread := newName("tokens"), newName("thread")
	lock := fenced.lock(topo.clients(t), name)
	var last uint64
	rises := func(side string, token uint64) {
		if token <= last {
			t.Errorf("%s got token %d after %d", side, token, last)
		}
		last = token
	}
	for range 5 {
		token, err := strconv.ParseUint(topo.peer.ask(t, thread, "lock", fenced.name, name, -1), 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		rises("the JVM", token)
		topo.peer.ask(t, thread, "unlock", fenced.name, name)

		l := mustAcquire(t, t.Context(), lock)
		token, ok := l.Token()
		if !ok {
			t.Fatal("no token for us")
		}
		rises("Go", token)
		topo.peer.want(t, token, thread, "token", fenced.name, name)
		mustRelease(t, l)
	}
}
