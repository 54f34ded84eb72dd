// Wasm is a web server that keeps lists for tenants, and leaves it to a WebAssembly plugin what is locked. The plugin is in the
// folder plugin: edit it, build it with the one command that stands there, and the server goes by the new version without a
// restart.
//
//	go run ./examples/wasm         shows what the plugin does to requests that collide, then serves until Ctrl-C
//	go run ./examples/wasm -once   ends after the demonstration
//
// It needs nothing but Go: Redis runs inside the process, unless REDIS_URL names another.
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

// startTime is generous: compiling a plugin written in Go takes a second, and more on a busy machine.
const startTime = 2 * time.Minute

func main() {
	var s service
	flag.StringVar(&s.file, "plugin", pluginFile(), "`file` of the plugin; a new version of it takes over by itself")
	demo.Main(demo.Program{Name: "wasm", What: "Lists", Open: s.open, Demonstrate: demonstrate, Invite: invitation})
	if err := s.plugin.Close(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "wasm:", err)
		os.Exit(1)
	}
}

// pluginFile is the plugin that comes with the example, seen from the root of the repository or from the example's folder.
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
		Timeout:     5 * time.Second, // a demonstration on a busy machine should not depend on 50ms
		InitTimeout: startTime,
		Logger:      slog.New(slog.NewTextHandler(os.Stdout, nil)), // a new version is announced
	})
	if err != nil {
		return nil, nil, err
	}
	s.plugin = plugin
	locks, err := core.New(rdb, core.Options{}) // whoever shuts the server down closes them; demo.Main does
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

// list stands for reading a tenant's list, or for changing it.
func list(w http.ResponseWriter, r *http.Request) {
	began := time.Now()
	if err := demo.Work(r.Context(), workTime); err != nil { // the client has left, or the lock is lost
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	demo.Time(w.Header(), began)
	fmt.Fprintf(w, "%s of %s's %s is done\n", r.Method, r.PathValue("tenant"), r.PathValue("list"))
}
