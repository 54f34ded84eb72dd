package adaptertest_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/gin-gonic/gin"
	"github.com/reqlock/reqlock/adapter/adaptertest"
	"github.com/reqlock/reqlock/coalesce"
	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/guard"
	"github.com/reqlock/reqlock/idempotency"
	ginlock "github.com/reqlock/reqlock/middleware/gin"
)

func init() { gin.SetMode(gin.TestMode) }

var onGin = adaptertest.Adapter{Name: adaptertest.Gin.Name, Router: ginRouter(func(*gin.Engine) {}), Exceptions: adaptertest.Gin.Exceptions, TellsStatus: true, LeavesErrors: true}

// ginRouter returns a Router for engines that set has set up.
func ginRouter(set func(*gin.Engine)) func(*core.Client, ...adaptertest.Route) http.Handler {
	patterns := strings.NewReplacer("{rest...}", "*rest", "{", ":", "}", "")
	return func(locks *core.Client, routes ...adaptertest.Route) http.Handler {
		engine := gin.New()
		engine.ContextWithFallback = false
		set(engine)
		for _, route := range routes {
			chain := adaptertest.AllLayers(route,
				func(cfg guard.Config) gin.HandlerFunc { return ginlock.New(locks, cfg) },
				func(cfg idempotency.Config) gin.HandlerFunc { return ginlock.Idempotent(locks, cfg) },
				func(cfg coalesce.Config) gin.HandlerFunc { return ginlock.Coalesce(locks, cfg) })
			chain = append(chain, func(c *gin.Context) {
				route.Serve(c.Writer, c.Request, c.Param)
				if err := route.Err(); err != nil {
					_ = c.Error(err)
				}
			})
			if route.Method == "" {
				engine.Any(patterns.Replace(route.Pattern), chain...)
			} else {
				engine.Handle(route.Method, patterns.Replace(route.Pattern), chain...)
			}
		}
		return engine
	}
}

// TestGinSpellings sets up the engine in every way that changes how it reads a URL.
func TestGinSpellings(t *testing.T) {
	for name, set := range map[string]func(*gin.Engine){
		"UseRawPath":                        func(e *gin.Engine) { e.UseRawPath = true },
		"UseRawPath, not unescaped":         func(e *gin.Engine) { e.UseRawPath, e.UnescapePathValues = true, false },
		"UseEscapedPath":                    func(e *gin.Engine) { e.UseEscapedPath = true },
		"UseEscapedPath, not unescaped":     func(e *gin.Engine) { e.UseEscapedPath, e.UnescapePathValues = true, false },
		"RemoveExtraSlash, raw":             func(e *gin.Engine) { e.RemoveExtraSlash, e.UseRawPath = true, true },
		"RemoveExtraSlash, not unescaped":   func(e *gin.Engine) { e.RemoveExtraSlash, e.UseRawPath, e.UnescapePathValues = true, true, false },
		"not unescaped":                     func(e *gin.Engine) { e.UnescapePathValues = false },
		"no redirects, raw, not unescaped ": func(e *gin.Engine) { e.RedirectTrailingSlash, e.UseRawPath, e.UnescapePathValues = false, true, false },
	} {
		adaptertest.RunSpellings(t, adaptertest.Adapter{Name: name, Router: ginRouter(set)})
	}
}
