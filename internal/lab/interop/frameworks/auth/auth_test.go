// Package auth tests the recipes of docs/guides/order.md with the libraries that they are for.
package auth

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/idempotency"
	"github.com/reqlock/reqlock/internal/lab/locktest"
	"github.com/reqlock/reqlock/internal/lab/redistest"
	"github.com/reqlock/reqlock/keyfuncs"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(redistest.Settled(m)) }

var secret = []byte("a secret of at least 32 bytes, for HS256")

// A shop serves POST /transfer, under a lock of the caller, and POST /pay, which is idempotent in
// the scope of the caller, and behind authentication by tokens.
type shop struct {
	name  string
	serve func(locks *core.Client, transfer, pay http.HandlerFunc) http.Handler
	// wrong is serve with the guard before the authentication.
	wrong func(locks *core.Client, transfer http.HandlerFunc) http.Handler
}

var shops = []shop{
	{"gin-jwt", ginShop, ginShopWrong},
	{"echo-jwt", echoShop, echoShopWrong},
	{"jwtauth", chiShop, chiShopWrong},
}

// quiet is the Logger of the guards.
var quiet = slog.New(slog.DiscardHandler)

// token returns a token of user that is valid for d.
func token(t *testing.T, user string, d time.Duration, key []byte) string {
	t.Helper()
	claims := jwt.MapClaims{"sub": user, "identity": user, "exp": time.Now().Add(d).Unix(), "tenant": map[string]any{"id": 7}}
	signed, err := jwt.NewWithClaims(jwt.SigningMethodHS256, claims).SignedString(key)
	if err != nil {
		t.Fatal(err)
	}
	return signed
}

// as sends the token of a user.
func as(t *testing.T, user string) func(*http.Request) {
	return bearer(token(t, user, time.Hour, secret))
}

func bearer(token string) func(*http.Request) {
	return func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+token) }
}

func anonymous(*http.Request) {}

// do sends a POST.
func do(s *locktest.Server, path string, changes ...func(*http.Request)) locktest.Answer {
	s.Helper()
	r := s.NewRequest(http.MethodPost, path, "{}")
	for _, change := range changes {
		change(r)
	}
	return s.Do(r)
}

// One user's transfers run one at a time, another user's beside them.
func TestLockByUser(t *testing.T) {
	for _, shop := range shops {
		t.Run(shop.name, func(t *testing.T) {
			t.Parallel()
			inside, leave := make(chan struct{}), make(chan struct{})
			transfer := func(w http.ResponseWriter, r *http.Request) {
				if r.URL.RawQuery == "stay" {
					close(inside)
					<-leave
				}
			}
			locks := locktest.NewLocks(t)
			s := locktest.NewServer(t, shop.serve(locks, transfer, nil))
			anna, ben := as(t, "anna"), as(t, "ben")
			first := make(chan locktest.Answer)
			go func() { first <- do(s, "/transfer?stay", anna) }()
			<-inside
			for _, test := range []struct {
				who    string
				as     func(*http.Request)
				status int
				body   string
			}{
				{"anna", anna, 409, "locked"},
				{"ben", ben, 200, ""},
				{"anonymous", anonymous, 401, ""},
				{"forged", bearer(token(t, "anna", time.Hour, []byte(strings.Repeat("x", 32)))), 401, ""},
				{"expired", bearer(token(t, "anna", -time.Hour, secret)), 401, ""},
			} {
				a := do(s, "/transfer", test.as)
				if a.Status != test.status || !strings.Contains(a.Body, test.body) || strings.Contains(a.Body, "anna") {
					t.Errorf("%s, while anna is inside: %v, want %d %s", test.who, a, test.status, test.body)
				}
			}
			if held, err := locks.Lock("reqlock:user:anna").IsLocked(t.Context()); !held || err != nil {
				t.Errorf("reqlock:user:anna is held: %v (%v)", held, err)
			}
			close(leave)
			if a := <-first; a.Status != 200 {
				t.Errorf("anna inside: %v", a)
			}
		})
	}
}

// Two users with the same idempotency key get their own results.
func TestScopeOfUser(t *testing.T) {
	for _, shop := range shops {
		t.Run(shop.name, func(t *testing.T) {
			t.Parallel()
			runs := 0
			pay := func(w http.ResponseWriter, _ *http.Request) {
				runs++
				_, _ = io.WriteString(w, fmt.Sprint("payment ", runs))
			}
			s := locktest.NewServer(t, shop.serve(locktest.NewLocks(t), nil, pay))
			for _, test := range []struct {
				who      string
				as       func(*http.Request)
				status   int
				body     string
				replayed bool
			}{
				{"anna", as(t, "anna"), 200, "payment 1", false},
				{"anna again, with a new token", as(t, "anna"), 200, "payment 1", true},
				{"ben", as(t, "ben"), 200, "payment 2", false},
				{"anonymous", anonymous, 401, "", false},
				{"nameless", as(t, ""), 400, "key-missing", false},
			} {
				a := s.PostWithKey("/pay", "k", test.as)
				if a.Status != test.status || !strings.Contains(a.Body, test.body) || a.Replayed() != test.replayed {
					t.Errorf("%s: %v, want %d %q, replayed: %v", test.who, a, test.status, test.body, test.replayed)
				}
			}
			if runs != 2 {
				t.Errorf("there were %d payments", runs)
			}
		})
	}
}

// With the guard before the authentication, no request has a key: all get 400 with a text
// that names nothing, and none reaches the handler.
func TestGuardBeforeAuthentication(t *testing.T) {
	for _, shop := range shops {
		t.Run(shop.name, func(t *testing.T) {
			t.Parallel()
			s := locktest.NewServer(t, shop.wrong(locktest.NewLocks(t), func(http.ResponseWriter, *http.Request) {
				t.Error("the handler runs without a lock")
			}))
			for _, who := range []func(*http.Request){as(t, "anna"), anonymous} {
				a := do(s, "/transfer", who)
				if a.Status != 400 || !strings.Contains(a.Body, "key-missing") || !strings.Contains(a.Body, "A required part of the request is missing or empty.") {
					t.Errorf("%v, want 400 key-missing", a)
				}
			}
		})
	}
}

// A guest has an own key, which no name of a user can be.
func TestGuests(t *testing.T) {
	t.Parallel()
	user := func(r *http.Request) any { return r.Context().Value(userKey{}) }
	key := userOrGuest(keyfuncs.Value("user", user))
	for _, test := range []struct {
		user any
		want string
	}{{"anna", "1:anna"}, {nil, "2:192.0.2.1"}, {"192.0.2.1", "1:192.0.2.1"}} {
		r, err := http.NewRequestWithContext(context.WithValue(t.Context(), userKey{}, test.user), http.MethodPost, "/", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.RemoteAddr = "192.0.2.1:1234"
		if got, err := key(r); got != test.want || err != nil {
			t.Errorf("%v: %q, %v; want %q", test.user, got, err, test.want)
		}
	}
}

type userKey struct{}

func userOrGuest(user keyfuncs.Func) keyfuncs.Func {
	key := keyfuncs.FirstOf(user, keyfuncs.ClientIP()) // ClientIP(proxies...) behind a proxy
	return key
}

// once is the Config of all shops.
func once(scope keyfuncs.Func) idempotency.Config {
	return idempotency.Config{Scope: scope, Logger: quiet}
}
