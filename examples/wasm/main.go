// Wasm is a web server that keeps lists for tenants. A WebAssembly plugin decides what to lock. The
// plugin is in the directory plugin: edit it, build it with the command in its doc comment, and the
// server uses the new version without a restart.
//
//	go run ./examples/wasm         shows colliding requests, then serves until Ctrl-C
//	go run ./examples/wasm -once   exits after the demonstration
//
// It needs only Go: Redis runs inside the process unless REDIS_URL is set.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"os"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/examples/internal/demo"
	httplock "github.com/reqlock/reqlock/middleware/nethttp"
	"github.com/reqlock/reqlock/wasm"
)

const workTime = 500 * time.Millisecond

// startTime is generous: compiling a plugin written in Go takes a second, or more on a busy
// machine.
const startTime = 2 * time.Minute

func main() {
	var s service
	flag.StringVar(&s.file, "plugin", pluginFile(), "`file` of the plugin; new versions are loaded automatically")
	demo.Main(demo.Program{Name: "wasm", What: "Lists", Open: s.open, Demonstrate: demonstrate, Invite: invitation})
	if err := s.plugin.Close(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "wasm:", err)
		os.Exit(1)
	}
}

// pluginFile returns the example's plugin, as seen from the repository's root or the example's
// directory.
func pluginFile() string {
	const file = "plugin.wasm"
	if _, err := os.Stat(file); errors.Is(err, fs.ErrNotExist) {
		return "examples/wasm/" + file
	}
	return file
}

type service struct {
	file   string
	plugin *wasm.Plugin
}

func (s *service) open(rdb *redis.Client) (*core.Client, http.Handler, error) {
	plugin, err := wasm.Open(context.Background(), s.file, wasm.Config{
		Watch:       true,
		Timeout:     5 * time.Second, // 50ms may be too short on a busy machine
		InitTimeout: startTime,
		Logger:      slog.New(slog.NewTextHandler(os.Stdout, nil)), // logs new versions
	})
	if err != nil {
		return nil, nil, err
	}
	s.plugin = plugin
	locks, err := core.New(rdb, core.Options{}) // demo.Main closes them with the server
	if err != nil {
		return nil, nil, err
	}
	decided := httplock.New(locks, httplock.Config{Policy: plugin.Policy})
	mux := http.NewServeMux()
	lists := decided(http.HandlerFunc(list))
	mux.Handle("GET /{tenant}/{list}", lists)
	mux.Handle("POST /{tenant}/{list}", lists)
	return locks, mux, nil
}

// list stands in for reading or changing a tenant's list.
func list(w http.ResponseWriter, r *http.Request) {
	began := time.Now()
	// The client disconnected, or the lock is lost.
	if err := demo.Work(r.Context(), workTime); err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	demo.Time(w.Header(), began)
	fmt.Fprintf(w, "%s of %s's %s is done\n", r.Method, r.PathValue("tenant"), r.PathValue("list"))
}
