package inspect_test

import (
	"context"
	"net/http"
	"strconv"

	"github.com/redis/go-redis/v9"

	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/inspect"
	"github.com/reqlock/reqlock/wasm"
)

func requireAdmin(next http.Handler) http.Handler { return next } // your own authentication

// A page for the people who run the service.
func ExampleHandler() {
	var locks *core.Client // your own
	mount := func(mux *http.ServeMux) {
		mux.Handle("GET /debug/locks/", requireAdmin(inspect.Handler(locks, inspect.Options{})))
	}
	_ = mount
}

func unlockable(mux *http.ServeMux, locks *core.Client) {
	page := requireAdmin(inspect.Handler(locks, inspect.Options{
		AllowUnlock: true,
		UnlockHosts: []string{"locks.example.com"},
	}))
	mux.Handle("GET /debug/locks/", page)
	mux.Handle("POST /debug/locks/unlock", page)
}

type requestID struct{} // the key that your own middleware uses

func annotated(rdb *redis.Client) (*core.Client, error) {
	locks, err := core.New(rdb, core.Options{
		Annotate: func(ctx context.Context) core.Annotation {
			id, _ := ctx.Value(requestID{}).(string)
			return core.Annotation{RequestID: id}
		},
	})
	return locks, err
}

func withPlugin(locks *core.Client, plugin *wasm.Plugin) http.Handler {
	page := inspect.Handler(locks, inspect.Options{
		Sections: []inspect.Section{{Title: "Plugin", Rows: func() []inspect.Row {
			stats := plugin.Stats()
			return []inspect.Row{
				{Name: "Running", Value: strconv.Itoa(stats.Running)},
				{Name: "Breaker", Value: stats.Breaker.String()},
			}
		}}},
	})
	return page
}

var _, _, _ = unlockable, annotated, withPlugin
