package redistest

import (
	"testing"

	"github.com/redis/go-redis/v9/logging"
)

// Silence go-redis's log in test binaries. Their connections are broken on purpose, and hundreds of
// lines about that would bury the failed test. A test that needs the log sets its own logger.
func init() {
	if testing.Testing() {
		logging.Disable()
	}
}
