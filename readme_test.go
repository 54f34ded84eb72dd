package reqlock_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/reqlock/reqlock/embedded"
	"github.com/reqlock/reqlock/guard"
	"github.com/reqlock/reqlock/idempotency"
	"github.com/reqlock/reqlock/internal/lab/redistest"
	"github.com/reqlock/reqlock/wasm"
)

import (
	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/keyfuncs"
	httplock "github.com/reqlock/reqlock/middleware/nethttp"
)

// All Go snippets of the README and docs/ are in the tests of this directory or in snippetSources,
// word for word. TestSnippets checks that.

// snippetSources are compiled elsewhere: in other packages, or in modules with other libraries.
var snippetSources = []string{
	"examples/first/main.go",
	"inspect/example_*_test.go",
	"internal/lab/interop/sql/*_test.go",
	"internal/lab/bench/*_test.go",
	"examples/wasm/plugin/main.go",
	"internal/lab/interop/frameworks/*/*_test.go",
	"middleware/*/*_test.go",
	"wasm/testdata/lang/go/main.go",
	"adapter/tutorial/*_test.go",
	"inspect/*_test.go",
	"*reqlock/*_test.go",
}

// server is the Redis of the examples: a real one, or under -short the embedded one.
var server interface {
	Addr() string
	Close() error
}

func TestMain(m *testing.M) {
	flag.Parse() // for testing.Short
	goleak.VerifyTestMain(withServer{m})
}

// withServer runs the tests with a Redis, and stops it before the check for leaked goroutines.
type withServer struct{ *testing.M }

func (w withServer) Run() (code int) {
	var err error
	if testing.Short() {
		server, err = embedded.Start()
	} else {
		server, err = redistest.Run()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() {
		if err := server.Close(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = max(code, 1)
		}
	}()
	return w.M.Run()
}

func Example() {
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer rdb.Close()
	pay := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		lease, _ := httplock.LeaseFrom(r.Context())
		fmt.Fprintf(w, "paid under lock %q", lease.Name())
	})

	locks, err := core.New(rdb, core.Options{}) // rdb is your go-redis client
	if err != nil {
		log.Fatal(err)
	}
	oneAtATime := httplock.New(locks, httplock.Config{
		Key:      keyfuncs.Prefix("order:", keyfuncs.PathValue("id")), // same key: one at a time
		WaitTime: 2 * time.Second,                                     // 0: 409 at once
	})
	mux := http.NewServeMux()
	mux.Handle("POST /orders/{id}/pay", oneAtATime(pay)) // pay is your http.Handler

	defer locks.Close(context.Background())
	web := httptest.NewServer(mux)
	defer web.Close()
	response, err := http.Post(web.URL+"/orders/42/pay", "", nil)
	if err != nil {
		log.Fatal(err)
	}
	defer response.Body.Close()
	body, _ := io.ReadAll(response.Body)
	fmt.Println(response.Status, string(body))
	// Output: 200 OK paid under lock "reqlock:order:42"
}

func Example_plugin() {
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer rdb.Close()
	locks, err := core.New(rdb, core.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close(context.Background())
	ctx, mux := context.Background(), http.NewServeMux()
	show := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	change := show

	plugin, err := wasm.Open(ctx, "examples/wasm/plugin.wasm", wasm.Config{Watch: true})
	if err != nil {
		log.Fatal(err)
	}
	defer plugin.Close(context.Background()) // after the server's Shutdown
	decided := httplock.New(locks, httplock.Config{Policy: plugin.Policy})
	mux.Handle("GET /{tenant}/{list}", decided(show))
	mux.Handle("POST /{tenant}/{list}", decided(change))
}

func Example_shutdown() {
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer rdb.Close()
	locks, err := core.New(rdb, core.Options{})
	if err != nil {
		log.Fatal(err)
	}
	web := httptest.NewServer(http.NotFoundHandler())
	defer web.Close()

	shutdown := func(ctx context.Context, server *http.Server) error {
		closed := make(chan error, 1)
		server.RegisterOnShutdown(func() { closed <- locks.Close(ctx) })
		err := errors.Join(server.Shutdown(ctx), <-closed)
		return err
	}

	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	fmt.Println(shutdown(ctx, web.Config))
	_, err = locks.Lock("order:42").Acquire(ctx, core.AcquireOptions{})
	fmt.Println(errors.Is(err, core.ErrClosed))
	// Output:
	// <nil>
	// true
}

func Example_core() {
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer rdb.Close()
	locks, err := core.New(rdb, core.Options{})
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()
	defer locks.Close(ctx)
	write := func(ctx context.Context) error {
		held, err := locks.Lock("report:daily").IsHeld(ctx)
		fmt.Println("held:", held)
		return err
	}

	report := func() error {
		lease, err := locks.Lock("report:daily").Acquire(ctx, core.AcquireOptions{WaitTime: 2 * time.Second})
		if err != nil {
			return err // core.ErrNotAcquired: another owner held it until WaitTime had passed
		}
		defer lease.Release(ctx)
		return write(lease.Context()) // the context ends when the lock is lost
	}

	if err := report(); err != nil {
		log.Fatal(err)
	}
	locked, err := locks.Lock("report:daily").IsLocked(ctx)
	fmt.Println("locked afterwards:", locked, err)
	// Output:
	// held: true
	// locked afterwards: false <nil>
}

func Example_redisson() {
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer rdb.Close()
	locks, err := core.New(rdb, core.Options{})
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()
	defer locks.Close(ctx)

	shared := httplock.New(locks, httplock.Config{
		Key:  keyfuncs.Prefix("order:", keyfuncs.PathValue("id")),
		Name: guard.Exact, // order:42, as in redisson.getLock("order:42")
	})

	mux := http.NewServeMux()
	mux.Handle("POST /orders/{id}/pay", shared(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		fmt.Println(rdb.Type(ctx, "order:42").Val(), rdb.HVals(ctx, "order:42").Val())
	})))
	mux.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("POST", "/orders/42/pay", nil))
	// Output: hash [1]
}

// Step 4 of docs/start.md. It is compiled and not run, because it uses a fixed port.
func Example_yourRedis() {
	rdb := redis.NewClient(&redis.Options{Addr: "localhost:6379"})
	locks, err := core.New(rdb, core.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close(context.Background())
}

func Example_idempotency() {
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer rdb.Close()
	locks, err := core.New(rdb, core.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close(context.Background())
	type contextKey struct{}
	accountKey := contextKey{}
	authenticate := func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), accountKey, r.Header.Get("Authorization"))))
		})
	}
	payments := 0
	pay := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		payments++
		fmt.Fprintf(w, "payment %d", payments)
	})
	mux := http.NewServeMux()

	once := httplock.Idempotent(locks, idempotency.Config{
		Scope:    keyfuncs.Context(accountKey), // the owner of the keys, set by your authentication
		WaitTime: 10 * time.Second,             // 0: a repeat during the first run gets 409 at once
	})
	mux.Handle("POST /payments", authenticate(once(pay)))

	for _, account := range []string{"anna", "anna", "bert"} {
		r := httptest.NewRequest("POST", "/payments", nil)
		r.Header.Set("Authorization", account)
		r.Header.Set("Idempotency-Key", "8e03978e-40d5-43dd-bc93-6894a57f9324")
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, r)
		fmt.Printf("%s: %s, replayed %q\n", account, w.Body, w.Header().Get("Idempotent-Replayed"))
	}
	// Output:
	// anna: payment 1, replayed ""
	// anna: payment 1, replayed "true"
	// bert: payment 2, replayed ""
}

// documents returns the texts whose snippets must be in a test.
func documents(t *testing.T) map[string]string {
	t.Helper()
	paths, err := filepath.Glob("docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	texts := make(map[string]string)
	for _, path := range append(paths, "README.md") {
		texts[path] = read(t, path)
	}
	return texts
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// blocks returns the code blocks of a Markdown text in one language.
func blocks(text, language string) (found []string) {
	for _, match := range regexp.MustCompile("(?ms)^```"+language+"\n(.*?)^```$").FindAllStringSubmatch(text, -1) {
		found = append(found, match[1])
	}
	return found
}

// indent puts tabs before every line that is not empty.
func indent(text string, tabs int) string {
	return regexp.MustCompile(`(?m)^.`).ReplaceAllString(text, strings.Repeat("\t", tabs)+"$0")
}

func TestSnippets(t *testing.T) {
	t.Parallel()
	var source strings.Builder
	sources, err := filepath.Glob("*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, pattern := range snippetSources {
		more, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		sources = append(sources, more...)
	}
	for _, path := range sources {
		source.WriteString(read(t, path))
	}
	n := 0
	for path, text := range documents(t) {
		snippets := blocks(text, "go")
		for _, snippet := range snippets {
			n++
			if !slices.ContainsFunc([]int{0, 1, 2, 3}, func(tabs int) bool { return strings.Contains(source.String(), "\n"+indent(snippet, tabs)) }) {
				t.Errorf("a snippet of %s is neither in a test of this directory nor in snippetSources:\n%s", path, snippet)
			}
		}
		if fences := strings.Count(text, "```go"); fences != len(snippets) {
			t.Errorf("%s has %d Go snippets, but only %d are checked: they must not be indented", path, fences, len(snippets))
		}
	}
	if n < 10 {
		t.Errorf("found only %d snippets", n)
	}
}

// docs/answers.md lists all answers in guard/doc.go.
func TestAnswersAreComplete(t *testing.T) {
	t.Parallel()
	answers := read(t, "docs/answers.md")
	problems := regexp.MustCompile(`(\d{3}) urn:reqlock:problem:([a-z-]+)(, Retry-After)?`).FindAllStringSubmatch(read(t, "guard/doc.go"), -1)
	if len(problems) < 10 {
		t.Fatalf("found only %d problems in guard/doc.go", len(problems))
	}
	for _, p := range problems {
		row := "| " + p[1] + " `" + p[2] + "`"
		if p[3] != "" {
			row += ", `Retry-After`"
		}
		if !strings.Contains(answers, row) {
			t.Errorf("docs/answers.md has no row with %q", row)
		}
	}
}

// docs/idempotency.md lists all answers in idempotency/doc.go.
func TestIdempotencyAnswersAreComplete(t *testing.T) {
	t.Parallel()
	text := read(t, "docs/idempotency.md")
	problems := regexp.MustCompile(`(\d{3}) urn:reqlock:problem:([a-z-]+)`).FindAllStringSubmatch(read(t, "idempotency/doc.go"), -1)
	if len(problems) < 8 {
		t.Fatalf("found only %d problems in idempotency/doc.go", len(problems))
	}
	for _, p := range problems {
		if !strings.Contains(text, "| "+p[1]+" `"+p[2]+"`") {
			t.Errorf("docs/idempotency.md has no row with %s %s", p[1], p[2])
		}
	}
}

func TestLinks(t *testing.T) {
	t.Parallel()
	for path, text := range documents(t) {
		for _, match := range regexp.MustCompile(`\]\(([^)#]+)`).FindAllStringSubmatch(text, -1) {
			if strings.Contains(match[1], "://") {
				continue
			}
			if _, err := os.Stat(filepath.Join(filepath.Dir(path), match[1])); err != nil {
				t.Errorf("%s: %v", path, err)
			}
		}
	}
}

func TestCommands(t *testing.T) {
	t.Parallel()
	makefile := read(t, "Makefile")
	// Their tests, and make wasm-guests, build the plugins.
	plugins := read(t, "examples/wasm/plugin/main.go") + read(t, "wasm/include/reqlock.h") + read(t, "wasm/testdata/lang/README.md")
	for path, text := range documents(t) {
		for _, block := range blocks(text, "sh") {
			if strings.HasPrefix(block, "curl ") && strings.Contains(block, "locks.json") {
				continue // TestDrill of deploy runs it
			}
			for line := range strings.Lines(block) {
				command := strings.Fields(line)
				switch {
				case len(command) == 2 && command[0] == "make":
					if !strings.Contains(makefile, "\n"+command[1]+":") {
						t.Errorf("%s: the Makefile has no target for %q", path, line)
					}
				case len(command) == 3 && command[0] == "go" && command[1] == "run":
					if _, err := os.Stat(command[2]); err != nil {
						t.Errorf("%s: %q: %v", path, line, err)
					}
				case len(command) == 4 && strings.HasPrefix(line, "go run ./examples "):
					if _, err := os.Stat("examples/" + command[3]); err != nil {
						t.Errorf("%s: %q: %v", path, line, err)
					}
				case line == "mkdir ../shop && cd ../shop\n" || strings.HasPrefix(line, "go mod init ") || strings.HasPrefix(line, "go get github.com/reqlock/reqlock"):
				case len(command) == 5 && strings.HasPrefix(line, "go run -C "): // of another module, whose tests run it
					if _, err := os.Stat(filepath.Join(command[3], "main_test.go")); err != nil {
						t.Errorf("%s: %q: %v", path, line, err)
					}
				case len(command) > 3 && strings.Contains(plugins, strings.TrimSpace(line)+"\n"):
				default:
					t.Errorf("%s: no test checks the command %q", path, line)
				}
			}
		}
	}
}

// The ACL user of docs/operations.md may do all that locks need, and Redis's ACL log stays empty.
func TestAccess(t *testing.T) {
	t.Parallel()
	redisServer := redistest.Start(t)
	admin := redisServer.Client(t)
	ctx := context.Background()
	acl := strings.Fields(regexp.MustCompile(`(?m)^ACL SETUSER .*$`).FindString(read(t, "docs/operations.md")))
	if len(acl) == 0 {
		t.Fatal("docs/operations.md has no ACL SETUSER")
	}
	args := make([]any, len(acl))
	for i, word := range acl {
		args[i] = word
	}
	if err := admin.Do(ctx, args...).Err(); err != nil {
		t.Fatalf("%q: %v", acl, err)
	}

	clients := make([]*core.Client, 2)
	for i := range clients {
		rdb := redisServer.ClientWith(t, asOrders)
		var err error
		// A short PollInterval makes the client ping its subscriptions each second.
		clients[i], err = core.New(rdb, core.Options{PollInterval: 10 * time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			// A failed test may still hold a lock.
			ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
			defer cancel()
			if err := clients[i].Close(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	useEverything(t, ctx, admin, clients[0].Lock("reqlock:order:42"), clients[1].Lock("reqlock:order:42"))
	await(t, "unsubscribed", func() bool { return clients[1].Stats().Channels == 0 })

	denied, err := admin.ACLLog(ctx, 10).Result()
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range denied {
		t.Errorf("denied: %s %s (%s)", entry.Reason, entry.Object, entry.Context)
	}
}

// asOrders configures a client of the user of docs/operations.md. It does not send CLIENT SETINFO,
// which Redis 7.2 would deny and log.
func asOrders(o *redis.Options) { o.Username, o.Password, o.DisableIdentity = "orders", "secret", true }

// With the pattern of docs/idempotency-records.md, the user of docs/operations.md may store records.
func TestAccessToRecords(t *testing.T) {
	t.Parallel()
	redisServer := redistest.Start(t)
	admin := redisServer.Client(t)
	ctx := context.Background()
	page := read(t, "docs/idempotency-records.md")
	pattern := regexp.MustCompile("needs the pattern `(\\S+)`").FindStringSubmatch(page)
	quota := regexp.MustCompile("also needs `([^`]+)`").FindStringSubmatch(page)
	if pattern == nil || quota == nil {
		t.Fatal("docs/idempotency-records.md has no pattern, or no commands of MaxKeys")
	}
	var args []any
	for _, word := range strings.Fields(regexp.MustCompile(`(?m)^ACL SETUSER .*$`).FindString(read(t, "docs/operations.md")) + " " + pattern[1] + " " + quota[1]) {
		args = append(args, word)
	}
	if err := admin.Do(ctx, args...).Err(); err != nil {
		t.Fatal(err)
	}
	rdb := redisServer.ClientWith(t, asOrders)
	locks, err := core.New(rdb, core.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer locks.Close(ctx)
	for _, unknown := range []idempotency.UnknownOutcome{idempotency.OutcomeRerun, idempotency.OutcomeRefuse} {
		status := http.StatusBadGateway
		handler := httplock.Idempotent(locks, idempotency.Config{Scope: idempotency.ScopeGlobal, OnUnknown: unknown, MaxKeys: 10})(
			http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.WriteHeader(status)
				status = http.StatusCreated
			}))
		for i, want := range []int{http.StatusBadGateway, http.StatusCreated, http.StatusCreated} {
			r := httptest.NewRequest("POST", "/"+strconv.Itoa(int(unknown)), nil)
			r.Header.Set("Idempotency-Key", "k")
			w := httptest.NewRecorder()
			if handler.ServeHTTP(w, r); w.Code != want || (i == 2) != (w.Header().Get("Idempotent-Replayed") == "true") {
				t.Errorf("answer %d: %d %v %s", i, w.Code, w.Header(), w.Body)
			}
		}
	}
	denied, err := admin.ACLLog(ctx, 10).Result()
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range denied {
		t.Errorf("denied: %s %s (%s)", entry.Reason, entry.Object, entry.Context)
	}
}

// useEverything uses every operation of a lock, mine and theirs being the same lock of two clients.
// The watchdog is left out: it runs no other commands than a re-entry.
func useEverything(t *testing.T, ctx context.Context, admin *redis.Client, mine, theirs *core.Lock) {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	lease, err := mine.Acquire(ctx, core.AcquireOptions{})
	must(err)
	again, err := mine.Acquire(lease.Context(), core.AcquireOptions{LeaseTime: time.Minute})
	must(err)
	must(again.Extend(ctx, 2*time.Minute))
	must(again.Release(ctx))
	held, err := mine.HoldCount(lease.Context())
	must(err)
	if held != 1 {
		t.Errorf("hold count %d, want 1", held)
	}

	got := make(chan error, 1)
	go func() {
		lease, err := theirs.Acquire(ctx, core.AcquireOptions{WaitTime: 30 * time.Second})
		if err == nil {
			err = lease.Release(ctx)
		}
		got <- err
	}()
	await(t, "subscribed", func() bool { return len(admin.PubSubChannels(ctx, "redisson*").Val()) > 0 })
	pings := func() string {
		return regexp.MustCompile(`cmdstat_ping:.*`).FindString(admin.Info(ctx, "commandstats").Val())
	}
	before := pings()
	await(t, "pinged", func() bool { return pings() != before })
	must(lease.Release(ctx))
	must(<-got)

	lease, err = theirs.Acquire(ctx, core.AcquireOptions{})
	must(err)
	freed, err := mine.ForceUnlock(ctx)
	must(err)
	if !freed {
		t.Error("ForceUnlock found no holder")
	}
	if err := lease.Release(ctx); !errors.Is(err, core.ErrLockLost) {
		t.Errorf("release after a forced unlock: %v, want ErrLockLost", err)
	}
}

func await(t *testing.T, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !is(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("timed out waiting for %s", what)
		}
	}
}
