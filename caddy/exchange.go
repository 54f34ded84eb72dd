package caddylock

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/guard"
)

// The placeholders that a handler sets.
const (
	placeholderProblem = "http.reqlock.problem"
	placeholderTitle   = "http.reqlock.title"
	placeholderDetail  = "http.reqlock.detail"
	placeholderWaited  = "http.reqlock.waited_ms"
	placeholderToken   = "http.reqlock.token"
)

// An exchange is one request in one handler.
type exchange struct {
	began   time.Time
	replace *caddy.Replacer
	err     error  // Caddy's error routes answer it.
	tokens  string // The service gets them; they may be those of a handler further out.

	// For the admin endpoint, which must not look at a request that is being handled.
	method, host, path, requestID string
}

type exchangeKey struct{}

// begin returns r with a new exchange in its context, which is ctx.
func begin(ctx context.Context, r *http.Request) (*http.Request, *exchange, error) {
	replace, ok := ctx.Value(caddy.ReplacerCtxKey).(*caddy.Replacer)
	if !ok {
		return nil, nil, errNoReplacer
	}
	x := &exchange{
		began: time.Now(), replace: replace,
		method: r.Method, host: r.Host, path: r.URL.Path, requestID: r.Header.Get("X-Request-Id"),
	}
	if outer, ok := ctx.Value(exchangeKey{}).(*exchange); ok {
		x.tokens = outer.tokens
	}
	for _, name := range []string{placeholderProblem, placeholderTitle, placeholderDetail} {
		replace.Set(name, "") // not that of a handler further out
	}
	return r.WithContext(context.WithValue(ctx, exchangeKey{}, x)), x, nil
}

// annotate names the request that acquires a lock with ctx.
func annotate(ctx context.Context) core.Annotation {
	x, ok := ctx.Value(exchangeKey{}).(*exchange)
	if !ok {
		return core.Annotation{}
	}
	return core.Annotation{Route: x.method + " " + x.host + x.path, RequestID: x.requestID}
}

// waited tells the routes inside, and error routes, how long the request has waited so far.
func (x *exchange) waited() {
	x.replace.Set(placeholderWaited, strconv.FormatInt(time.Since(x.began).Milliseconds(), 10))
}

// run runs the routes inside with the request that the guard made. They get Caddy's own request,
// changed, since Caddy's placeholders read that one.
func (x *exchange) run(w http.ResponseWriter, r, guarded *http.Request, next caddyhttp.Handler) error {
	x.waited()
	x.setToken(guarded.Context())
	ctx, body := r.Context(), r.Body
	*r = *guarded
	defer func() {
		*r = *r.WithContext(ctx)
		r.Body = body
	}()
	return next.ServeHTTP(w, r)
}

// setToken sets the placeholder of the token, to an empty text if there is none: Caddy leaves a
// placeholder that it does not know as it is written. A token of a handler further out stays.
func (x *exchange) setToken(ctx context.Context) {
	if lease, ok := guard.LeaseFrom(ctx); ok {
		if token, ok := lease.Token(); ok {
			x.replace.Set(placeholderToken, strconv.FormatUint(token, 10))
			return
		}
	}
	if _, known := x.replace.Get(placeholderToken); !known {
		x.replace.Set(placeholderToken, "")
	}
}

// refuse is a guard.Config.ErrorHandler. With routes, Caddy's error routes answer in place of the
// problem.
func refuse(routes bool) func(http.ResponseWriter, *http.Request, error) {
	return func(w http.ResponseWriter, r *http.Request, err error) {
		x := r.Context().Value(exchangeKey{}).(*exchange)
		x.waited()
		var refusal *guard.Error
		if errors.As(err, &refusal) {
			x.replace.Set(placeholderProblem, refusal.Type)
			x.replace.Set(placeholderTitle, refusal.Title)
			x.replace.Set(placeholderDetail, refusal.Detail)
		}
		if !routes || refusal == nil {
			guard.WriteProblem(w, r, err)
			return
		}
		if refusal.RetryAfter > 0 {
			seconds := (refusal.RetryAfter + time.Second - 1) / time.Second
			w.Header().Set("Retry-After", strconv.Itoa(int(seconds)))
		}
		x.err = caddyhttp.Error(refusal.Status, err)
	}
}
