package inspect

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/reqlock/reqlock/internal/lab/redistest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(redistest.Settled(m)) }
