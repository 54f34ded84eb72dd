package auth

import (
	"net/http"
	"testing"

	"github.com/golang-jwt/jwt/v5"
	echojwt "github.com/labstack/echo-jwt/v4"
	"github.com/labstack/echo/v4"
	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/internal/lab/locktest"
	"github.com/reqlock/reqlock/keyfuncs"
	echolock "github.com/reqlock/reqlock/middleware/echo"
)

func echoHandler(h http.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		h(c.Response(), c.Request())
		return nil
	}
}

func echoClaims() func(*http.Request) map[string]any {
	claims := func(r *http.Request) map[string]any {
		token, ok := echolock.Get(r, "user").(*jwt.Token) // echojwt.Config.ContextKey
		if !ok {
			return nil // no token
		}
		claims, _ := token.Claims.(jwt.MapClaims)
		return claims
	}
	return claims
}

func echoTokens() echo.MiddlewareFunc {
	// Without an ErrorHandler, echo-jwt answers 400 to a request without a token.
	return echojwt.WithConfig(echojwt.Config{SigningKey: secret, ErrorHandler: func(echo.Context, error) error { return echo.ErrUnauthorized }})
}

func echoShop(locks *core.Client, transfer, pay http.HandlerFunc) http.Handler {
	transferEcho, payEcho := echoHandler(transfer), echoHandler(pay)
	claims := echoClaims()
	e := echo.New()

	user := keyfuncs.Claim(claims, "sub")
	lock := echolock.New(locks, echolock.Config{Key: keyfuncs.Prefix("user:", user)})
	authenticated := e.Group("", echoTokens())
	authenticated.POST("/transfer", transferEcho, lock)
	authenticated.POST("/pay", payEcho, echolock.Idempotent(locks, once(user)))
	return e
}

func echoShopWrong(locks *core.Client, transfer http.HandlerFunc) http.Handler {
	e := echo.New()
	e.POST("/transfer", echoHandler(transfer), echolock.New(locks, echolock.Config{Key: keyfuncs.Claim(echoClaims(), "sub"), Logger: quiet}), echoTokens())
	return e
}

// A claim of echo-jwt's, nested and a number.
func TestClaimEcho(t *testing.T) {
	t.Parallel()
	e := echo.New()
	tenant := keyfuncs.Claim(echoClaims(), "tenant", "id")
	e.POST("/transfer", echoHandler(answerLock), echoTokens(), echolock.New(locktest.NewLocks(t), echolock.Config{Key: tenant}))
	s := locktest.NewServer(t, e)
	if a := do(s, "/transfer", as(t, "anna")); a.Body != "reqlock:7" {
		t.Error(a)
	}
}
