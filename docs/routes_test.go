package docs_test

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/guard"
	"github.com/reqlock/reqlock/guard/routes"
	"github.com/reqlock/reqlock/guard/routes/yaml"
	"github.com/reqlock/reqlock/keyfuncs"
	httplock "github.com/reqlock/reqlock/middleware/nethttp"
	"github.com/reqlock/reqlock/wasm"
)

func Example_file() {
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer rdb.Close()
	locks, err := core.New(rdb, core.Options{})
	if err != nil {
		log.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	document, err := os.ReadFile("docs/guides/config.md")
	if err != nil {
		log.Fatal(err)
	}
	if err := os.WriteFile(dir+"/locks.yaml", []byte(blocks(string(document), "yaml")[0]), 0o600); err != nil {
		log.Fatal(err)
	}
	here, err := os.Getwd()
	if err != nil {
		log.Fatal(err)
	}
	if err := os.Chdir(dir); err != nil {
		log.Fatal(err)
	}
	defer func() {
		if err := os.Chdir(here); err != nil {
			log.Fatal(err)
		}
	}()
	type userKey struct{}
	mux := http.NewServeMux()
	charge := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {})
	pay := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		lease, _ := httplock.LeaseFrom(r.Context())
		fmt.Fprintf(w, "paid under lock %q", lease.Name())
	})
	report := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		lease, _ := httplock.LeaseFrom(r.Context())
		token, fenced := lease.Token()
		fmt.Fprintln(w, lease.Name(), token, fenced)
	})
	summary := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "sold: 7") })
	defer locks.Close(context.Background())

	file, err := httplock.FromFile(locks, "locks.yaml", routes.Options{
		Format:   yaml.Format, // nil: JSON
		Watch:    true,
		ReloadOn: []os.Signal{syscall.SIGHUP},
		Sources:  map[string]keyfuncs.Func{"user": keyfuncs.Context(userKey{})},
	})
	if err != nil {
		log.Fatal(err)
	}
	defer file.Close(context.Background()) // after the server's Shutdown
	mux.Handle("POST /orders/{id}/pay", file.Wrap(pay))
	mux.Handle("GET /reports/{id}", file.Wrap(report))
	mux.Handle("PUT /reports/{id}", file.Wrap(report))
	mux.Handle("POST /payments", file.Wrap(charge))
	mux.Handle("GET /summary", file.Wrap(summary))

	if err := file.Check(mux); err != nil {
		log.Fatal(err)
	}

	fmt.Println(answerOf(mux, post("/orders/42/pay")))
	fmt.Print(answerOf(mux, httptest.NewRequest(http.MethodGet, "/reports/7", nil)))
	fmt.Print(answerOf(mux, httptest.NewRequest(http.MethodPut, "/reports/7", nil)))
	first, again := httptest.NewRecorder(), httptest.NewRecorder()
	mux.ServeHTTP(first, httptest.NewRequest(http.MethodGet, "/summary", nil))
	mux.ServeHTTP(again, httptest.NewRequest(http.MethodGet, "/summary", nil))
	fmt.Printf("%s, %s, shared: %s\n", first.Body, again.Body, again.Header().Get("Reqlock-Shared"))
	// Output:
	// 200 paid under lock "reqlock:order:42"
	// 200 reqlock:report:7 0 false
	// 200 reqlock:report:7 1 true
	// sold: 7, sold: 7, shared: 1
}

// docs/guides/config.md
func TestOpenPlugin(t *testing.T) {
	t.Parallel()
	ctx := t.Context()

	openPlugin := func(path string) (routes.Plugin, error) {
		return wasm.Open(ctx, path, wasm.Config{Watch: true})
	}

	plugin, err := openPlugin("wasm/testdata/key.wasm")
	if err != nil {
		t.Fatal(err)
	}
	if err := plugin.Close(context.Background()); err != nil {
		t.Error(err)
	}
}

// docs/guides/wasm.md: a plugin with limits and settings of its service.
func TestPluginLimits(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	plugin, err := wasm.Open(ctx, "examples/wasm/plugin.wasm", wasm.Config{
		Watch:       true,
		Timeout:     10 * time.Millisecond, // of the guest's own time
		InitTimeout: 5 * time.Minute,       // to compile it, on a busy machine
		MaxLease:    time.Minute,
		Settings:    []byte(`{"vip": ["acme"]}`),
	})
	if err != nil {
		t.Fatal(err)
	}
	defer plugin.Close(context.Background())
	policy := guard.Policy{}
	if err := plugin.Policy(httptest.NewRequest("GET", "/acme/todo", nil), &policy); err != nil || !slices.Equal(policy.Keys, []string{"acme/todo"}) {
		t.Errorf("the plugin decides %v, %v; want the key acme/todo", policy.Keys, err)
	}
}
