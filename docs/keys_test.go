package docs_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/reqlock/reqlock/keyfuncs"
	httplock "github.com/reqlock/reqlock/middleware/nethttp"
)

func TestKeySources(t *testing.T) {
	t.Parallel()
	byOrder := keyfuncs.Prefix("order:", keyfuncs.PathValue("id"))
	byTenant := keyfuncs.Join(keyfuncs.Context(tenantKey{}), keyfuncs.PathValue("id"))
	byText := keyfuncs.Template("order:{header.X-Tenant}:{path.id}")
	byJSON := keyfuncs.Prefix("order:", keyfuncs.JSON("/order/id")) // {"order": {"id": 42}}

	byUUID := keyfuncs.Prefix("order:", keyfuncs.UUID(keyfuncs.PathValue("id")))

	byClient := keyfuncs.ClientIP(netip.MustParsePrefix("10.1.2.0/24")) // your load balancers

	r := httptest.NewRequest(http.MethodPost, "/orders/42", strings.NewReader(`{"order": {"id": 42}}`)).WithContext(context.WithValue(t.Context(), tenantKey{}, "acme"))
	r.SetPathValue("id", "42")
	r.Header.Set("X-Tenant", "acme")
	r.Header.Set("Content-Type", "application/json")
	r.RemoteAddr = "10.1.2.3:4567"
	r.Header.Set("X-Forwarded-For", "6.6.6.6, 203.0.113.7")
	for _, test := range []struct {
		key  keyfuncs.Func
		want string
	}{{byOrder, "order:42"}, {byTenant, "acme:42"}, {byText, "order:acme:42"}, {byJSON, "order:42"}, {byClient, "203.0.113.7"}} {
		if got, err := test.key(r); got != test.want || err != nil {
			t.Errorf("the key is %q (%v), want %q", got, err, test.want)
		}
	}
	for id, want := range map[string]string{
		"6F1D2C3E-4B5A-4C7D-8E9F-0A1B2C3D4E5F": "order:6f1d2c3e-4b5a-4c7d-8e9f-0a1b2c3d4e5f",
		"6f1d2c3e4b5a4c7d8e9f0a1b2c3d4e5f":     "order:6f1d2c3e-4b5a-4c7d-8e9f-0a1b2c3d4e5f",
		"42":                                   "",
	} {
		r.SetPathValue("id", id)
		if got, err := byUUID(r); got != want || want == "" && !errors.Is(err, keyfuncs.ErrInvalid) {
			t.Errorf("the key of %s is %q (%v), want %q", id, got, err, want)
		}
	}
}

func TestKeysOfATransfer(t *testing.T) {
	t.Parallel()
	locks := newLocks(t)
	transfer := httplock.New(locks, httplock.Config{
		Keys: []keyfuncs.Func{
			keyfuncs.Prefix("account:", keyfuncs.JSON("/from")),
			keyfuncs.Prefix("account:", keyfuncs.JSON("/to")),
		},
		WaitTime: 2 * time.Second, // for both together
	})
	h := transfer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		for _, name := range []string{"reqlock:account:a", "reqlock:account:b"} {
			if held, err := locks.Lock(name).IsHeld(r.Context()); !held || err != nil {
				t.Errorf("%s held: %v, %v", name, held, err)
			}
		}
	}))
	r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(`{"from":"b","to":"a"}`))
	r.Header.Set("Content-Type", "application/json")
	if got := answerOf(h, r); got != "200 " {
		t.Error(got)
	}
}

func orderKey(r *http.Request) (string, error) {
	number, err := strconv.ParseUint(r.PathValue("id"), 10, 64)
	if err != nil {
		return "", fmt.Errorf("the number of the order: %w", keyfuncs.ErrInvalid) // 400
	}
	return "order:" + strconv.FormatUint(number, 10), nil // 42 and 042 are one
}

func TestKeyOfANumber(t *testing.T) {
	t.Parallel()
	locks := newLocks(t)
	hold(t, locks, "reqlock:order:42")
	mux := http.NewServeMux()
	mux.Handle("POST /orders/{id}", httplock.New(locks, httplock.Config{Key: orderKey})(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})))
	for path, want := range map[string]string{
		"/orders/42": "409", "/orders/042": "409", "/orders/%30%34%32": "409", "/orders/43": "200", "/orders/+42": "400", "/orders/x": "400",
	} {
		if got := answerOf(mux, post(path)); got[:3] != want {
			t.Errorf("%s: %s, want %s", path, got, want)
		}
	}
}

// docs/guides/keys.md
func byWarehouse(r *http.Request) (string, error) {
	if r.Header.Get("X-Dry-Run") == "true" {
		return "", keyfuncs.ErrSkip // changes nothing, so it needs no lock
	}
	return keyfuncs.Prefix("warehouse:", keyfuncs.PathValue("id"))(r)
}

func TestKeyOfYourOwn(t *testing.T) {
	t.Parallel()
	r := get("/warehouses/7")
	r.SetPathValue("id", "7")
	r.Pattern = "POST /warehouses/{id}"
	if key, err := byWarehouse(r); key != "warehouse:7" || err != nil {
		t.Errorf("key %q, %v; want warehouse:7", key, err)
	}
	r.Header.Set("X-Dry-Run", "true")
	if _, err := byWarehouse(r); !errors.Is(err, keyfuncs.ErrSkip) {
		t.Errorf("a dry run: %v, want ErrSkip", err)
	}
}
