package httplock

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-chi/chi/v5"
	"github.com/reqlock/reqlock/guard"
	"github.com/reqlock/reqlock/guard/routes"
	"github.com/reqlock/reqlock/internal/lab/locktest"
	"github.com/reqlock/reqlock/keyfuncs"
)

// configFile returns the path of a new file.
func configFile(t *testing.T, src string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "locks.json")
	if err := os.WriteFile(path, []byte(src), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestFromFile(t *testing.T) {
	t.Parallel()
	path := configFile(t, `{"routes": [
		{"method": "POST", "pattern": "/orders/{id}", "key": "order:{path.id}"},
		{"method": "POST", "pattern": "/pay", "idempotency": {"scope": "{user}"}},
		{"method": "PUT", "pattern": "/pay", "idempotency": {"scope": "{user}"}},
		{"method": "POST", "pattern": "/both/{id}", "key": "{path.id}", "idempotency": {"scope": "global"}}
	]}`)
	locks, runs := locktest.NewLocks(t), 0
	quiet := slog.New(slog.DiscardHandler)
	file, err := FromFile(locks, path, routes.Options{Logger: quiet, Sources: map[string]keyfuncs.Func{"user": keyfuncs.Header("X-User")}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := file.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}()
	handler := file.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		runs++
		name := "no lock"
		if lease, ok := guard.LeaseFrom(r.Context()); ok {
			name = lease.Name()
		}
		fmt.Fprint(w, name, " ", runs)
	}))
	mux := http.NewServeMux()
	for _, pattern := range []string{"POST /orders/{id}", "PUT /orders/{id}", "POST /pay", "PUT /pay", "POST /both/{id}"} {
		mux.Handle(pattern, handler)
	}
	outside := locktest.NewServer(t, file.Wrap(mux))
	s := locktest.NewServer(t, mux)

	outside.Want("POST", "/orders/42", 500, "misconfigured")
	locktest.MustHold(t, locks, "reqlock:order:1")
	s.Want("POST", "/orders/1", 409, "locked")
	s.Want("PUT", "/orders/1", 200, "no lock 1")
	s.Want("POST", "/orders/42", 200, "reqlock:order:42 2")

	anna := func(r *http.Request) { r.Header.Set("X-User", "anna") }
	first, again := s.PostWithKey("/pay", "k", anna), s.PostWithKey("/pay", "k", anna)
	if first.Status != 200 || again.Body != first.Body || !again.Replayed() {
		t.Errorf("payment %v, then %v, want a replay", first, again)
	}
	put := func(r *http.Request) { r.Method = "PUT" }
	if a, again := s.PostWithKey("/pay", "k3", anna, put), s.PostWithKey("/pay", "k3", anna, put); a.Status != 200 || !again.Replayed() {
		t.Errorf("PUT %v, then %v, want a replay", a, again)
	}
	if a := s.PostWithKey("/pay", "k"); a.Status != 400 {
		t.Errorf("without a user: %v", a)
	}
	locktest.MustHold(t, locks, "reqlock:held")
	if a := s.PostWithKey("/both/held", "k"); a.Status != 409 {
		t.Errorf("with the lock held: %v", a)
	}
	first = s.PostWithKey("/both/1", "k2")
	locktest.MustHold(t, locks, "reqlock:1")
	if again = s.PostWithKey("/both/1", "k2"); first.Status != 200 || !again.Replayed() {
		t.Errorf("with both: %v, then %v", first, again)
	}

	if err := errors.Join(file.Check(mux), file.CheckRoutes("POST /orders/{order}", "POST /pay", "PUT /pay", "/both/{id}")); err != nil {
		t.Error(err)
	}
	if err := os.WriteFile(path, []byte(`{"routes": [{"pattern": "/order/{id}", "key": "k"}]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := file.Reload(); err != nil {
		t.Fatal(err)
	}
	s.Want("POST", "/orders/1", 200, "no lock")
	for _, err := range []error{file.Check(mux), file.CheckRoutes("POST /orders/{id}")} {
		if err == nil || !strings.Contains(err.Error(), `locks.json:1:13: the program has no route "/order/{id}"`) {
			t.Errorf("a check of a wrong pattern: %v", err)
		}
	}
}

// The file is served as by the other adapters.
func TestFromFile_Coalesce(t *testing.T) {
	t.Parallel()
	mux := http.NewServeMux()
	locktest.FileTest[*File]{
		Open: FromFile,
		User: func(*http.Request) (string, error) { return "anna", nil },
		Serve: func(file *File, run func() string) *locktest.Server {
			order := func(w http.ResponseWriter, r *http.Request) {
				name := "no lock"
				if lease, ok := guard.LeaseFrom(r.Context()); ok {
					name = lease.Name()
				}
				fmt.Fprint(w, name)
			}
			for pattern, handle := range map[string]http.HandlerFunc{
				"GET /orders/{id}":  order,
				"PUT /orders/{id}":  order,
				"GET /reports/{id}": func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, run()) },
				"POST /pay/{id}": func(w http.ResponseWriter, _ *http.Request) {
					w.WriteHeader(http.StatusCreated)
					fmt.Fprint(w, run())
				},
			} {
				mux.Handle(pattern, file.Wrap(handle))
			}
			return locktest.NewServer(t, mux)
		},
		Check: func(file *File) error { return file.Check(mux) },
	}.Run(t)
}

// routed serves a file of one row, POST pattern with the key k, whose route mount adds to a router.
// It returns the log as well.
func routed(t *testing.T, pattern string, mount func(file *File, lock http.Handler) http.Handler) (*locktest.Server, *File, *bytes.Buffer) {
	t.Helper()
	log := new(bytes.Buffer)
	path := configFile(t, `{"routes": [{"method": "POST", "pattern": "`+pattern+`", "key": "k"}]}`)
	file, err := FromFile(locktest.NewLocks(t), path, routes.Options{Logger: slog.New(slog.NewTextHandler(log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := file.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return locktest.NewServer(t, mount(file, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name := "no lock"
		if lease, ok := guard.LeaseFrom(r.Context()); ok {
			name = lease.Name()
		}
		fmt.Fprint(w, name)
	}))), file, log
}

// chi cuts the last slash of a route from Request.Pattern, and chi.Walk does not.
func TestFromFile_ChiCutsTheSlash(t *testing.T) {
	t.Parallel()
	for row, listed := range map[string]bool{"/orders/": true, "/orders": false} {
		router := chi.NewRouter()
		s, file, _ := routed(t, row, func(file *File, lock http.Handler) http.Handler {
			router.Route("/orders", func(r chi.Router) { r.With(file.Wrap).Method("POST", "/", lock) })
			return router
		})
		s.Want("POST", "/orders", 200, "reqlock:k")
		s.Want("POST", "/orders/", 200, "reqlock:k")
		var routes []string
		if err := chi.Walk(router, func(method, route string, _ http.Handler, _ ...func(http.Handler) http.Handler) error {
			routes = append(routes, method+" "+route)
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		err := file.CheckRoutes(routes...)
		if want := `the program has no route "POST /orders"; want "POST /orders/", as the router has it`; listed != (err == nil) || err != nil && !strings.HasSuffix(err.Error(), want) {
			t.Errorf("row %s, routes %q: %v, want %s", row, routes, err, want)
		}
	}
}

// http.ServeMux has two routes there.
func TestFromFile_SlashOfServeMux(t *testing.T) {
	t.Parallel()
	s, _, _ := routed(t, "/orders/", func(file *File, lock http.Handler) http.Handler {
		mux := http.NewServeMux()
		mux.Handle("POST /orders", file.Wrap(lock))
		mux.Handle("POST /orders/", file.Wrap(lock))
		return mux
	})
	s.Want("POST", "/orders", 200, "no lock")
	s.Want("POST", "/orders/", 200, "reqlock:k")
}

// Around a router inside another one, the route that will answer is not known yet.
func TestFromFile_InsideAnOuterRoute(t *testing.T) {
	t.Parallel()
	inChi := func(file *File, lock http.Handler) http.Handler {
		router := chi.NewRouter()
		router.Route("/api", func(r chi.Router) {
			r.Use(file.Wrap)
			r.Method("POST", "/orders/{id}", lock)
			r.Method("GET", "/orders/{id}", lock)
			r.Method("POST", "/other", lock)
		})
		return router
	}
	stripped := func(pattern string, inner ...string) func(*File, http.Handler) http.Handler {
		return func(file *File, lock http.Handler) http.Handler {
			mux, outer := http.NewServeMux(), http.NewServeMux()
			for _, route := range inner {
				mux.Handle(route, lock)
			}
			outer.Handle(pattern, http.StripPrefix("/api", file.Wrap(mux)))
			return outer
		}
	}
	for name, test := range map[string]struct {
		row   string
		mount func(*File, http.Handler) http.Handler
	}{
		"Use of chi":                  {"/api/orders/{id}", inChi},
		"StripPrefix, whole pattern":  {"/api/orders/{id}", stripped("/api/", "/orders/{id}", "/other")},
		"StripPrefix, inner pattern":  {"/orders/{id}", stripped("/api/", "/orders/{id}", "/other")},
		"a method and a wildcard":     {"/api/orders/{id}", stripped("/api/{rest...}", "/orders/{id}", "/other")},
		"a subtree below the subtree": {"/orders/", stripped("/api/", "/orders/", "/other")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, _, log := routed(t, test.row, test.mount)
			s.Want("GET", "/api/orders/1", 200, "no lock") // the row is for POST
			s.Want("POST", "/api/other", 200, "no lock")
			if log.Len() > 0 {
				t.Errorf("a log for other routes: %s", log)
			}
			s.Want("POST", "/api/orders/1", 500, "misconfigured")
			s.Want("POST", "/api/orders/a%2Fb", 500, "misconfigured")
			if want := `wrap the handler of the route \"POST ` + test.row; !strings.Contains(log.String(), want) {
				t.Errorf("the log is %s, want %s", log, want)
			}
		})
	}
}

// A subtree that is a route itself passes all paths that no row has.
func TestFromFile_Subtree(t *testing.T) {
	t.Parallel()
	s, _, _ := routed(t, "/orders/{id}", func(file *File, lock http.Handler) http.Handler {
		mux := http.NewServeMux()
		mux.Handle("POST /orders/{id}", file.Wrap(lock))
		mux.Handle("POST /orders/new", file.Wrap(lock))
		mux.Handle("/", file.Wrap(lock))
		return mux
	})
	s.Want("POST", "/orders/1", 200, "reqlock:k")
	s.Want("POST", "/orders/new", 200, "no lock")
	s.Want("POST", "/orders/1/pay", 200, "no lock")
	s.Want("POST", "/", 200, "no lock")
}

func TestFromFile_Mistake(t *testing.T) {
	t.Parallel()
	path := configFile(t, `{"routes": [{"pattern": "/x", "idempotency": {"scope": "global", "route": "/pay/{id}"}}]}`)
	want := "reqlock: routes: " + path + ":1:13: reqlock: idempotency: invalid Config: "
	if _, err := FromFile(locktest.NewLocks(t), path, routes.Options{}); err == nil || err.Error()[:len(want)] != want {
		t.Errorf("%v, want %s", err, want)
	}
}
