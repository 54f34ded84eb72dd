package caddylock_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/reqlock/reqlock/internal/lab/redistest"
)

// names starts a service in the test that answers with the names of the locks that are held.
func names(t testing.TB, rdb *redis.Client) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		keys, err := rdb.Keys(r.Context(), "*").Result()
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		keys = slices.DeleteFunc(keys, func(key string) bool { return strings.HasPrefix(key, "reqlock:ping:") }) // of the check at the start
		slices.Sort(keys)
		fmt.Fprint(w, strings.Join(keys, " "))
	}))
	t.Cleanup(s.Close)
	return s
}

// Each row is a request and the names of its locks, or its problem.
func TestKeys(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s := names(t, server.Client(t))
	p := startCaddy(t, caddyfile("reqlock {\n redis redis://"+server.Addr()+"\n }\nservers {\n trusted_proxies static private_ranges\n }", `
		basic_auth /user {
			alice $2a$04$2R1cDhHhKMRee/EVFiY63OLVGmuFHkGW4eOXJ8x5CYu8yf5pCNmoa
		}
		@regexp path_regexp order ^/re/([^/]+)/
		vars /vars tenant acme

		route {
			reqlock /orders/* {
				key order:{path.1}
			}
			reqlock /path/* {
				key p:{path}
			}
			reqlock /uuid/* {
				key u:{path.1:uuid}
			}
			reqlock @regexp {
				key re:{re.order.1}
			}
			reqlock /header {
				key h:{header.X-Tenant}:{query.id}
			}
			reqlock /two {
				key a:{query.a}
				key b:{query.b}
			}
			reqlock /cookie {
				key {cookie.sid}
			}
			reqlock /json {
				key {json./order/id}
			}
			reqlock /host {
				key {host}|{method}
			}
			reqlock /label {
				key {labels.2}
			}
			reqlock /local {
				key {http.request.local.host}
			}
			reqlock /hostport {
				key {hostport}
			}
			reqlock /ip {
				key {client_ip}
			}
			reqlock /user {
				key user:{http.auth.user.id}
			}
			reqlock /anonymous {
				key user:{http.auth.user.id}
			}
			reqlock /vars {
				key {vars.tenant}
			}
			reqlock /unset {
				key {vars.nobody}
			}
			reqlock /env {
				key {env.TENANT}
			}
			reqlock /file/* {
				key {file}
			}
			reqlock /braces {
				key {{x}}
			}
			reverse_proxy `+strings.TrimPrefix(s.URL, "http://")+`
		}`), "TENANT=from the environment")
	missing, invalid := "400 key-missing", "400 key-invalid"
	const uuid = "reqlock:u:6f96d8b2-1c3d-4e5f-8a9b-0c1d2e3f4a5b"
	for _, test := range []struct {
		request string
		want    string
		header  []string
	}{
		{"GET /orders/42", "reqlock:order:42", nil},
		{"GET /orders/42/", "reqlock:order:42", nil},
		{"GET /orders/42/pay?x=1", "reqlock:order:42", nil},
		// What the service may decode once more is the same key.
		{"GET /orders/%34%32/pay", "reqlock:order:42", nil},
		{"GET /orders/%2534%2532/pay", "reqlock:order:42", nil},
		{"GET /%6Frders/42", "reqlock:order:42", nil},
		{"GET /ORDERS/42", "reqlock:order:42", nil},
		{"GET /orders/a:b", "reqlock:order:a~:b", nil},
		{"GET /orders/%7B%7D", "reqlock:order:%7B%7D", nil},
		// Services do not agree on these.
		{"GET /orders/a%2Fb", invalid, nil},
		{"GET /orders/a%252Fb", invalid, nil},
		{"GET /orders//42", invalid, nil},
		{"GET /orders/./42", invalid, nil},
		{"GET /path/%2E/42", invalid, nil},
		{"GET /orders/4%002", invalid, nil},
		{"GET /orders/", missing, nil},
		{"GET /uuid/6F96D8B2-1C3D-4E5F-8A9B-0C1D2E3F4A5B", uuid, nil},
		{"GET /uuid/6f96d8b21c3d4e5f8a9b0c1d2e3f4a5b", uuid, nil},
		{"GET /uuid/urn:uuid:6f96d8b2-1c3d-4e5f-8a9b-0c1d2e3f4a5b", uuid, nil},
		{"GET /uuid/%7B6f96d8b2-1c3d-4e5f-8a9b-0c1d2e3f4a5b%7D", uuid, nil},
		{"GET /uuid/42", invalid, nil},
		{"GET /path/a/b", "reqlock:p:/path/a/b", nil},
		{"GET /path/%61/%2562", "reqlock:p:/path/a/b", nil},
		{"GET /path/a%2Fb", invalid, nil},
		{"GET /re/7/x", "reqlock:re:7", nil},
		{"GET /re/%2537/x", "reqlock:re:7", nil},
		{"GET /re/a%252Fb/x", invalid, nil},
		{"GET /file/a/b", "reqlock:b", nil},
		{"GET /file/a%2Fb", invalid, nil},
		{"GET /header?id=a:b", "reqlock:h:t~~1:a~:b", []string{"X-Tenant", "t~1"}},
		{"GET /header?id=1", missing, nil},
		{"GET /header?id=1", missing, []string{"X-Tenant", ""}},
		{"GET /header?id=1", invalid, []string{"X-Tenant", "a", "X-Tenant", "b"}},
		{"GET /header?id=1&id=2", invalid, []string{"X-Tenant", "a"}},
		{"GET /two?a=1&b=2", "reqlock:a:1 reqlock:b:2", nil},
		{"GET /two?a=1", missing, nil},
		{"GET /cookie", "reqlock:s1", []string{"Cookie", "sid=s1"}},
		{"GET /cookie", missing, nil},
		{"GET /host", "reqlock:a.example|GET", []string{"Host", "A.example:81"}},
		{"GET /host", "reqlock:a.example|GET", []string{"Host", "a.example.:81"}},
		{"GET /label", "reqlock:acme", []string{"Host", "Acme.example.com:81"}},
		{"GET /label", "reqlock:acme", []string{"Host", "acme.example.com."}},
		{"GET /label", "reqlock:acme", []string{"Host", "acme.example.com.:81"}},
		{"GET /label", missing, []string{"Host", "example.com."}},
		{"GET /local", "reqlock:127.0.0.1", nil},
		{"GET /hostport", "reqlock:a.example~:81", []string{"Host", "A.example:81"}},
		{"GET /ip", "reqlock:2001~:db8~:~:/64", []string{"X-Forwarded-For", "2001:db8::7"}},
		{"GET /ip", "reqlock:127.0.0.1", nil},
		{"GET /user", "reqlock:user:alice", []string{"Authorization", "Basic YWxpY2U6c2VjcmV0"}},
		{"GET /anonymous", missing, nil},
		{"GET /vars", "reqlock:acme", nil},
		{"GET /unset", missing, nil},
		{"GET /env", "reqlock:from the environment", nil},
		{"GET /braces", "reqlock:%7Bx%7D", nil},
	} {
		method, path, _ := strings.Cut(test.request, " ")
		a := p.do(t, method, path, test.header...)
		got := a.body
		if a.status != http.StatusOK {
			got = fmt.Sprint(a.status, " ", a.problem())
		}
		if got != test.want {
			t.Errorf("%s %q: %s, want %s", test.request, test.header, got, test.want)
		}
	}
	a := send(t.Context(), p.client, http.MethodPost, p.url("/json"), `{"order":{"id":7}}`, "Content-Type", "application/json")
	if a.body != "reqlock:7" {
		t.Errorf("a key from the body: %v", a)
	}
	if a := p.do(t, http.MethodGet, "/anonymous"); strings.Contains(a.body, "auth") {
		t.Errorf("the answer names a placeholder: %v", a)
	}
}

// A lock follows the route to the service, not the address bar: the key is that of the path as it
// is where the lock stands, unless it asks for the original one.
func TestRewrites(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s := names(t, server.Client(t))
	proxy := "reverse_proxy " + strings.TrimPrefix(s.URL, "http://")
	p := startCaddy(t, caddyfile("reqlock {\n redis redis://"+server.Addr()+"\n }", `
		rewrite /legacy/pay.php /orders/{query.order}
		handle_path /api/* {
			reqlock {
				key {path.1}
			}
			`+proxy+`
		}
		handle_path /original/* {
			reqlock {
				key {http.request.orig_uri.path.2}
			}
			`+proxy+`
		}
		handle_path /whole/* {
			reqlock {
				key {orig_path}|{orig_file}|{path}
			}
			`+proxy+`
		}
		handle {
			route {
				reqlock /orders/* {
					key {path.1}
				}
				uri replace orders internal
				reqlock {
					key inside:{path.0}
				}
				`+proxy+`
			}
		}`))
	for request, want := range map[string]string{
		"/orders/42":                 "reqlock:42 reqlock:inside:internal",
		"/legacy/pay.php?order=42":   "reqlock:42 reqlock:inside:internal",
		"/api/orders/42":             "reqlock:42",
		"/api/orders/%2534%2532":     "reqlock:42",
		"/original/orders/42":        "reqlock:42",
		"/original/orders/%34%2532":  "reqlock:42",
		"/whole/orders/42":           "reqlock:/whole/orders/42|42|/orders/42",
		"/whole/%6Frders/%2534%2532": "reqlock:/whole/orders/42|42|/orders/42",
	} {
		if a := p.do(t, http.MethodGet, request); a.body != want {
			t.Errorf("%s: %v, want %s", request, a, want)
		}
	}
	if a := p.do(t, http.MethodGet, "/original/orders/a%252Fb"); a.problem() != "key-invalid" {
		t.Errorf("an escaped slash in the original path: %v", a)
	}
}

// The service gets the fencing token, which grows with each request, and how long the request has
// waited.
func TestPlaceholders(t *testing.T) {
	t.Parallel()
	p := startCaddy(t, caddyfile("reqlock {\n embedded\n }", `
		reqlock {
			key {path.0}
			mode fenced
		}
		respond "{http.reqlock.token} {http.reqlock.waited_ms}"`))
	var last, waited int
	for range 3 {
		var token int
		a := p.do(t, http.MethodGet, "/orders")
		if _, err := fmt.Sscanf(a.body, "%d %d", &token, &waited); err != nil || token <= last || waited < 0 {
			t.Errorf("%v after token %d: %v", a, last, err)
		}
		last = token
	}
}

// With read_write and fenced, each writer has a larger token, and a reader has none.
func TestPlaceholders_FencedWriters(t *testing.T) {
	t.Parallel()
	p := startCaddy(t, caddyfile("reqlock {\n embedded\n }", `
		reqlock {
			key {path.0}
			mode read_write
			fenced
		}
		respond "token {http.reqlock.token}"`))
	for _, step := range []struct{ method, want string }{
		{http.MethodPut, "token 1"}, {http.MethodGet, "token "}, {http.MethodPut, "token 2"},
	} {
		if a := p.do(t, step.method, "/reports"); a.body != step.want {
			t.Errorf("%s: %v, want %q", step.method, a, step.want)
		}
	}
}
