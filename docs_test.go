package reqlock_test

import (
	"bytes"
	"context"
	"crypto/aes"
	"crypto/cipher"
	"errors"
	"expvar"
	"fmt"
	"io"
	"io/fs"
	"log"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/go-chi/chi/v5"
	"github.com/labstack/echo/v4"
	"github.com/labstack/echo/v4/middleware"
	"github.com/redis/go-redis/v9"

	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/embedded"
	"github.com/reqlock/reqlock/guard"
	"github.com/reqlock/reqlock/guard/routes"
	"github.com/reqlock/reqlock/guard/routes/yaml"
	"github.com/reqlock/reqlock/idempotency"
	"github.com/reqlock/reqlock/internal/lab/redistest"
	"github.com/reqlock/reqlock/keyfuncs"
	echolock "github.com/reqlock/reqlock/middleware/echo"
	ginlock "github.com/reqlock/reqlock/middleware/gin"
	httplock "github.com/reqlock/reqlock/middleware/nethttp"
	"github.com/reqlock/reqlock/wasm"
)

func init() { gin.SetMode(gin.TestMode) }

// newLocks returns a client of a new Redis.
func newLocks(t *testing.T) *core.Client {
	t.Helper()
	locks, err := core.New(redistest.Start(t).Client(t), core.Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := locks.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return locks
}

// hold holds a lock as another process would, until the test ends.
func hold(t *testing.T, locks *core.Client, name string) {
	t.Helper()
	lease, err := locks.Lock(name).Acquire(context.Background(), core.AcquireOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := lease.Release(context.Background()); err != nil {
			t.Error(err)
		}
	})
}

// answerOf returns a handler's answer to a request: the status, a space, and the body.
func answerOf(h http.Handler, r *http.Request) string {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return fmt.Sprint(w.Code, " ", w.Body)
}

func post(path string) *http.Request { return httptest.NewRequest(http.MethodPost, path, nil) }

type tenantKey struct{}

func TestKeySources(t *testing.T) {
	t.Parallel()
	byOrder := keyfuncs.Prefix("order:", keyfuncs.PathValue("id"))
	byTenant := keyfuncs.Join(keyfuncs.Context(tenantKey{}), keyfuncs.PathValue("id"))
	byText := keyfuncs.Template("order:{header.X-Tenant}:{path.id}")
	byJSON := keyfuncs.Prefix("order:", keyfuncs.JSON("/order/id")) // {"order": {"id": 42}}

	byClient := keyfuncs.ClientIP(netip.MustParsePrefix("10.1.2.0/24")) // your load balancers

	r := httptest.NewRequest(http.MethodPost, "/orders/42", strings.NewReader(`{"order": {"id": 42}}`)).WithContext(context.WithValue(t.Context(), tenantKey{}, "acme"))
	r.SetPathValue("id", "42")
	r.Header.Set("X-Tenant", "acme")
	r.Header.Set("Content-Type", "application/json")
	r.RemoteAddr = "10.1.2.3:4567"
	r.Header.Set("X-Forwarded-For", "6.6.6.6, 203.0.113.7")
	for _, test := range []struct {
		key  keyfuncs.Func
		want string
	}{{byOrder, "order:42"}, {byTenant, "acme:42"}, {byText, "order:acme:42"}, {byJSON, "order:42"}, {byClient, "203.0.113.7"}} {
		if got, err := test.key(r); got != test.want || err != nil {
			t.Errorf("the key is %q (%v), want %q", got, err, test.want)
		}
	}
}

func TestKeysOfATransfer(t *testing.T) {
	t.Parallel()
	locks := newLocks(t)
	transfer := httplock.New(locks, httplock.Config{
		Keys: []keyfuncs.Func{
			keyfuncs.Prefix("account:", keyfuncs.JSON("/from")),
			keyfuncs.Prefix("account:", keyfuncs.JSON("/to")),
		},
		WaitTime: 2 * time.Second, // for both together
	})
	h := transfer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		for _, name := range []string{"reqlock:account:a", "reqlock:account:b"} {
			if held, err := locks.Lock(name).IsHeld(r.Context()); !held || err != nil {
				t.Errorf("%s held: %v, %v", name, held, err)
			}
		}
	}))
	r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(`{"from":"b","to":"a"}`))
	r.Header.Set("Content-Type", "application/json")
	if got := answerOf(h, r); got != "200 " {
		t.Error(got)
	}
}

func orderKey(r *http.Request) (string, error) {
	number, err := strconv.ParseUint(r.PathValue("id"), 10, 64)
	if err != nil {
		return "", fmt.Errorf("the number of the order: %w", keyfuncs.ErrInvalid) // 400
	}
	return "order:" + strconv.FormatUint(number, 10), nil // 42 and 042 are one
}

func TestKeyOfANumber(t *testing.T) {
	t.Parallel()
	locks := newLocks(t)
	hold(t, locks, "reqlock:order:42")
	mux := http.NewServeMux()
	mux.Handle("POST /orders/{id}", httplock.New(locks, httplock.Config{Key: orderKey})(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})))
	for path, want := range map[string]string{
		"/orders/42": "409", "/orders/042": "409", "/orders/%30%34%32": "409", "/orders/43": "200", "/orders/+42": "400", "/orders/x": "400",
	} {
		if got := answerOf(mux, post(path)); got[:3] != want {
			t.Errorf("%s: %s, want %s", path, got, want)
		}
	}
}

// held answers with the name of the held lock.
func held(w http.ResponseWriter, r *http.Request) {
	if lease, ok := httplock.LeaseFrom(r.Context()); ok {
		fmt.Fprint(w, lease.Name())
	}
}

func TestMounted(t *testing.T) {
	t.Parallel()
	locks := newLocks(t)
	oneAtATime := httplock.New(locks, httplock.Config{Key: keyfuncs.PathValue("id")})
	pay := http.HandlerFunc(held)
	payGin := func(c *gin.Context) { held(c.Writer, c.Request) }
	payEcho := func(c echo.Context) error { held(c.Response(), c.Request()); return nil }

	for name, h := range map[string]http.Handler{
		"net/http": func() http.Handler {
			mux := http.NewServeMux()
			mux.Handle("POST /orders/{id}/pay", oneAtATime(pay)) // around the handler, not the mux
			return mux
		}(),
		"chi": func() http.Handler {
			router := chi.NewRouter()
			// Call With or Group, not Use at the top: chi has not matched there.
			router.With(oneAtATime).Post("/orders/{id}/pay", pay)
			return router
		}(),
		"chi, in a group": func() http.Handler {
			router := chi.NewRouter()
			router.Group(func(r chi.Router) {
				r.Use(oneAtATime)
				r.Post("/orders/{id}/pay", pay)
			})
			return router
		}(),
		"Gin": func() http.Handler {
			lock := ginlock.New(locks, ginlock.Config{Key: keyfuncs.PathValue("id")})
			router := gin.New()
			router.POST("/orders/:id/pay", lock, payGin) // or router.Use(lock), or on a group
			return router
		}(),
		"Echo": func() http.Handler {
			lock := echolock.New(locks, echolock.Config{Key: keyfuncs.PathValue("id")})
			e := echo.New()
			e.POST("/orders/:id/pay", payEcho, lock) // or e.Use(lock), or on a group; not e.Pre
			return e
		}(),
		"inside a TimeoutHandler": func() http.Handler {
			mux := http.NewServeMux()
			mux.Handle("POST /orders/{id}/pay", http.TimeoutHandler(oneAtATime(pay), 5*time.Second, "too slow"))
			return mux
		}(),
	} {
		if got, want := answerOf(h, post("/orders/42/pay")), "200 reqlock:42"; got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
}

// service returns the service that the README tests.
func service(locks *core.Client) http.Handler {
	lock := httplock.New(locks, httplock.Config{Key: keyfuncs.Prefix("order:", keyfuncs.PathValue("id"))})
	mux := http.NewServeMux()
	mux.Handle("POST /orders/{id}/pay", lock(http.HandlerFunc(held)))
	return mux
}

func TestBusyOrder(t *testing.T) {
	srv, err := embedded.Start() // Redis, inside this process
	if err != nil {
		t.Fatal(err)
	}
	defer srv.Close()
	locks, err := core.New(srv.Client(), core.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer locks.Close(t.Context())
	// Hold the lock as another request would.
	lease, err := locks.Lock("reqlock:order:42").Acquire(t.Context(), core.AcquireOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer lease.Release(t.Context())

	w := httptest.NewRecorder()
	service(locks).ServeHTTP(w, httptest.NewRequest("POST", "/orders/42/pay", nil))
	if w.Code != http.StatusConflict {
		t.Errorf("second payment: status %d, want 409", w.Code)
	}
}

// The README's statements about a test without Redis and a lost lock.
func TestTestsOfFaults(t *testing.T) {
	srv, err := embedded.Start()
	if err != nil {
		t.Fatal(err)
	}
	defer srv.Close()
	rdb := redis.NewClient(&redis.Options{Addr: srv.Addr(), DialerRetries: 1})
	defer rdb.Close()
	locks, err := core.New(rdb, core.Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer locks.Close(t.Context())
	lost := httplock.New(locks, httplock.Config{Key: keyfuncs.Const("k"), Logger: slog.New(slog.DiscardHandler)})(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if freed, err := locks.Lock("reqlock:k").ForceUnlock(t.Context()); !freed || err != nil {
			t.Error(freed, err)
		}
		<-r.Context().Done()
		fmt.Fprint(w, context.Cause(r.Context()) == core.ErrLockLost)
	}))
	if got := answerOf(lost, post("/")); got != "200 true" {
		t.Error("the lock is lost: ", got)
	}
	if err := locks.Ping(t.Context()); err != nil {
		t.Error(err)
	}
	if err := srv.Close(); err != nil {
		t.Fatal(err)
	}
	if err := locks.Ping(t.Context()); err == nil || !strings.Contains(err.Error(), "Redis cannot be reached") {
		t.Errorf("there is no Redis: Ping: %v", err)
	}
	if got := answerOf(service(locks), post("/orders/42/pay")); !strings.HasPrefix(got, "503 ") || !strings.Contains(got, "backend-unavailable") {
		t.Error("there is no Redis: ", got)
	}
}

// A cross-origin script can read the refusal and Retry-After.
func TestCORS(t *testing.T) {
	t.Parallel()
	locks := newLocks(t)
	hold(t, locks, "reqlock:k")
	e := echo.New()
	e.Use(middleware.CORSWithConfig(middleware.CORSConfig{
		AllowOrigins:  []string{"https://shop.example"},
		ExposeHeaders: []string{"Retry-After"},
	}))
	e.POST("/", func(echo.Context) error { return nil }, echolock.New(locks, echolock.Config{Key: keyfuncs.Const("k")}))
	r, w := post("/"), httptest.NewRecorder()
	r.Header.Set("Origin", "https://shop.example")
	e.ServeHTTP(w, r)
	h := w.Header()
	if w.Code != 409 || h.Get("Retry-After") != "1" || h.Get("Access-Control-Expose-Headers") != "Retry-After" || h.Get("Access-Control-Allow-Origin") == "" {
		t.Errorf("answer %d %v", w.Code, h)
	}
	r, w = httptest.NewRequest(http.MethodOptions, "/", nil), httptest.NewRecorder()
	r.Header.Set("Origin", "https://shop.example")
	r.Header.Set("Access-Control-Request-Method", "POST")
	e.ServeHTTP(w, r)
	if w.Code != 204 || !strings.Contains(w.Header().Get("Access-Control-Allow-Methods"), "POST") {
		t.Errorf("preflight: status %d %v", w.Code, w.Header())
	}
}

// The handlers of docs/frameworks.md that release the lock early, and the functions they call. They
// report the state of the lock through the context.

type locksKey struct{}

// isFree reports whether the lock "reqlock:k" is free.
func isFree(ctx context.Context) string {
	locked, err := ctx.Value(locksKey{}).(*core.Client).Lock("reqlock:k").IsLocked(context.WithoutCancel(ctx))
	return fmt.Sprintf("free: %t %v, context: %v", !locked, err, ctx.Err())
}

func subscribe(ctx context.Context) {
	if got := isFree(ctx); got != "free: false <nil>, context: <nil>" {
		panic(got)
	}
}

func stream(w http.ResponseWriter, r *http.Request) { fmt.Fprintln(w, isFree(r.Context())) }

func chat(ctx context.Context, conn net.Conn) { fmt.Fprintln(conn, isFree(ctx)) }

func events(w http.ResponseWriter, r *http.Request) {
	subscribe(r.Context()) // needs the lock
	// The stream needs no protection. core.ErrNotHeld: the handler runs without a lock.
	if err := httplock.Release(r.Context()); errors.Is(err, core.ErrLockLost) {
		http.Error(w, "the lock was lost", http.StatusServiceUnavailable)
		return
	}
	stream(w, r) // r.Context() goes on until the handler returns
}

func socket(w http.ResponseWriter, r *http.Request) {
	conn, _, err := http.NewResponseController(w).Hijack() // or any websocket library
	if err != nil {
		http.Error(w, "no connection to take over", http.StatusInternalServerError)
		return
	}
	lease, ok := httplock.Detach(r.Context()) // not released when this handler returns
	if !ok {                                  // the handler runs without a lock
		conn.Close()
		return
	}
	go func() {
		ctx, cancel := lease.Bind(context.WithoutCancel(r.Context())) // ends when the lock is lost
		defer lease.Release(ctx)
		defer cancel()
		defer conn.Close()
		chat(ctx, conn)
	}()
}

func TestLettingGo(t *testing.T) {
	t.Parallel()
	locks := newLocks(t)
	lock := httplock.New(locks, httplock.Config{Key: keyfuncs.Const("k"), WaitTime: 10 * time.Second})
	mux := http.NewServeMux()
	mux.Handle("GET /events", lock(http.HandlerFunc(events)))
	mux.Handle("GET /socket", lock(http.HandlerFunc(socket)))
	srv := httptest.NewUnstartedServer(mux)
	srv.Config.BaseContext = func(net.Listener) context.Context { return context.WithValue(context.Background(), locksKey{}, locks) }
	srv.Start()
	defer srv.Close()

	open := httplock.New(locks, httplock.Config{Key: func(*http.Request) (string, error) { return "", keyfuncs.ErrSkip }})
	mux.Handle("GET /open/socket", open(http.HandlerFunc(socket)))

	for path, want := range map[string]string{
		"/events":      "free: true <nil>, context: <nil>\n",
		"/socket":      "free: false <nil>, context: <nil>\n",
		"/open/socket": "",
	} {
		conn, err := net.Dial("tcp", srv.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		fmt.Fprintf(conn, "GET %s HTTP/1.0\r\nHost: test\r\n\r\n", path)
		text, err := io.ReadAll(conn)
		if err != nil || !strings.Contains(string(text), want) || want == "" && len(text) > 0 {
			t.Errorf("%s: %q (%v), want %q", path, text, err, want)
		}
	}
}

// serves returns the answer to a POST with the idempotency key k.
func serves(h http.Handler, path string) string {
	r := post(path)
	r.Header.Set("Idempotency-Key", "k")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return fmt.Sprint(w.Code, " ", w.Body, " ", w.Header().Get("Idempotent-Replayed"))
}

// accountOf puts the account into the context, like authentication.
func accountOf(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), tenantKey{}, "acme")))
	})
}

func TestRouteWithAnotherPattern(t *testing.T) {
	t.Parallel()
	locks := newLocks(t)
	accountKey := tenantKey{}
	pay := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.Pattern) })
	before := http.NewServeMux()
	before.Handle("POST /pay/{id}", httplock.Idempotent(locks, idempotency.Config{Scope: keyfuncs.Context(accountKey)})(pay))
	mux := http.NewServeMux()

	once := httplock.Idempotent(locks, idempotency.Config{
		Scope: keyfuncs.Context(accountKey),
		Route: "/pay/{}", // what the default was when the pattern was POST /pay/{id}
	})
	mux.Handle("POST /{kind}/{id}", once(pay))

	for _, test := range []struct {
		deployed http.Handler
		want     string
	}{{before, "200 POST /pay/{id} "}, {mux, "200 POST /pay/{id} true"}} {
		if got := serves(accountOf(test.deployed), "/pay/1"); got != test.want {
			t.Errorf("%s, want %s", got, test.want)
		}
	}
}

// docs/idempotency-changes.md: a repeat with the old header does not run at the new version.
func TestScopeWithAnotherHeader(t *testing.T) {
	t.Parallel()
	locks := newLocks(t)
	done := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	before := httplock.Idempotent(locks, idempotency.Config{Scope: keyfuncs.Header("X-User")})
	once := httplock.Idempotent(locks, idempotency.Config{
		Scope:  keyfuncs.Join(keyfuncs.Context(tenantKey{}), keyfuncs.Header("X-User")), // was the user alone
		Header: "Idempotency-Key-2",
	})
	for i, deployed := range []http.Handler{before(done), once(done)} {
		r := post("/pay")
		r.Header.Set("Idempotency-Key", "k")
		r.Header.Set("X-User", "anna")
		w := httptest.NewRecorder()
		accountOf(deployed).ServeHTTP(w, r)
		if want := []int{200, 400}[i]; w.Code != want {
			t.Errorf("version %d answers %d, want %d", i+1, w.Code, want)
		}
	}
}

func TestHeadersOfRecords(t *testing.T) {
	t.Parallel()
	cfg := idempotency.Config{Scope: idempotency.ScopeGlobal}
	cfg.Headers = func(name string) bool { // the canonical name
		return name == "X-Next-Token" || idempotency.DefaultHeaders(name)
	}
	once := httplock.Idempotent(newLocks(t), cfg)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Next-Token", "1")
		w.Header().Set("X-Other-Token", "2")
	}))
	serves(once, "/")
	r, w := post("/"), httptest.NewRecorder()
	r.Header.Set("Idempotency-Key", "k")
	once.ServeHTTP(w, r)
	if w.Header().Get("X-Next-Token") != "1" || w.Header().Get("X-Other-Token") != "" {
		t.Errorf("the replay has %v", w.Header())
	}
}

type takesClear struct{ idempotency.Codec }

func (c takesClear) Open(stored []byte, name string) ([]byte, error) {
	if bytes.HasPrefix(stored, []byte("RQLI")) {
		return stored, nil
	}
	return c.Codec.Open(stored, name)
}

func TestSealedRecords(t *testing.T) {
	t.Parallel()
	locks := newLocks(t)
	cfg := idempotency.Config{Scope: idempotency.ScopeGlobal, Logger: slog.New(slog.DiscardHandler)}
	runs := 0
	pay := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		runs++
		fmt.Fprint(w, runs)
	})
	plain := httplock.Idempotent(locks, cfg)(pay)
	key := bytes.Repeat([]byte("k"), 32)
	block, err := aes.NewCipher(key) // 32 bytes from your secret store: AES-256
	if err != nil {
		log.Fatal(err)
	}
	gcm, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		log.Fatal(err)
	}
	cfg.Codec = idempotency.AEAD(gcm)
	sealed := httplock.Idempotent(locks, cfg)(pay)
	cfg.Codec = takesClear{cfg.Codec}
	both := httplock.Idempotent(locks, cfg)(pay)
	for _, test := range []struct {
		h          http.Handler
		path, want string
	}{
		{plain, "/1", "200 1 "}, {both, "/1", "200 1 true"}, {sealed, "/2", "200 2 "}, {both, "/2", "200 2 true"}, {sealed, "/2", "200 2 true"},
		{sealed, "/1", "503"}, {plain, "/2", "503"},
	} {
		if got := serves(test.h, test.path); !strings.HasPrefix(got, test.want) {
			t.Errorf("%s: %s, want %s", test.path, got, test.want)
		}
	}
}

func Example_metrics() {
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer rdb.Close()

	var outcomes expvar.Map // or counters of whatever you measure with
	var lost expvar.Int
	locks, err := core.New(rdb, core.Options{Observer: core.Observer{
		Lost: func(context.Context, core.Event) { lost.Add(1) },
	}})
	if err != nil {
		log.Fatal(err)
	}
	oneAtATime := httplock.New(locks, httplock.Config{
		Key: keyfuncs.PathValue("id"),
		Observe: func(r *http.Request, o guard.Outcome) { // also o.Waited, o.Held, for histograms
			outcome := "ran"
			if refusal := (*guard.Error)(nil); errors.As(o.Err, &refusal) {
				outcome = strings.TrimPrefix(refusal.Type, "urn:reqlock:problem:")
			}
			outcomes.Add(outcome, 1)
		},
	})

	defer locks.Close(context.Background())
	mux := http.NewServeMux()
	mux.Handle("POST /metered/{id}", oneAtATime(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mux.ServeHTTP(httptest.NewRecorder(), post("/metered/1")) // while this one has the lock
	})))
	mux.ServeHTTP(httptest.NewRecorder(), post("/metered/1"))
	fmt.Println(&outcomes, &lost)
	// Output: {"locked": 1, "ran": 1} 0
}

func TestHealthChecks(t *testing.T) {
	t.Parallel()
	locks := newLocks(t)
	ctx, mux := t.Context(), http.NewServeMux()

	if err := locks.Ping(ctx); err != nil { // at start-up
		log.Fatal(err)
	}
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		if err := locks.Ping(r.Context()); err != nil {
			slog.Error("not ready", "error", err) // it names users and addresses: not for clients
			http.Error(w, "locks do not work", http.StatusServiceUnavailable)
		}
	})

	if got := answerOf(mux, httptest.NewRequest(http.MethodGet, "/readyz", nil)); got != "200 " {
		t.Error(got)
	}
}

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
	document, err := os.ReadFile("docs/config.md")
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

	if err := file.Check(mux); err != nil {
		log.Fatal(err)
	}

	fmt.Println(answerOf(mux, post("/orders/42/pay")))
	fmt.Print(answerOf(mux, httptest.NewRequest(http.MethodGet, "/reports/7", nil)))
	fmt.Print(answerOf(mux, httptest.NewRequest(http.MethodPut, "/reports/7", nil)))
	// Output:
	// 200 paid under lock "reqlock:order:42"
	// 200 reqlock:report:7 0 false
	// 200 reqlock:report:7 1 true
}

// docs/config.md
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

// The pages of the engine name tests and methods of core that exist.
func TestEngineNamesExist(t *testing.T) {
	t.Parallel()
	var source strings.Builder
	if err := filepath.WalkDir("core", func(path string, _ fs.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(path, ".go") {
			source.WriteString(read(t, path))
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	var engine strings.Builder
	for _, page := range []string{"engine", "engine-states", "engine-holds", "engine-waiting"} {
		engine.WriteString(read(t, "docs/"+page+".md"))
	}
	tests := regexp.MustCompile("`(Test[A-Za-z0-9_]+)`").FindAllStringSubmatch(engine.String(), -1)
	for _, name := range tests {
		if !strings.Contains(source.String(), "\nfunc "+name[1]+"(") {
			t.Errorf("the docs of the engine name %s, which does not exist", name[1])
		}
	}
	methods := regexp.MustCompile("`([A-Za-z]+)\\.([A-Za-z]+)`").FindAllStringSubmatch(engine.String(), -1)
	for _, name := range methods {
		declaration := regexp.MustCompile(`\nfunc \(\w+ \*?` + name[1] + `(\[\w+\])?\) ` + name[2] + `\(`)
		if !declaration.MatchString(source.String()) && name[2] != "go" {
			t.Errorf("the docs of the engine name the method %s.%s, which does not exist", name[1], name[2])
		}
	}
	if len(tests) < 40 || len(methods) < 20 {
		t.Errorf("found only %d tests and %d methods", len(tests), len(methods))
	}
}

// Every log message has a row in docs/log.md.
func TestLogLinesAreExplained(t *testing.T) {
	t.Parallel()
	logs := regexp.MustCompile(`(?:[Ll]ogger(?:\(\))?\.(?:Debug|Info|Warn|Error)\(|journal\.(?:say|announce)\(\S+ )"([^"]*)"`)
	text, n := read(t, "docs/log.md"), 0
	for _, dir := range []string{"core", "guard", "keyfuncs", "middleware", "wasm", "embedded", "inspect", "caddy"} {
		err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			for _, match := range logs.FindAllStringSubmatch(read(t, path), -1) {
				n++
				message, ours := strings.CutPrefix(match[1], "reqlock: ")
				// The line about WriteTimeout is long.
				message, _, _ = strings.Cut(message, ": the server cuts")
				if !ours || !strings.Contains(text, "`"+strings.TrimSpace(message)+"`") {
					t.Errorf("%s: %q has no row, or does not begin with reqlock:", path, match[1])
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if n < 25 {
		t.Errorf("found only %d messages", n)
	}
}

// Pages of docs/ that comments name exist, and so do their sections, after a #.
func TestCommentsNamePages(t *testing.T) {
	t.Parallel()
	comment := regexp.MustCompile(`//.*`)
	page := regexp.MustCompile(`\bdocs/([a-z0-9-]+\.md)(?:#([a-z0-9-]+))?`)
	heading := regexp.MustCompile(`(?m)^#+ (.*)$`)
	notInAnchors := regexp.MustCompile(`[^a-z0-9 -]`)
	n := 0
	err := filepath.WalkDir(".", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".go") {
			return err
		}
		for _, match := range page.FindAllStringSubmatch(strings.Join(comment.FindAllString(read(t, path), -1), "\n"), -1) {
			n++
			text, err := os.ReadFile("docs/" + match[1])
			if err != nil {
				t.Errorf("%s: %v", path, err)
				continue
			}
			found := match[2] == ""
			for _, title := range heading.FindAllStringSubmatch(string(text), -1) {
				anchor := notInAnchors.ReplaceAllString(strings.ToLower(title[1]), "")
				found = found || strings.ReplaceAll(anchor, " ", "-") == match[2]
			}
			if !found {
				t.Errorf("%s: docs/%s has no section #%s", path, match[1], match[2])
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if n < 20 {
		t.Errorf("found only %d pages", n)
	}
}

// Routes in examples name their methods. A route for every method would hand preflights to its
// handler, and readers copy examples.
func TestExamplesNameTheirMethods(t *testing.T) {
	t.Parallel()
	routes := regexp.MustCompile(`\b(?:\w+\.Handle(?:Func)?|serve)\("([^"]*)"|\.(Any)\(`)
	// A page of its own, below a path, looks at the methods itself.
	named := regexp.MustCompile(`^(?:GET|POST|PUT|PATCH|DELETE) |^/debug/`)
	files := []string{"README.md"}
	for _, pattern := range []string{"docs/*.md", "*_test.go", "*/example*_test.go", "*/*/example*_test.go", "*/*.go", "middleware/*/*.go", "examples/*/*.go"} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range found {
			if !strings.HasSuffix(file, "_test.go") || strings.Contains(file, "example") || filepath.Base(file) == file {
				files = append(files, file)
			}
		}
	}
	n := 0
	for _, file := range files {
		for _, match := range routes.FindAllStringSubmatch(read(t, file), -1) {
			if n++; !named.MatchString(match[1]) {
				t.Errorf("%s: %s has no method", file, match[0])
			}
		}
	}
	if n < 40 {
		t.Errorf("found only %d routes", n)
	}
}
