package docs_test

import (
	"context"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/delegation"
	"github.com/reqlock/reqlock/guard"
	"github.com/reqlock/reqlock/idempotency"
	"github.com/reqlock/reqlock/internal/lab/redistest"
	"github.com/reqlock/reqlock/keyfuncs"
	httplock "github.com/reqlock/reqlock/middleware/nethttp"
)

// docs/guides/delegation.md
func TestDelegation(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client(t)
	secret := []byte("32 random bytes that both have..")
	order := keyfuncs.Prefix("order:", keyfuncs.PathValue("id"))

	keys, err := delegation.NewKeys(secret) // 32 random bytes that both services have
	if err != nil {
		log.Fatal(err)
	}

	mux := http.NewServeMux()
	bill := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "billed") })
	{
		locks, err := core.New(rdb, core.Options{Delegation: delegation.Service{Keys: keys, Name: "billing"}})
		if err != nil {
			log.Fatal(err)
		}
		guests := httplock.New(locks, httplock.Config{Key: order, Delegates: guard.DelegatesTogether})
		mux.Handle("POST /bills/{id}", guests(bill))
		defer locks.Close(context.Background())
	}
	billing := httptest.NewServer(mux)
	defer billing.Close()
	host := strings.TrimPrefix(billing.URL, "http://")

	mux = http.NewServeMux()
	{
		locks, err := core.New(rdb, core.Options{Delegation: delegation.Service{Keys: keys, Name: "orders"}})
		if err != nil {
			log.Fatal(err)
		}
		client := &http.Client{Transport: httplock.Transport(nil, delegation.Config{Hosts: map[string]string{host: "billing"}})}
		pay := func(w http.ResponseWriter, r *http.Request) {
			call, err := http.NewRequestWithContext(r.Context(), "POST", billing.URL+"/bills/"+r.PathValue("id"), nil)
			if err != nil {
				http.Error(w, err.Error(), http.StatusInternalServerError)
				return
			}
			call.Header.Set("Idempotency-Key", idempotency.DownstreamKey(r.Context(), "billing", "bill"))
			answer, err := client.Do(call) // with a token, because r.Context() comes from the lease
			if err != nil {
				http.Error(w, err.Error(), http.StatusBadGateway)
				return
			}
			defer answer.Body.Close()
			w.WriteHeader(answer.StatusCode)
		}
		lock := httplock.New(locks, httplock.Config{Key: order})
		once := httplock.Idempotent(locks, idempotency.Config{Scope: idempotency.ScopeGlobal})
		mux.Handle("POST /orders/{id}/pay", once(lock(http.HandlerFunc(pay))))
		defer client.CloseIdleConnections()
		defer locks.Close(context.Background())
	}
	for _, test := range []struct {
		handler http.Handler
		path    string
		want    int
	}{
		{mux, "/orders/42/pay", http.StatusOK},
		{billing.Config.Handler, "/bills/42", http.StatusOK}, // all have left
	} {
		r, w := httptest.NewRequest("POST", test.path, nil), httptest.NewRecorder()
		r.Header.Set("Idempotency-Key", "k-1")
		if test.handler.ServeHTTP(w, r); w.Code != test.want {
			t.Errorf("%s: %d %s", test.path, w.Code, w.Body)
		}
	}
}
