package auth

import (
	"net/http"
	"testing"

	ginjwt "github.com/appleboy/gin-jwt/v2"
	"github.com/gin-gonic/gin"
	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/internal/lab/locktest"
	"github.com/reqlock/reqlock/keyfuncs"
	ginlock "github.com/reqlock/reqlock/middleware/gin"
)

func init() { gin.SetMode(gin.ReleaseMode) }

func ginTokens() *ginjwt.GinJWTMiddleware {
	tokens, err := ginjwt.New(&ginjwt.GinJWTMiddleware{Key: secret})
	if err != nil {
		panic(err)
	}
	return tokens
}

func ginHandler(h http.HandlerFunc) gin.HandlerFunc {
	return func(c *gin.Context) { h(c.Writer, c.Request) }
}

func ginShop(locks *core.Client, transfer, pay http.HandlerFunc) http.Handler {
	transferGin, payGin := ginHandler(transfer), ginHandler(pay)
	router := gin.New()
	tokens := ginTokens()

	user := ginlock.Value("identity") // what gin-jwt's IdentityHandler returns
	lock := ginlock.New(locks, ginlock.Config{Key: keyfuncs.Prefix("user:", user)})
	authenticated := router.Group("/", tokens.MiddlewareFunc()) // 401 without a valid token
	authenticated.POST("/transfer", lock, transferGin)
	authenticated.POST("/pay", ginlock.Idempotent(locks, once(user)), payGin)
	return router
}

func ginShopWrong(locks *core.Client, transfer http.HandlerFunc) http.Handler {
	router := gin.New()
	lock := ginlock.New(locks, ginlock.Config{Key: ginlock.Value("identity"), Logger: quiet})
	router.POST("/transfer", lock, ginTokens().MiddlewareFunc(), ginHandler(transfer))
	return router
}

// A claim of gin-jwt's, nested and a number.
func TestClaimGin(t *testing.T) {
	t.Parallel()
	locks := locktest.NewLocks(t)

	claims := func(r *http.Request) map[string]any {
		claims, _ := ginlock.Get(r, "JWT_PAYLOAD").(ginjwt.MapClaims)
		return claims // nil: no token
	}
	tenant := keyfuncs.Claim(claims, "tenant", "id")

	router := gin.New()
	router.POST("/transfer", ginTokens().MiddlewareFunc(), ginlock.New(locks, ginlock.Config{Key: tenant}), ginHandler(answerLock))
	s := locktest.NewServer(t, router)
	if a := do(s, "/transfer", as(t, "anna")); a.Body != "reqlock:7" {
		t.Error(a)
	}
}
