package httplock_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/delegation"
	"github.com/reqlock/reqlock/embedded"
	httplock "github.com/reqlock/reqlock/middleware/nethttp"
)

// A body that says whether it was closed.
type body struct {
	io.Reader
	closed bool
}

func (b *body) Close() error {
	b.closed = true
	return nil
}

// Only the services that the Config names get tokens, and none behind a redirect to another host.
func TestTransport(t *testing.T) {
	t.Parallel()
	redis, err := embedded.Start()
	if err != nil {
		t.Fatal(err)
	}
	defer redis.Close()
	keys, err := delegation.NewKeys([]byte("32 random bytes that both have.."))
	if err != nil {
		t.Fatal(err)
	}
	rdb := redis.Client()
	locks, err := core.New(rdb, core.Options{Delegation: delegation.Service{Keys: keys, Name: "orders"}})
	if err != nil {
		t.Fatal(err)
	}
	defer rdb.Close()
	defer locks.Close(context.Background())
	lease, err := locks.Lock("order").Acquire(context.Background(), core.AcquireOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer lease.Release(context.Background())

	got := make(chan string, 10)
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { got <- r.Header.Get(delegation.Header) }))
	defer other.Close()
	named := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/away":
			http.Redirect(w, r, other.URL, http.StatusFound)
		case "/around":
			http.Redirect(w, r, "/", http.StatusFound)
		default:
			got <- r.Header.Get(delegation.Header)
		}
	}))
	defer named.Close()
	// Both hosts are named, so that only the redirect makes a difference.
	hosts := map[string]string{strings.TrimPrefix(named.URL, "http://"): "billing", strings.TrimPrefix(other.URL, "http://"): "mail"}
	base := &http.Transport{}
	defer base.CloseIdleConnections()
	get := func(ctx context.Context, url string, cfg delegation.Config) string {
		t.Helper()
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := (&http.Client{Transport: httplock.Transport(base, cfg)}).Do(r)
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
		if r.Header.Get(delegation.Header) != "" {
			t.Error("the caller's request was changed")
		}
		return <-got
	}
	for _, test := range []struct {
		what, url, audience string
		ctx                 context.Context
		cfg                 delegation.Config
	}{
		{"a named service", named.URL, "billing", lease.Context(), delegation.Config{Hosts: hosts}},
		{"a redirect within it", named.URL + "/around", "billing", lease.Context(), delegation.Config{Hosts: hosts}},
		{"a redirect to another", named.URL + "/away", "", lease.Context(), delegation.Config{Hosts: hosts}},
		{"by a function", other.URL, "chosen", lease.Context(), delegation.Config{Audience: func(*http.Request) string { return "chosen" }}},
		{"no service", other.URL, "", lease.Context(), delegation.Config{}},
		{"no lease", named.URL, "", context.Background(), delegation.Config{Hosts: hosts}},
	} {
		token := get(test.ctx, test.url, test.cfg)
		if test.audience == "" {
			if token != "" {
				t.Errorf("%s gets a token", test.what)
			}
			continue
		}
		if owner, ok := invited(t, keys, token, test.audience); !ok {
			t.Errorf("%s gets %q, which is not for %s (%v)", test.what, token, test.audience, owner)
		}
	}

	sent := &body{Reader: strings.NewReader("x")}
	r, _ := http.NewRequestWithContext(lease.Context(), http.MethodPost, named.URL, sent)
	_, err = httplock.Transport(base, delegation.Config{Audience: func(*http.Request) string { return "not, one" }}).RoundTrip(r)
	if !errors.Is(err, core.ErrInvalidOptions) || !sent.closed {
		t.Errorf("an audience that cannot be one: %v, body closed: %t", err, sent.closed)
	}
	defer func() {
		if recover() == nil {
			t.Error("a Config that can never work is accepted")
		}
	}()
	httplock.Transport(nil, delegation.Config{Hosts: map[string]string{"Host": "x"}})
}

// invited reports whether a token is for that audience, and for whose hold.
func invited(t *testing.T, keys *delegation.Keys, token, audience string) (owner string, ok bool) {
	t.Helper()
	redis, err := embedded.Start()
	if err != nil {
		t.Fatal(err)
	}
	defer redis.Close()
	rdb := redis.Client()
	defer rdb.Close()
	locks, err := core.New(rdb, core.Options{Delegation: delegation.Service{Keys: keys, Name: audience}})
	if err != nil {
		t.Fatal(err)
	}
	defer locks.Close(context.Background())
	return locks.Invitation(core.WithDelegation(context.Background(), token), "order")
}
