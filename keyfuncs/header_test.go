package keyfuncs

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

func TestHeader(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		values []string
		want   answer
	}{
		"none":         {nil, answer{kind: ErrMissing, text: "header Idempotency-Key is missing"}},
		"empty":        {[]string{""}, answer{kind: ErrMissing, text: "header Idempotency-Key is empty"}},
		"one":          {[]string{"k-1"}, answer{key: "k-1"}},
		"case is kept": {[]string{"K-1"}, answer{key: "K-1"}},
		"quoted":       {[]string{`"k-1"`}, answer{key: `"k-1"`}},
		"a list":       {[]string{"a, b"}, answer{key: "a, b"}},
		"two":          {[]string{"a", "b"}, answer{kind: ErrInvalid, text: "header Idempotency-Key is given more than once"}},
		"two alike":    {[]string{"a", "a"}, answer{kind: ErrInvalid, text: "header Idempotency-Key is given more than once"}},
		"two, empty":   {[]string{"", ""}, answer{kind: ErrInvalid, text: "header Idempotency-Key is given more than once"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := get("/")
			for _, v := range test.values {
				r.Header.Add("Idempotency-Key", v)
			}
			r.Header.Set("Other", "other")
			for _, name := range []string{"Idempotency-Key", "idempotency-key", "IDEMPOTENCY-KEY"} {
				key, err := Header(name)(r)
				test.want.check(t, key, err)
			}
		})
	}
}

func TestHeaderValues(t *testing.T) {
	t.Parallel()
	ask := func(value string) (string, error) {
		r := get("/")
		r.Header["X-Tenant"] = []string{value}
		return Header("X-Tenant")(r)
	}
	for _, value := range clean {
		key, err := ask(value)
		answer{key: value}.check(t, key, err)
	}
	for name, test := range unclean {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			key, err := ask(test.value)
			answer{kind: ErrInvalid, text: "header X-Tenant " + test.why}.check(t, key, err)
		})
	}
}

func TestHeaderWithoutHeaders(t *testing.T) {
	t.Parallel()
	key, err := Header("X-Tenant")(&http.Request{})
	answer{kind: ErrMissing, text: "header X-Tenant is missing"}.check(t, key, err)
}

// The headers a real server passes on from a client.
func TestHeaderOverTheWire(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		lines  string
		status int
		want   answer
	}{
		"any case":      {"x-tEnAnT:  t1 \r\n", 200, answer{key: "t1"}},
		"two lines":     {"X-Tenant: t1\r\nx-tenant: t1\r\n", 200, answer{kind: ErrInvalid, text: "header X-Tenant is given more than once"}},
		"blank":         {"X-Tenant:   \r\n", 200, answer{kind: ErrMissing, text: "header X-Tenant is empty"}},
		"a tab":         {"X-Tenant: a\tb\r\n", 200, answer{kind: ErrInvalid, text: "header X-Tenant has control characters in it"}},
		"invalid UTF-8": {"X-Tenant: a\xffb\r\n", 200, answer{kind: ErrInvalid, text: "header X-Tenant is not valid UTF-8"}},
		"NUL":           {"X-Tenant: a\x00b\r\n", 400, answer{}}, // net/http refuses it by itself
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			key := Header("X-Tenant")
			srv := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				got, err := key(r)
				test.want.check(t, got, err)
			}))
			defer srv.Close()
			if got := send(t, srv.Listener.Addr(), "GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n"+test.lines+"\r\n"); got != test.status {
				t.Errorf("status %d, want %d", got, test.status)
			}
		})
	}
}

// The headers that Header refuses are those that the server removes from the request.
func TestHeadersThatNeverArrive(t *testing.T) {
	t.Parallel()
	var got http.Header
	srv := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got = r.Header }))
	defer srv.Close()
	const request = "POST / HTTP/1.1\r\nHost: h\r\nConnection: close\r\nX-Tenant: t\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n0\r\nX-Sum: 1\r\n\r\n"
	if status := send(t, srv.Listener.Addr(), request); status != 200 {
		t.Fatalf("status %d", status)
	}
	srv.Close() // the handler has returned
	if got.Get("X-Tenant") != "t" {
		t.Errorf("headers %v, want X-Tenant among them", got)
	}
	for _, name := range []string{"Host", "Trailer", "Transfer-Encoding"} {
		if _, ok := got[name]; ok {
			t.Errorf("%s arrives: Header need not refuse it", name)
		}
	}
}

// send writes raw bytes, which http.Client would not, and returns the status.
func send(t *testing.T, addr net.Addr, request string) int {
	t.Helper()
	conn, err := net.Dial(addr.Network(), addr.String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(30 * time.Second))
	if _, err := fmt.Fprint(conn, request); err != nil {
		t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	return resp.StatusCode
}
