package core

import (
	"flag"
	"fmt"
	"os"
	"testing"

	"github.com/reqlock/reqlock/core/internal/machine"
	"github.com/reqlock/reqlock/internal/lab/redistest"
	"go.uber.org/goleak"
)

// TestMain runs more tests at a time than there are processors, because nearly all of them wait. No
// goroutine may be left afterwards.
func TestMain(m *testing.M) {
	machine.Strict = true
	flag.Parse()
	chosen := false
	flag.Visit(func(f *flag.Flag) { chosen = chosen || f.Name == "test.parallel" })
	if !chosen {
		if err := flag.Set("test.parallel", "12"); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(2)
		}
	}
	const redis = "github.com/redis/go-redis/v9."
	// A client of NewFailoverClusterClient never ends its subscription. core makes none this way.
	own := []goleak.Option{
		goleak.IgnoreAnyFunction(redis + "(*sentinelFailover).listen"),
		goleak.IgnoreAnyFunction(redis + "(*channel).initMsgChan.func1"),
		goleak.IgnoreAnyFunction(redis + "(*channel).initHealthCheck.func1"),
	}
	goleak.VerifyTestMain(redistest.Settled(m, own...), own...)
}
