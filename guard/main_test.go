package guard

import (
	"testing"

	"github.com/reqlock/reqlock/internal/lab/redistest"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	RefusedAtOnce()
	goleak.VerifyTestMain(redistest.Settled(m))
}
