package keyfuncs_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"

	"github.com/reqlock/reqlock/keyfuncs"
)

func ExampleCookie() {
	key := keyfuncs.Cookie("session")

	r := httptest.NewRequest("POST", "/cart", nil)
	r.AddCookie(&http.Cookie{Name: "session", Value: "s-7"})

	serve("POST /cart", key, r)
	// Output: s-7
}

// Handlers that parse a UUID take several spellings of it for one order.
func ExampleUUID() {
	key := keyfuncs.UUID(keyfuncs.PathValue("id"))

	serve("PUT /orders/{id}", key,
		httptest.NewRequest("PUT", "/orders/6F9619FF-8B86-D011-B42D-00C04FC964FF", nil),
		httptest.NewRequest("PUT", "/orders/urn:uuid:6f9619ff-8b86-d011-b42d-00c04fc964ff", nil),
	)
	// Output:
	// 6f9619ff-8b86-d011-b42d-00c04fc964ff
	// 6f9619ff-8b86-d011-b42d-00c04fc964ff
}

func ExamplePath() {
	key := keyfuncs.Path()

	serve("PUT /files/{name}", key,
		httptest.NewRequest("PUT", "/files/%61.txt", nil),
		httptest.NewRequest("PUT", "/files/b%2fa.txt", nil),
		httptest.NewRequest("PUT", "/files/%2e%2e", nil),
	)
	// Output:
	// /files/a.txt
	// /files/b%2Fa.txt
	// reqlock: keyfuncs: the path has a segment that is empty, "." or ".."
}

func ExampleHost() {
	key := keyfuncs.Host()

	serve("GET /", key,
		httptest.NewRequest("GET", "http://Tenant1.example.com:80/", nil),
		httptest.NewRequest("GET", "http://tenant1.example.com.:8080/", nil),
	)
	// Output:
	// tenant1.example.com
	// tenant1.example.com:8080
}

func ExampleFormValue() {
	key := keyfuncs.FormValue("account")

	r := httptest.NewRequest("POST", "/transfer", strings.NewReader("account=7&amount=10"))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")

	serve("POST /transfer", key, r)
	// Output: 7
}

func ExampleJSON() {
	key := keyfuncs.JSON("/order/id", keyfuncs.MaxBody(64<<10))

	mux := http.NewServeMux()
	mux.HandleFunc("POST /pay", func(_ http.ResponseWriter, r *http.Request) {
		k, err := key(r)
		if err != nil {
			fmt.Println(err)
			return
		}
		body, _ := io.ReadAll(r.Body) // is all there
		fmt.Println(k, "of", string(body))
	})
	for _, body := range []string{
		`{"order": {"id": 42}}`,
		`{"order": {"\u0069d": 42.0}}`,
		`{"order": {"id": 42, "id": 43}}`,
	} {
		mux.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("POST", "/pay", strings.NewReader(body)))
	}
	// Output:
	// 42 of {"order": {"id": 42}}
	// 42 of {"order": {"\u0069d": 42.0}}
	// reqlock: keyfuncs: JSON value "/order/id" is ambiguous: a name in its path is given more than once or in another case
}

func ExampleBodyHash() {
	key := keyfuncs.BodyHash()

	serve("POST /webhook", key, httptest.NewRequest("POST", "/webhook", strings.NewReader("abc")))
	// Output: ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad
}

func ExampleMaxBody() {
	key := keyfuncs.BodyHash(keyfuncs.MaxBody(2))

	_, err := key(httptest.NewRequest("POST", "/webhook", strings.NewReader("abc")))
	var tooLarge *http.MaxBytesError
	if errors.As(err, &tooLarge) {
		fmt.Println("413, more than", tooLarge.Limit)
	}
	// Output: 413, more than 2
}

func ExampleClientIP() {
	key := keyfuncs.ClientIP(netip.MustParsePrefix("10.0.0.0/8")) // where the proxies are

	proxied := httptest.NewRequest("GET", "/", nil)
	proxied.RemoteAddr = "10.0.0.1:4711"
	// The first is the client's invention.
	proxied.Header.Set("X-Forwarded-For", "198.51.100.1, 2001:db8:1:2::7, 10.0.0.2")
	direct := httptest.NewRequest("GET", "/", nil)
	direct.RemoteAddr = "203.0.113.7:4711"
	direct.Header.Set("X-Forwarded-For", "198.51.100.1")

	serve("GET /", key, proxied, direct)
	// Output:
	// 2001:db8:1:2::/64
	// 203.0.113.7
}

type userKey struct{}

func ExampleContext() {
	key := keyfuncs.Prefix("user:", keyfuncs.Context(userKey{}))

	r := httptest.NewRequest("GET", "/", nil)
	authenticated := r.WithContext(context.WithValue(r.Context(), userKey{}, "42"))

	serve("GET /", key, authenticated)
	// Output: user:42
}

func ExampleFirstOf() {
	key := keyfuncs.FirstOf(keyfuncs.Context(userKey{}), keyfuncs.Header("X-Guest"))

	guest := httptest.NewRequest("GET", "/", nil)
	guest.Header.Set("X-Guest", "42")
	user := guest.WithContext(context.WithValue(guest.Context(), userKey{}, "42"))

	serve("GET /", key, user, guest, httptest.NewRequest("GET", "/", nil))
	// Output:
	// 1:42
	// 2:42
	// reqlock: keyfuncs: source 1 has no key; header X-Guest is missing
}

func ExampleTemplate() {
	key := keyfuncs.Template("order:{path.id}:{header.X-Tenant}")

	r := httptest.NewRequest("POST", "/orders/4:2", nil)
	r.Header.Set("X-Tenant", "t1")

	serve("POST /orders/{id}", key, r)
	// Output: order:4~:2:t1
}

func ExampleParseTemplate() {
	_, err := keyfuncs.ParseTemplate("order:{path.id}{header.X-Tenant}")
	fmt.Println(err)
	// Output:
	// reqlock: keyfuncs: Template("order:{path.id}{header.X-Tenant}"): column 16: a value directly behind another; put a text between them, such as a colon
}

// One lock around a whole route.
func ExampleConst() {
	key, err := keyfuncs.Const("nightly-import")(httptest.NewRequest("POST", "/import", nil))
	fmt.Println(key, err)
	// Output: nightly-import <nil>
}

// The method keeps the keys of two handlers of a path apart.
func ExampleMethod() {
	key, err := keyfuncs.Join(keyfuncs.Method(), keyfuncs.Path())(httptest.NewRequest("PUT", "/orders/42", nil))
	fmt.Println(key, err)
	// Output: PUT:/orders/42 <nil>
}

// The user, as the session middleware in front knows it.
func ExampleValue() {
	type sessionKey struct{}
	user := keyfuncs.Value("session user", func(r *http.Request) any { return r.Context().Value(sessionKey{}) })
	r := httptest.NewRequest("POST", "/pay", nil)
	_, err := user(r)
	fmt.Println("without a session:", errors.Is(err, keyfuncs.ErrMissing))
	key, err := user(r.WithContext(context.WithValue(r.Context(), sessionKey{}, "anna")))
	fmt.Println(key, err)
	// Output:
	// without a session: true
	// anna <nil>
}

// The subject of a token that the authentication has verified.
func ExampleClaim() {
	claims := func(*http.Request) map[string]any { return map[string]any{"sub": "anna"} }
	key, err := keyfuncs.Claim(claims, "sub")(httptest.NewRequest("POST", "/pay", nil))
	fmt.Println(key, err)
	// Output: anna <nil>
}

// A key function of your own reads the body, and leaves it to the handler.
func ExampleBody() {
	body := keyfuncs.Body()
	r := httptest.NewRequest("POST", "/import", strings.NewReader("order=42"))
	text, err := body(r)
	if err != nil {
		log.Fatal(err)
	}
	rest, err := io.ReadAll(r.Body)
	fmt.Printf("%s, and the handler reads %s %v\n", text, rest, err)
	// Output: order=42, and the handler reads order=42 <nil>
}

// A host adds names of its own to templates.
func ExampleParseTemplateWith() {
	key, err := keyfuncs.ParseTemplateWith("{tenant}:{path.id}", func(name string) (keyfuncs.Func, error) {
		if name != "tenant" {
			return nil, nil // one of this package, or unknown
		}
		return keyfuncs.Header("X-Tenant"), nil
	})
	if err != nil {
		log.Fatal(err)
	}
	r := httptest.NewRequest("POST", "/orders/42", nil)
	r.Header.Set("X-Tenant", "acme")
	r.SetPathValue("id", "42")
	fmt.Println(key(r))
	// Output: acme:42 <nil>
}

// Detail is for the client, and Remedy for the log.
func ExampleDetail() {
	_, err := keyfuncs.Header("X-Tenant")(httptest.NewRequest("POST", "/", nil))
	fmt.Println(keyfuncs.Detail(err))
	r := httptest.NewRequest("POST", "/orders/42", nil)
	r.Pattern = "POST /orders/{order}"
	_, err = keyfuncs.PathValue("id")(r)
	fmt.Println(keyfuncs.Remedy(err))
	// Output:
	// header X-Tenant is missing true
	// the wildcards of the route's pattern "POST /orders/{order}" are "order": use one of them in the key, or add "id" to the pattern true
}
