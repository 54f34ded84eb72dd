package caddylock_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/internal/lab/redistest"

	caddylock "github.com/reqlock/reqlock/caddy"
)

// Another app fails to start, for example because its port is taken, while the check of Redis
// holds its lock. Caddy then stops and cleans up the App. No lock is left.
func TestApp_StopsDuringItsCheck(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	rdb, proxy := server.Client(t), server.Proxy(t)
	warm, err := core.New(rdb, core.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := warm.Ping(t.Context()); err != nil { // Redis knows the scripts now
		t.Fatal(err)
	}
	if err := warm.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	acquires := func(args []string) bool {
		return args[0] == "EVALSHA" && slices.Contains(args, "10000") && // ms of lease
			slices.ContainsFunc(args, func(arg string) bool { return strings.HasPrefix(arg, "reqlock:ping:") })
	}
	held := proxy.OnMatch(1, acquires, redistest.HoldReply)

	ctx, cancel := caddy.NewContext(caddy.Context{Context: context.Background()})
	defer cancel()
	app := &caddylock.App{Redis: "redis://" + proxy.Addr()}
	if err := app.Provision(ctx); err != nil {
		t.Fatal(err)
	}
	if err := app.Start(); err != nil {
		t.Fatal(err)
	}
	<-held.Hit()
	if n := rdb.DBSize(t.Context()).Val(); n != 1 {
		t.Errorf("%d keys while the check holds its lock, want 1", n)
	}
	if err := app.Stop(); err != nil {
		t.Error(err)
	}
	if err := app.Cleanup(); err != nil {
		t.Error(err)
	}
	if keys := rdb.Keys(t.Context(), "*").Val(); len(keys) > 0 {
		t.Errorf("%q are left", keys)
	}
	held.Release()
}
