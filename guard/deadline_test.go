package guard

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/keyfuncs"
)

// After a deadline the client waits for an answer. Only a canceled context means that it has left.
func TestServe_EndedContext(t *testing.T) {
	t.Parallel()
	own := errors.New("the query was cut off")
	failing := func(err error) Config {
		return Config{Key: func(r *http.Request) (string, error) {
			<-r.Context().Done()
			if err != nil {
				return "", err
			}
			return "", fmt.Errorf("tenant: %w", r.Context().Err())
		}}
	}
	policy := Config{Policy: func(r *http.Request, _ *Policy) error {
		<-r.Context().Done()
		return r.Context().Err()
	}}
	for name, test := range map[string]struct {
		cfg                  Config
		afterDeadline, after int
	}{
		"Key":                           {failing(nil), 503, 499},
		"Key, with an error of its own": {failing(own), 503, 499},
		"Key, missing":                  {failing(keyfuncs.ErrMissing), 400, 499},
		"Policy":                        {policy, 503, 499},
		"BufferBody":                    {Config{Key: keyfuncs.Const("k"), BufferBody: 10}, 503, 499},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := test.cfg
			var outcome string
			cfg.Logger = slog.New(slog.DiscardHandler)
			cfg.Observe = func(_ *http.Request, o Outcome) {
				var e *Error
				errors.As(o.Err, &e)
				outcome = e.Type
			}
			cfg.Locker = func(*http.Request, string) core.Locker { return refusing{own} }
			g, err := New(nil, cfg)
			if err != nil {
				t.Fatal(err)
			}
			serve := func(ctx context.Context) int {
				w, r := httptest.NewRecorder(), httptest.NewRequest("POST", "/", cutBody{ctx})
				g.Serve(w, r.WithContext(ctx), func(http.ResponseWriter, *http.Request) { t.Error("the handler runs") })
				return w.Code
			}
			ctx, cancel := context.WithDeadline(t.Context(), time.Now())
			defer cancel()
			if code := serve(ctx); code != test.afterDeadline || code == 503 && outcome != ProblemBackendUnavailable {
				t.Errorf("after a deadline: %d, %s, want %d", code, outcome, test.afterDeadline)
			}
			ctx, cancel = context.WithCancel(t.Context())
			cancel()
			if code := serve(ctx); code != test.after {
				t.Errorf("after the client has left: %d, want %d", code, test.after)
			}
		})
	}
}

// A cutBody fails when its context has ended.
type cutBody struct{ context.Context }

func (b cutBody) Read([]byte) (int, error) {
	<-b.Done()
	return 0, io.ErrUnexpectedEOF
}
