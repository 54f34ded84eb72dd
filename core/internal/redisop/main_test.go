package redisop

import (
	"testing"

	"github.com/reqlock/reqlock/core/internal/machine"
	"github.com/reqlock/reqlock/internal/lab/redistest"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	machine.Strict = true
	goleak.VerifyTestMain(redistest.Settled(m))
}
