// Config is a web server whose locks are described in a file. Operators change how requests exclude
// each other while the server runs.
//
//	go run ./examples/config         changes the file under way, then serves until Ctrl-C
//	go run ./examples/config -once   exits after the demonstration
//
// It needs only Go: Redis runs inside the process unless REDIS_URL is set.
package main

import (
	"context"
	_ "embed"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/examples/internal/demo"
	"github.com/reqlock/reqlock/guard/routes"
	"github.com/reqlock/reqlock/guard/routes/yaml"
	httplock "github.com/reqlock/reqlock/middleware/nethttp"
)

const workTime = time.Second

//go:embed locks.yaml
var locksYAML string

// A server has its file in a directory of its own, so that the demonstration may change it.
type server struct {
	path string
	file *httplock.File
}

func main() {
	dir, err := os.MkdirTemp("", "reqlock-config-")
	if err == nil {
		err = run(&server{path: filepath.Join(dir, "locks.yaml")})
		_ = os.RemoveAll(dir) // the system clears it otherwise
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "config:", err)
		os.Exit(1)
	}
}

func run(s *server) error {
	if err := s.write(locksYAML); err != nil {
		return err
	}
	demo.Main(demo.Program{Name: "config", What: "Reports", Open: s.open, Demonstrate: s.demonstrate, Invite: s.invitation})
	return s.file.Close(context.Background())
}

func (s *server) open(rdb *redis.Client) (*core.Client, http.Handler, error) {
	locks, err := core.New(rdb, core.Options{}) // demo.Main closes them with the server
	if err != nil {
		return nil, nil, err
	}
	s.file, err = httplock.FromFile(locks, s.path, routes.Options{
		Format:   yaml.Format,
		Watch:    true, // or only on a signal:
		ReloadOn: []os.Signal{syscall.SIGHUP},
	})
	if err != nil {
		return nil, nil, err
	}
	mux := http.NewServeMux()
	mux.Handle("POST /reports/{id}", s.file.Wrap(http.HandlerFunc(report)))
	return locks, mux, nil
}

// write replaces the file. Renaming another one over it shows no half of it to anyone.
func (s *server) write(text string) error {
	next := s.path + ".next"
	if err := os.WriteFile(next, []byte(text), 0o600); err != nil {
		return err
	}
	return os.Rename(next, s.path)
}

// report stands in for work that concurrent requests would do twice.
func report(w http.ResponseWriter, r *http.Request) {
	began := time.Now()
	// The client disconnected, or the lock is lost.
	if err := demo.Work(r.Context(), workTime); err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	demo.Time(w.Header(), began)
	fmt.Fprintf(w, "report %s is ready\n", r.PathValue("id"))
}
