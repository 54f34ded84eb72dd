// Code generated from middleware/echo by make echov5 WRITE=1. DO NOT EDIT.

package echolock

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/labstack/echo/v5"
	"github.com/labstack/echo/v5/middleware"
	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/idempotency"
	"github.com/reqlock/reqlock/internal/lab/redistest"
)

// An answer that is flushed keeps the Content-Type that a writer below has found, which delays the
// header.
func TestIdempotent_DelayedHeader(t *testing.T) {
	t.Parallel()
	locks, err := core.New(redistest.Start(t).Client(t), core.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer locks.Close(context.Background())
	e := echo.New()
	e.Use(middleware.GzipWithConfig(middleware.GzipConfig{MinLength: 1000}))
	e.POST("/pay", func(c *echo.Context) error {
		_, _ = io.WriteString(c.Response(), "<html>paid")
		response(c).Flush()
		_, _ = io.WriteString(c.Response(), "</html>")
		return nil
	}, Idempotent(locks, idempotency.Config{Scope: idempotency.ScopeGlobal}))
	srv := httptest.NewServer(e)
	defer srv.Close()
	r, err := http.NewRequest(http.MethodPost, srv.URL+"/pay", strings.NewReader("x"))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Idempotency-Key", "a")
	res, err := srv.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if contentType := res.Header.Get("Content-Type"); err != nil || !strings.HasPrefix(contentType, "text/html") || string(body) != "<html>paid</html>" {
		t.Errorf("%s %q, %v", contentType, body, err)
	}
}
