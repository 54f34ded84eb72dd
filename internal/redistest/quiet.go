package redistest

import (
	"testing"

	"github.com/redis/go-redis/v9/logging"
)

// A test binary that talks to these servers prints nothing of go-redis's own: their connections are broken on purpose, and
// hundreds of lines about it would bury the one that says which test has failed. A test that wants to read them sets a
// logger of its own.
func init() {
	if testing.Testing() {
		logging.Disable()
	}
}
