package claim

import (
	"os"
	"testing"

	"github.com/reqlock/reqlock/core/internal/machine"
)

func TestMain(m *testing.M) {
	machine.Strict = true
	os.Exit(m.Run())
}
