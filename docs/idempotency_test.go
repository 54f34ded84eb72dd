package docs_test

import (
	"bytes"
	"context"
	"crypto/aes"
	"crypto/cipher"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/idempotency"
	"github.com/reqlock/reqlock/keyfuncs"
	httplock "github.com/reqlock/reqlock/middleware/nethttp"
)

// A paymentProvider takes money, once for each key.
type paymentProvider struct{ charges map[string]int }

func (p paymentProvider) Charge(_ context.Context, key string, cents int) error {
	if p.charges[key] == 0 {
		p.charges[key] = cents
		return errors.New("the connection broke")
	}
	return nil
}

var provider = paymentProvider{map[string]int{}}

func charge(w http.ResponseWriter, r *http.Request) {
	// The same for every run of this request: the provider recognizes a repeat after a crash.
	key := idempotency.DownstreamKey(r.Context(), "provider", "charge")
	if err := provider.Charge(r.Context(), key, 2500); err != nil {
		http.Error(w, "the payment failed", http.StatusBadGateway) // a 5xx is not recorded: a repeat runs again
		return
	}
	w.WriteHeader(http.StatusCreated)
}

var errUnsent = errors.New("the request was not sent")

func transfer(w http.ResponseWriter, r *http.Request) {
	err := provider.Charge(r.Context(), idempotency.DownstreamKey(r.Context(), "provider"), 2500)
	switch {
	case errors.Is(err, errUnsent):
		idempotency.Outcome(r.Context()).NothingDone() // whatever the status is
		http.Error(w, "the provider is down", http.StatusServiceUnavailable)
	case err != nil:
		idempotency.Outcome(r.Context()).Done() // perhaps: no repeat may charge again
		http.Error(w, "ask us about the payment", http.StatusBadGateway)
	default:
		w.WriteHeader(http.StatusCreated)
	}
}

// docs/guides/idempotency.md: the handler runs twice, and the provider charges once.
func TestDownstreamKey(t *testing.T) {
	t.Parallel()
	clear(provider.charges)
	once := httplock.Idempotent(newLocks(t), idempotency.Config{Scope: idempotency.ScopeGlobal})(http.HandlerFunc(charge))
	for _, want := range []string{"502", "201", "201  true"} {
		if got := serves(once, "/payments"); !strings.HasPrefix(got, want) {
			t.Errorf("answer %s, want %s", got, want)
		}
	}
	if len(provider.charges) != 1 {
		t.Errorf("charges %v", provider.charges)
	}

	// docs/guides/idempotency-rules.md: the charge may have been made, so repeats get the
	// answer.
	once = httplock.Idempotent(newLocks(t), idempotency.Config{Scope: idempotency.ScopeGlobal})(http.HandlerFunc(transfer))
	for _, want := range []string{"502", "502 ask us about the payment\n true"} {
		if got := serves(once, "/transfers"); !strings.HasPrefix(got, want) {
			t.Errorf("answer %q, want %q", got, want)
		}
	}
}

// docs/guides/idempotency-rules.md: the time of an attempt does not count, and neither does
// the boundary of a form.
func TestFingerprints(t *testing.T) {
	t.Parallel()
	cfg := idempotency.Config{Scope: idempotency.ScopeGlobal}
	cfg.Fingerprint = idempotency.FingerprintFields("/to", "/amount", "/currency")
	once := httplock.Idempotent(newLocks(t), cfg)(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	for _, test := range []struct {
		contentType, body string
		status            int
	}{
		{"application/json", `{"to":"bert","amount":50,"at":1}`, 200},
		{"application/json", `{"to":"bert","amount":50,"at":2}`, 200},
		{"application/json", `{"to":"bert","amount":70,"at":2}`, 422},
		{"multipart/form-data; boundary=a", "--a\r\n\r\n50\r\n--a--", 200},
		{"multipart/form-data; boundary=b", "--b\r\n\r\n50\r\n--b--", 200},
		{"multipart/form-data; boundary=b", "--b\r\n\r\n70\r\n--b--", 422},
	} {
		r, w := httptest.NewRequest("POST", "/", strings.NewReader(test.body)), httptest.NewRecorder()
		r.Header.Set("Content-Type", test.contentType)
		r.Header.Set("Idempotency-Key", test.contentType[:4])
		if once.ServeHTTP(w, r); w.Code != test.status {
			t.Errorf("%s: %d, want %d", test.body, w.Code, test.status)
		}
	}
}

// docs/guides/idempotency-rules.md: a form may have MaxRequestBody, and FingerprintNone leaves a
// file of any size to the handler.
func TestUploads(t *testing.T) {
	t.Parallel()
	locks, accountKey, authenticate := newLocks(t), tenantKey{}, accountOf
	store := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if n, err := io.Copy(io.Discard, r.Body); err == nil {
			fmt.Fprint(w, n)
		}
	})
	mux := http.NewServeMux()

	upload := httplock.Idempotent(locks, idempotency.Config{
		Scope:          keyfuncs.Context(accountKey),
		MaxRequestBody: 8 << 20, // in memory while the handler runs
	})
	mux.Handle("POST /documents", authenticate(upload(store)))
	large := httplock.Idempotent(locks, idempotency.Config{
		Scope:       keyfuncs.Context(accountKey),
		Fingerprint: idempotency.FingerprintNone, // the key says which file: its SHA-256
	})
	mux.Handle("POST /videos", authenticate(large(store)))

	for _, test := range []struct {
		path, key string
		size      int
		want      string
	}{
		{"/documents", "form", 2 << 20, "200 2097152"},
		{"/documents", "longer-form", 9 << 20, "413 "},
		{"/videos", "file", 9 << 20, "200 9437184"},
		{"/videos", "file", 1, "200 9437184"}, // another file with the key gets the first one's answer
	} {
		r := httptest.NewRequest("POST", test.path, strings.NewReader(strings.Repeat("x", test.size)))
		r.Header.Set("Idempotency-Key", test.key)
		if got := answerOf(mux, r); !strings.HasPrefix(got, test.want) {
			t.Errorf("%d bytes to %s: %.60s, want %s", test.size, test.path, got, test.want)
		}
	}
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

// docs/guides/idempotency-rules.md: a repeat with the old header does not run at the new version.
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

// docs/guides/lock-and-idempotency.md: a replay takes no lock, and the lock's refusal is not
// recorded.
func TestLockAndIdempotency(t *testing.T) {
	t.Parallel()
	locks, mux, accountKey := newLocks(t), http.NewServeMux(), tenantKey{}
	authenticate := func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), accountKey, "anna")))
		})
	}
	pay := http.HandlerFunc(held)
	once := httplock.Idempotent(locks, idempotency.Config{
		Scope:    keyfuncs.Context(accountKey), // set by your authentication
		WaitTime: 10 * time.Second,
	})
	oneAtATime := httplock.New(locks, httplock.Config{
		Key:      keyfuncs.Prefix("order:", keyfuncs.PathValue("id")),
		WaitTime: 2 * time.Second,
		MaxHold:  5 * time.Second,
	})
	mux.Handle("POST /orders/{id}/pay", authenticate(once(oneAtATime(pay))))
	sends := func(path, key, want string) {
		t.Helper()
		r, w := post(path), httptest.NewRecorder()
		r.Header.Set("Idempotency-Key", key)
		mux.ServeHTTP(w, r)
		if got := fmt.Sprint(w.Code, " ", w.Body, " ", w.Header().Get("Idempotent-Replayed")); !strings.HasPrefix(got, want) {
			t.Errorf("%s, key %s: answer %s, want %s", path, key, got, want)
		}
	}
	sends("/orders/1/pay", "a", "200 reqlock:order:1 ")
	lease, err := locks.Lock("reqlock:order:1").Acquire(t.Context(), core.AcquireOptions{})
	if err != nil {
		t.Fatal(err)
	}
	sends("/orders/1/pay", "a", "200 reqlock:order:1 true")
	sends("/orders/2/pay", "a", "422")
	sends("/orders/1/pay", "b", "409")
	if err := lease.Release(t.Context()); err != nil {
		t.Error(err)
	}
	sends("/orders/1/pay", "b", "200 reqlock:order:1 ")
}
