package hub

import (
	"context"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/reqlock/reqlock/internal/redistest"
	"go.uber.org/goleak"
)

// quiet takes what go-redis would write to standard error about the connections that these tests break.
type quiet struct{}

func (quiet) Printf(context.Context, string, ...any) {}

func TestMain(m *testing.M) {
	redis.SetLogger(quiet{})
	goleak.VerifyTestMain(redistest.Settled(m))
}
