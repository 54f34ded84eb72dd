package routes_test

import (
	"errors"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/reqlock/reqlock/guard"
	"github.com/reqlock/reqlock/guard/routes"
	"github.com/reqlock/reqlock/guard/routes/yaml"
	"github.com/reqlock/reqlock/internal/lab/redistest"
	"github.com/reqlock/reqlock/keyfuncs"
	"go.uber.org/goleak"
)

var write = flag.Bool("write", false, "rewrite schema.json")

func TestMain(m *testing.M) {
	flag.Parse()
	goleak.VerifyTestMain(redistest.Settled(m))
}

const inJSON = `{
	"$schema": "https://example.test/schema.json",
	"routes": [
		{"method": "POST", "pattern": "/orders/{id}/pay", "key": "order:{path.id}", "mode": "fair", "fenced": true,
		 "wait": "2s", "lease": 0, "max_hold": "1m30s", "max_waiters": -1, "buffer_body": 4096, "retry_after": "3s",
		 "fail_open": true, "pass_preflight": true},
		{"pattern": "/accounts/:from/to/:to", "keys": ["a:{path.from}", "a:{path.to}"]},
		{"method": "POST", "pattern": "/payments", "idempotency": {"scope": "{user}", "ttl": "24h", "on_unknown": "refuse",
		 "methods": ["POST"], "header": "X-Key", "optional": true, "strict": true, "key_uuid": true, "wait": "1s", "max_request_body": 10, "max_response_body": 20,
		 "route": "payments.create"}},
		{"pattern": "/exports", "key": "export", "limit": 5, "wait": "1s"},
		{"pattern": "/policy", "plugin": "policy.wasm"},
		{"pattern": "/search/{index}", "coalesce": {"key": "{path.index}:{header.X-Query}", "user": "{user}", "vary": ["Accept-Language"], "unsafe": "a query",
		 "wait": "5s", "lease": "1m", "max_waiters": -1, "keep": "10s", "stale": "20s", "error_for": -1, "max_answer": 10, "limit": 2, "unmarked": true, "fail_open": true}}
	]
}
`

const inYAML = `
# The same in YAML.
$schema: https://example.test/schema.json
routes:
  - method: POST
    pattern: /orders/{id}/pay
    key: "order:{path.id}"
    mode: fair
    fenced: true
    wait: 2s
    lease: 0
    max_hold: 1m30s
    max_waiters: -1
    buffer_body: 4096
    retry_after: 3s
    fail_open: true
    pass_preflight: true
  - pattern: /accounts/:from/to/:to
    keys: ["a:{path.from}", "a:{path.to}"]
  - method: POST
    pattern: /payments
    idempotency: {scope: "{user}", ttl: 24h, on_unknown: refuse, methods: [POST], header: X-Key, optional: true, strict: true, key_uuid: true, wait: 1s,
      max_request_body: 10, max_response_body: 20, route: payments.create}
  - pattern: /exports
    key: export
    limit: 5
    wait: 1s
  - pattern: /policy
    plugin: policy.wasm
  - pattern: /search/{index}
    coalesce: {key: "{path.index}:{header.X-Query}", user: "{user}", vary: [Accept-Language], unsafe: a query, wait: 5s, lease: 1m, max_waiters: -1,
      keep: 10s, stale: 20s, error_for: -1, max_answer: 10, limit: 2, unmarked: true, fail_open: true}
`

func options(format routes.Format) routes.Options {
	return routes.Options{
		Format:  format,
		Sources: map[string]keyfuncs.Func{"user": func(*http.Request) (string, error) { return "anna", nil }},
	}
}

func TestParse(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		src    string
		format routes.Format
	}{"JSON": {inJSON, nil}, "YAML": {inYAML, yaml.Format}, "JSON as YAML": {strings.ReplaceAll(inJSON, "\t", "  "), yaml.Format}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rows, err := routes.Parse("locks", []byte(test.src), options(test.format))
			if err != nil {
				t.Fatal(err)
			}
			if len(rows) != 6 {
				t.Fatalf("%d rows, want 6", len(rows))
			}
			checkLock(t, rows[0])
			if keys := rows[1].Keys; len(keys) != 2 || keys[1] != "a:{path.to}" || len(rows[1].Guard.Keys) != 2 || rows[1].Once != nil {
				t.Errorf("the second row is %+v", rows[1])
			}
			checkOnce(t, rows[2])
			if g := rows[3].Guard; g == nil || g.Limit != 5 || g.WaitTime != time.Second || g.Validate() != nil {
				t.Errorf("the fourth row is %+v", rows[3])
			}
			if rows[4].Plugin != "policy.wasm" || rows[4].Guard == nil || rows[4].Guard.Limit != 0 {
				t.Errorf("the fifth row is %+v", rows[4])
			}
			checkShared(t, rows[5])
		})
	}
}

func checkLock(t *testing.T, row routes.Row) {
	t.Helper()
	g := row.Guard
	if row.Method != "POST" || row.Pattern != "/orders/{id}/pay" || g.Mode != guard.ModeFair || !g.Fenced || g.WaitTime != 2*time.Second || g.LeaseTime != 0 ||
		g.MaxHold != 90*time.Second || g.MaxWaiters != -1 || g.BufferBody != 4096 || g.RetryAfter != 3*time.Second || !g.FailOpen || !g.PassPreflight {
		t.Errorf("the first row is %+v, %+v", row, g)
	}
	r := httptest.NewRequest("POST", "/", nil)
	r.Pattern = "/orders/{id}/pay"
	r.SetPathValue("id", "42")
	if key, err := g.Keys[0](r); key != "order:42" || err != nil {
		t.Errorf("the key is %q (%v)", key, err)
	}
}

func checkOnce(t *testing.T, row routes.Row) {
	t.Helper()
	o := row.Once
	if row.Guard != nil || o == nil {
		t.Fatalf("the third row is %+v", row)
	}
	scope, err := o.ScopeOf(httptest.NewRequest("POST", "/", nil))
	got := fmt.Sprintln(scope, err, o.TTL, o.OnUnknown, o.Methods, o.Header, o.Optional, o.Strict, o.KeyUUID, o.Wait, o.MaxRequestBody, o.MaxResponseBody, o.Idempotency.Route)
	if want := "anna <nil> 24h0m0s refuse [POST] X-Key true true true 1s 10 20 payments.create\n"; got != want {
		t.Errorf("idempotency is %s, want %s", got, want)
	}
}

func checkShared(t *testing.T, row routes.Row) {
	t.Helper()
	c := row.Shared
	if row.Guard != nil || row.Once != nil || c == nil {
		t.Fatalf("the sixth row is %+v", row)
	}
	r := httptest.NewRequest("POST", "/", nil)
	r.Pattern = "/search/{index}"
	r.SetPathValue("index", "books")
	r.Header.Set("X-Query", "go")
	key, err := c.KeyOf(r)
	user, err2 := c.UserOf(r)
	got := fmt.Sprintln(key, err, user, err2, c.Vary, c.Unsafe, c.Wait, c.Lease, c.MaxWaiters, c.Keep, c.Stale, c.ErrorFor < 0, c.MaxAnswer, c.Limit, c.Unmarked, c.FailOpen)
	if want := "books:go <nil> anna <nil> [Accept-Language] a query 5s 1m0s -1 10s 20s true 10 2 true true\n"; got != want {
		t.Errorf("coalesce is %s, want %s", got, want)
	}
}

// Without a key and a user, and with everyone, a row has no functions for them. A key beside coalesce is
// that of the lock of the run.
func TestParse_DefaultsOfCoalesce(t *testing.T) {
	t.Parallel()
	for src, locked := range map[string]bool{
		`"coalesce": {}`:                                    false,
		`"coalesce": {"user": "everyone"}`:                  false,
		`"key": "k", "coalesce": {"keep": 0}`:               true,
		`"method": "HEAD", "coalesce": {"error_for": "1h"}`: false,
		`"method": "POST", "coalesce": {"key": "k", "unsafe": "a query"}, "plugin": "p"`: true,
	} {
		rows, err := routes.Parse("locks.json", []byte(route(src)), options(nil))
		if err != nil || rows[0].Shared == nil || rows[0].Shared.UserOf != nil || (rows[0].Shared.KeyOf != nil) != (rows[0].Shared.Unsafe != "") || (rows[0].Guard != nil) != locked {
			t.Errorf("%s: %v, %+v", src, err, rows)
		}
	}
}

// The wildcards of Fiber have constraints, and end at a dash or a dot.
func TestParse_WildcardsOfFiber(t *testing.T) {
	t.Parallel()
	for _, row := range []string{
		`"pattern": "/x/:id?", "key": "{path.id}"`,
		`"pattern": "/x/:id<int>", "key": "{path.id}"`,
		`"pattern": "/x/:id<regex(^[a-z]{3}$)>/y", "key": "{path.id}"`,
		`"pattern": "/x/:from-:to", "key": "{path.from}:{path.to}"`,
		`"pattern": "/x/:file.json", "key": "{path.file}"`,
		`"pattern": "/x/:order-id", "key": "{path.order-id}"`, // Gin
	} {
		if _, err := routes.Parse("locks", []byte(`{"routes": [{`+row+`}]}`), options(nil)); err != nil {
			t.Errorf("%s: %v", row, err)
		}
	}
}

// A row with a method guards that method.
func TestParse_MethodsOfIdempotency(t *testing.T) {
	t.Parallel()
	for src, want := range map[string]string{
		`"method": "PUT", "pattern": "/x", "idempotency": {"scope": "global"}`:                             "[PUT]",
		`"method": "PUT", "pattern": "/x", "idempotency": {"scope": "global", "methods": ["POST", "PUT"]}`: "[POST PUT]",
		`"pattern": "/x", "idempotency": {"scope": "global"}`:                                              "[]", // those of idempotency.Config
	} {
		rows, err := routes.Parse("locks", []byte(`{"routes": [{`+src+`}]}`), options(nil))
		if err != nil || fmt.Sprint(rows[0].Once.Methods) != want {
			t.Errorf("%s: %v, %+v, want %s", src, err, rows, want)
		}
	}
}

// Each mistake is reported with its place, its value, and what would be right.
func TestParse_Mistakes(t *testing.T) {
	t.Parallel()
	for src, want := range map[string]string{
		``:                                            `1:1: the file ends before its object; want {"routes": [...]}`,
		`{"routes": [`:                                `1:13: the file ends before its object`,
		"{\n  \"routes\": [}\n}":                      `2:13: not JSON: `,
		`{"routes": []} x`:                            `1:16: `,
		`[]`:                                          `1:1: the file is a list; want an object`,
		`{}`:                                          `1:1: the file lacks routes`,
		`{"route": []}`:                               `1:2: the file has no field "route"; want routes`,
		`{"routes": {}}`:                              `1:12: routes is an object; want a list of routes`,
		`{"routes": ["/x"]}`:                          `1:13: a route is "/x"; want an object`,
		route(`"key": "k"`, ""):                       `1:13: a route lacks pattern`,
		route(``):                                     `1:13: the route has neither key nor keys nor plugin nor idempotency nor coalesce`,
		route(`"keys": []`):                           `1:49: keys is a list; want a list of texts`,
		route(`"keys": ["a", 1]`):                     `1:55: keys is 1; want a text`,
		route(`"key": "k", "key": "l"`):               `1:53: key is given twice, first in line 1; remove one`,
		route(`"key": "k", "keys": ["l"]`):            `the route has both key and keys`,
		route(`"keys": ["l"], "key": "k"`):            `the route has both key and keys`,
		route(`"key": "k", "plugin": "p"`):            `the route has both keys and a plugin`,
		route(`"key": "order:{path.no}"`):             `the pattern /orders/{id} has no wildcard "no"; it has id`,
		route(`"key": "order:{path.id"`):              `column 7: the brace is not closed`,
		route(`"key": "{path.id:uid}"`):               `the pattern /orders/{id} has no wildcard "id:uid"`,
		route(`"key": "{session}"`):                   `no source "session"`,
		route(`"key": "k", "mode": "exclusve"`):       `1:61: mode is "exclusve"; want exclusive, fair, fenced, read, write or read_write`,
		route(`"plugin": "p", "mode": "fair"`):        `the route has a mode, and no key`,
		route(`"keys": ["a", "b"], "mode": "fenced"`): `mode is fenced, but several locks have no common token; use one key, or exclusive`,
		route(`"keys": ["a", "b"], "fenced": true`):   `fenced is set, but several locks have no common token; use one key, or leave fenced out`,
		route(`"key": "k", "mode": "read", "fenced": true`):         `fenced is set with mode read, but readers have no tokens; leave fenced out, or use read_write`,
		route(`"coalesce": {}, "delegates": "together"`):            `the route has settings of a lock, and no key`,
		route(`"key": "k", "delegates": "all"`):                     `delegates is "all"; want none, together or one_at_a_time`,
		route(`"plugin": "p", "fenced": true`):                      `the route is fenced, and has no key`,
		route(`"key": "k", "limit": 1`):                             `1:62: limit is 1; want 2 or more, or 0 for a lock, which lets one in at a time`,
		route(`"key": "k", "limit": -5`):                            `limit is -5; want 2 or more`,
		route(`"key": "k", "limit": "5"`):                           `limit is "5"; want 2 or more`,
		route(`"key": "k", "limit": 5, "mode": "fair"`):             `the route has both mode and limit; a mode is a kind of lock`,
		route(`"key": "k", "limit": 5, "fenced": true`):             `fenced is set with a limit, but several requests are inside at a time`,
		route(`"plugin": "p", "limit": 5`):                          `the route has a limit, and no key`,
		route(`"key": "k", "fenced": "yes"`):                        `fenced is "yes"; want true or false, without quotes`,
		route(`"key": "k", "wait": 2`):                              `1:61: wait is 2; want a duration such as 2s or 1m30s`,
		route(`"key": "k", "wait": "2"`):                            `wait is "2"; want a duration`,
		route(`"key": "k", "wait": "-2s"`):                          `wait is "-2s"; want a duration`,
		route(`"key": "k", "lease": "1us"`):                         `lease is "1us"; want a duration of at least 1ms`,
		route(`"key": "k", "max_waiters": -2`):                      `max_waiters is -2; want a number, -1 for no bound`,
		route(`"key": "k", "buffer_body": "1k"`):                    `buffer_body is "1k"; want a number of bytes`,
		route(`"key": "k", "buffer_body": 1.5`):                     `buffer_body is 1.5; want a number of bytes`,
		route(`"key": "k", "fail_open": "yes"`):                     `fail_open is "yes"; want true or false, without quotes`,
		route(`"key": "k", "maxHold": "1s"`):                        `1:53: a route has no field "maxHold"; want max_hold`,
		route(`"key": "k", "patern": "/x"`):                         `a route has no field "patern"; want pattern`,
		route(`"key": "k", "mdoe": "fair"`):                         `a route has no field "mdoe"; want mode`,
		route(`"key": "k", "wairs": "1s"`):                          `a route has no field "wairs"; want one of`,
		route(`"key": "k", "ttl": "1s"`):                            `a route has no field "ttl"; want one of method, pattern, key`,
		route(`"key": "k", "method": "post"`):                       `method is "post"; want a method in upper case`,
		route(`"key": null`):                                        `key is nothing; want a text`,
		route(`"wait": "2s", "idempotency": {"scope": "{user}"}`):   `put those of idempotency into idempotency`,
		route(`"idempotency": {}`):                                  `1:56: idempotency lacks scope`,
		route(`"idempotency": {"scope": "all"}`):                    `scope is "all", the same for all callers; want a source such as {user}, or global`,
		route(`"idempotency": {"scope": "{nobody}"}`):               `scope: reqlock: keyfuncs: Template("{nobody}"): column 2: no source "nobody"`,
		route(`"idempotency": {"scope": "global", "methods": "P"}`): `methods is "P"; want a list of methods`,

		route(`"coalesce": "1s"`):                                                                            `1:53: coalesce is "1s"; want an object`,
		route(`"coalesce": {"keeps": "2s"}`):                                                                 `1:54: coalesce has no field "keeps"; want keep`,
		route(`"coalesce": {"keep": "2h"}`):                                                                  `1:62: keep is "2h"; want a duration from 1ms to 1h, or 0 for 2s`,
		route(`"coalesce": {"keep": "1us"}`):                                                                 `keep is "1us"; want a duration from 1ms`,
		route(`"coalesce": {"stale": "10s"}`):                                                                `stale is 10s, and keep is not set; say with keep how long an answer is not stale`,
		route(`"coalesce": {"keep": "1s", "stale": "2h"}`):                                                   `stale is "2h"; want a duration from 1ms to 1h, or 0 for none`,
		route(`"coalesce": {"keep": -1}`):                                                                    `keep is -1; want a duration from 1ms`,
		route(`"coalesce": {"error_for": "-1s"}`):                                                            `1:67: error_for is "-1s"; want a duration from 1ms to 1h, 0 for 1s, or -1 to share no errors`,
		route(`"coalesce": {"error_for": "-1"}`):                                                             `error_for is "-1"; want a duration from 1ms`,
		route(`"coalesce": {"wait": "1us"}`):                                                                 `wait is "1us"; want a duration of at least 1ms, or 0 for 30s`,
		route(`"coalesce": {"lease": 5}`):                                                                    `lease is 5; want a duration of at least 1ms`,
		route(`"coalesce": {"max_answer": "1MB"}`):                                                           `max_answer is "1MB"; want a number of bytes`,
		route(`"coalesce": {"limit": -1}`):                                                                   `limit is -1; want a number, or 0 for no bound`,
		route(`"coalesce": {"vary": ["*"]}`):                                                                 `1:63: vary is "*"; want the name of a header, such as Accept-Language`,
		route(`"coalesce": {"vary": "Origin"}`):                                                              `vary is "Origin"; want a list of headers`,
		route(`"coalesce": {"max_hold": "1s"}`):                                                              `coalesce has no field "max_hold"; want one of key, plugin, user, vary`,
		route(`"coalesce": {"user": "alice"}`):                                                               `1:53: user is "alice", the same for all; want a source such as {user}, or everyone`,
		route(`"coalesce": {"user": "{nobody}"}`):                                                            `user: reqlock: keyfuncs: Template("{nobody}"): column 2: no source "nobody"`,
		route(`"coalesce": {"key": "{path.no}"}`):                                                            `key: reqlock: keyfuncs: Template("{path.no}"): column 2: the pattern /orders/{id} has no wildcard "no"`,
		route(`"coalesce": {"unsafe": "a query"}`):                                                           `1:53: unsafe is set, and there is no key`,
		route(`"coalesce": {"key": "k", "plugin": "p"}`):                                                     `1:53: coalesce has both key and plugin; a plugin decides on the key`,
		route(`"method": "POST", "coalesce": {}`):                                                            `1:71: the route's method is POST, and only GET and HEAD share; if requests may share, say why in unsafe`,
		route(`"coalesce": {}, "idempotency": {"scope": "global"}`):                                          `1:13: the route has both idempotency and coalesce`,
		route(`"wait": "2s", "coalesce": {}`):                                                                `put those of idempotency into idempotency, and those of coalesce into coalesce`,
		route(`"method": "POST", "idempotency": {"scope": "global", "methods": ["PUT", "PATCH"]}`):           `1:74: methods is PUT, PATCH, and the route's method is POST; leave methods out, which means POST`,
		`{"routes": [{"pattern": "POST /x", "key": "k"}]}`:                                                   `pattern is "POST /x"; put the method into method`,
		`{"routes": [{"pattern": "x", "key": "k"}]}`:                                                         `pattern is "x"; want a path that begins with a slash`,
		`{"routes": [{"pattern": "/x", "key": "{path.id}"}]}`:                                                `the pattern /x has no wildcard`,
		"{\"routes\": [\n{\"pattern\": \"/{a}\", \"key\": \"k\"},\n{\"pattern\": \"/:b\", \"key\": \"k\"}]}": `3:1: "/:b" is in the table already, in line 2`,
	} {
		_, err := routes.Parse("locks.json", []byte(src), options(nil))
		var mistake *routes.Error
		if !errors.As(err, &mistake) || !strings.HasPrefix(err.Error(), "reqlock: routes: locks.json:") || !strings.Contains(err.Error(), want) {
			t.Errorf("%s:\n%v, want\n%s", src, err, want)
		}
	}
}

// route is a file with one route of /orders/{id} and these members. A second argument leaves the
// pattern out.
func route(members string, without ...string) string {
	if len(without) > 0 {
		return `{"routes": [{` + members + `}]}`
	}
	if members != "" {
		members = ", " + members
	}
	return `{"routes": [{"pattern": "/orders/{id}"` + members + `}]}`
}

// All mistakes are reported at once, in the order of the file.
func TestParse_AllMistakes(t *testing.T) {
	t.Parallel()
	_, err := routes.Parse("f", []byte("{\"routes\": [\n{\"pattern\": 1,\n\"wait\": 2},\n{\"modus\": 3, \"pattern\": \"x\"},\n{\"pattern\": \"/{id}\", \"key\": \"{path.no}\"}]}"), options(nil))
	const want = "reqlock: routes: f:2:13: pattern is 1; want a text\n" +
		"reqlock: routes: f:3:9: wait is 2; want a duration such as 2s or 1m30s\n" +
		"reqlock: routes: f:4:1: pattern is \"x\"; want a path that begins with a slash, such as /orders/{id}\n" +
		"reqlock: routes: f:4:2: a route has no field \"modus\"; want one of method, pattern, key, keys, plugin, mode, fenced, limit, delegates, buffer_body, retry_after, " +
		"pass_preflight, idempotency, coalesce, wait, lease, max_hold, max_waiters, fail_open\n" +
		"reqlock: routes: f:5:1: reqlock: keyfuncs: Template(\"{path.no}\"): column 2: the pattern /{id} has no wildcard \"no\"; it has id"
	if err == nil || err.Error() != want {
		t.Errorf("%v\nwant\n%s", err, want)
	}
}

// Without a Format, a file of YAML is read as JSON, and the error says which option reads it.
func TestParse_YAMLWithoutFormat(t *testing.T) {
	t.Parallel()
	const hint = "; for YAML, set Options.Format to yaml.Format of package guard/routes/yaml"
	for file, hinted := range map[string]bool{"locks.yaml": true, "locks.YML": true, "locks.json": false} {
		_, err := routes.Parse(file, []byte("routes:\n  - pattern: /x\n"), options(nil))
		if err == nil || !strings.Contains(err.Error(), file+":1:1: not JSON: ") || strings.HasSuffix(err.Error(), hint) != hinted {
			t.Errorf("%s: %v, hint wanted: %t", file, err, hinted)
		}
	}
}

func TestYAML_Mistakes(t *testing.T) {
	t.Parallel()
	for src, want := range map[string]string{
		"":                                   `1:1: the file is empty; want routes:`,
		"# nothing\n":                        `1:1: the file is empty`,
		"routes: [":                          `1:9: not YAML: `,
		"routes:\n  - pattern: /x\n\tkey: k": `3:1: not YAML: `,
		"routes:\n  - pattern: /x\n    key: k\n    mode: fare":     `4:11: mode is "fare"; want exclusive`,
		"routes:\n  - pattern: /x\n    key: k\n    wait: 2":        `4:11: wait is 2; want a duration`,
		"routes:\n  - pattern: /x\n    kee: k":                     `3:5: a route has no field "kee"; want key`,
		"routes:\n  - key: k":                                      `2:5: a route lacks pattern`,
		"a: &x 1\nroutes: *x":                                      `1:4: anchor is not allowed here`,
		"routes: []\n---\nroutes: []":                              `3:7: a second document; want one`,
		"routes: []\nroutes: []":                                   `2:1: `,
		"routes:\n  - pattern: /x\n    key: k\n    fail_open: yes": `4:16: fail_open is "yes"; want true or false`,
		"1: 2": `1:1: a name that is not a text`,
	} {
		_, err := routes.Parse("locks.yaml", []byte(src), options(yaml.Format))
		var mistake *routes.Error
		if !errors.As(err, &mistake) || !strings.HasPrefix(err.Error(), "reqlock: routes: locks.yaml:"+want) {
			t.Errorf("%q:\n%v, want\n%s", src, err, want)
		}
	}
}

// schema.json is made from the fields of the parser.
func TestSchema(t *testing.T) {
	t.Parallel()
	want, err := routes.Schema()
	if err != nil {
		t.Fatal(err)
	}
	if *write {
		if err := os.WriteFile("schema.json", want, 0o644); err != nil { //nolint:gosec // it is public
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile("schema.json"); err != nil || string(got) != string(want) {
		t.Errorf("schema.json is out of date (%v): go test ./guard/routes -run TestSchema -write", err)
	}
}

// A key with :uuid in a file is one key for all spellings of a UUID.
func TestParse_UUID(t *testing.T) {
	t.Parallel()
	rows, err := routes.Parse("locks.json", []byte(`{"routes": [{"pattern": "/orders/{id}", "key": "order:{path.id:uuid}"}]}`), routes.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for spelling, want := range map[string]string{
		"6F96D8B2-1C3D-4E5F-8A9B-0C1D2E3F4A5B":          "order:6f96d8b2-1c3d-4e5f-8a9b-0c1d2e3f4a5b",
		"6f96d8b21c3d4e5f8a9b0c1d2e3f4a5b":              "order:6f96d8b2-1c3d-4e5f-8a9b-0c1d2e3f4a5b",
		"urn:uuid:6f96d8b2-1c3d-4e5f-8a9b-0c1d2e3f4a5b": "order:6f96d8b2-1c3d-4e5f-8a9b-0c1d2e3f4a5b",
		"%7B6f96d8b2-1c3d-4e5f-8a9b-0c1d2e3f4a5b%7D":    "order:6f96d8b2-1c3d-4e5f-8a9b-0c1d2e3f4a5b",
		"42": "",
	} {
		var key string
		mux := http.NewServeMux()
		mux.HandleFunc("/orders/{id}", func(_ http.ResponseWriter, r *http.Request) { key, err = rows[0].Guard.Keys[0](r) })
		mux.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/orders/"+spelling, nil))
		if key != want || (err == nil) != (want != "") {
			t.Errorf("%s: %q, %v; want %q", spelling, key, err, want)
		}
	}
}
