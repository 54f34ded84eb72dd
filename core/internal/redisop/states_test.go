package redisop

import (
	"testing"

	"github.com/reqlock/reqlock/core/internal/machine/machinetest"
)

// docs/inside/engine-states.md says what the machine says.
func TestStates_Document(t *testing.T) {
	t.Parallel()
	machinetest.Document(t, "../../../docs/inside/engine-states.md", map[string]string{"command": opStates.Table()})
}
