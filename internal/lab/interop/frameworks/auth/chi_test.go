package auth

import (
	"io"
	"net/http"
	"testing"

	"github.com/go-chi/chi/v5"
	"github.com/go-chi/jwtauth/v5"
	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/guard"
	"github.com/reqlock/reqlock/internal/lab/locktest"
	"github.com/reqlock/reqlock/keyfuncs"
	httplock "github.com/reqlock/reqlock/middleware/nethttp"
)

// answerLock answers with the name of the lock.
func answerLock(w http.ResponseWriter, r *http.Request) {
	if lease, ok := guard.LeaseFrom(r.Context()); ok {
		_, _ = io.WriteString(w, lease.Name())
	}
}

func chiClaims() func(*http.Request) map[string]any {
	claims := func(r *http.Request) map[string]any {
		_, claims, _ := jwtauth.FromContext(r.Context())
		return claims // empty: no token
	}
	return claims
}

func chiShop(locks *core.Client, transfer, pay http.HandlerFunc) http.Handler {
	claims := chiClaims()
	router := chi.NewRouter()
	tokens := jwtauth.New("HS256", secret, nil)

	user := keyfuncs.Claim(claims, "sub")
	lock := httplock.New(locks, httplock.Config{Key: keyfuncs.Prefix("user:", user)})
	router.Group(func(authenticated chi.Router) {
		authenticated.Use(jwtauth.Verifier(tokens), jwtauth.Authenticator(tokens)) // 401 without a valid token
		authenticated.With(lock).Post("/transfer", transfer)
		authenticated.With(httplock.Idempotent(locks, once(user))).Post("/pay", pay)
	})
	return router
}

func chiShopWrong(locks *core.Client, transfer http.HandlerFunc) http.Handler {
	router := chi.NewRouter()
	tokens := jwtauth.New("HS256", secret, nil)
	lock := httplock.New(locks, httplock.Config{Key: keyfuncs.Claim(chiClaims(), "sub"), Logger: quiet})
	router.With(lock, jwtauth.Verifier(tokens), jwtauth.Authenticator(tokens)).Post("/transfer", transfer)
	return router
}

// A claim of jwtauth's, nested and a number.
func TestClaimChi(t *testing.T) {
	t.Parallel()
	router := chi.NewRouter()
	tokens := jwtauth.New("HS256", secret, nil)
	tenant := keyfuncs.Claim(chiClaims(), "tenant", "id")
	router.With(jwtauth.Verifier(tokens), jwtauth.Authenticator(tokens), httplock.New(locktest.NewLocks(t), httplock.Config{Key: tenant})).Post("/transfer", answerLock)
	s := locktest.NewServer(t, router)
	if a := do(s, "/transfer", as(t, "anna")); a.Body != "reqlock:7" {
		t.Error(a)
	}
}
