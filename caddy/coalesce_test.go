package caddylock_test

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/reqlock/reqlock/internal/lab/redistest"
)

// shared reports whether an answer is that of another request.
func (a answer) shared() bool { return a.header.Get("Reqlock-Shared") == "1" }

// eventuallyShares waits until a process waits in Redis for the run of another one.
func eventuallyShares(t testing.TB, rdb *redis.Client) {
	t.Helper()
	eventually(t, "a request that waits for the run of another process", func() bool {
		return len(rdb.PubSubChannels(t.Context(), "*reqlock:coalesce:*").Val()) > 0
	})
}

// Requests by two instances of Caddy get the answer of one run, also one that the service sends in
// chunks.
func TestCoalesce(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	rdb := server.Client(t)
	s := startPython(t)
	config := caddyfile("reqlock {\n redis redis://"+server.Addr()+"\n }", `
		reqlock_coalesce {
			keep 1m
		}
		reverse_proxy `+s.addr())
	one, other := startCaddy(t, config), startCaddy(t, config)
	for i, path := range []string{"/reports/7?gate=a", "/reports/7?gate=b&chunked=1"} {
		get := func(p *process) <-chan answer { return p.doAsync(t, http.MethodGet, path, "Host", "a.example") }
		run := get(one)
		s.eventuallyCalls(t, i+1)
		var waiting []<-chan answer
		for range 10 {
			waiting = append(waiting, get(one), get(other))
		}
		eventuallyShares(t, rdb)
		s.open(t, string(rune('a'+i)))
		first := mustReceive(t, run)
		if want := fmt.Sprintf("paid by python, number %d\n", i+1); first.status != http.StatusOK || first.body != want || first.shared() {
			t.Fatalf("%s: %v %v", path, first, first.header)
		}
		for _, answers := range waiting {
			if a := mustReceive(t, answers); a.status != http.StatusOK || a.body != first.body || !a.shared() {
				t.Errorf("%s: %v %v", path, a, a.header)
			}
		}
	}
	if a := one.do(t, http.MethodGet, "/reports/7?gate=a", "Host", "b.example"); a.shared() {
		t.Errorf("another host: %v", a)
	}
	if calls := s.journal(t); len(calls) != 3 {
		t.Errorf("the service was called %d times", len(calls))
	}
}

// Users share only if the file says so.
func TestCoalesce_Users(t *testing.T) {
	t.Parallel()
	s := startPython(t)
	p := startCaddy(t, caddyfile("reqlock {\n embedded\n }", `
		reqlock_coalesce /user/* {
			user {header.X-User}
			keep 1m
		}
		reqlock_coalesce /everyone/* {
			user everyone
			keep 1m
			unmarked
		}
		reqlock_coalesce /unknown/* {
			keep 1m
		}
		reverse_proxy `+s.addr()))
	for name, test := range map[string]struct {
		path          string
		first, second []string // the headers of two requests
		equal         bool
	}{
		"one user":               {"/user/1", []string{"X-User", "alice"}, []string{"X-User", "alice", "Authorization", "x"}, true},
		"two users":              {"/user/2", []string{"X-User", "alice"}, []string{"X-User", "bob"}, false},
		"everyone":               {"/everyone/1", []string{"Authorization", "alice"}, []string{"Cookie", "id=bob"}, true},
		"an unknown user":        {"/unknown/1", []string{"Authorization", "alice"}, []string{"Authorization", "alice"}, false},
		"cookies":                {"/unknown/2", []string{"Cookie", "id=alice"}, []string{"Cookie", "id=alice"}, false},
		"a public answer":        {"/unknown/3?header=Cache-Control:public", []string{"Cookie", "id=alice"}, []string{"Cookie", "id=bob"}, true},
		"no sign of a user":      {"/unknown/4", nil, nil, true},
		"a cookie, and none":     {"/unknown/5", nil, []string{"Cookie", "id=bob"}, false},
		"a cookie in the answer": {"/everyone/2?header=Set-Cookie:id=1", nil, nil, false},
	} {
		first, second := p.do(t, http.MethodGet, test.path, test.first...), p.do(t, http.MethodGet, test.path, test.second...)
		if first.status != http.StatusOK || second.status != http.StatusOK || first.shared() || (second.body == first.body) != test.equal {
			t.Errorf("%s: %v, then %v", name, first, second)
		}
		if marked := test.equal && !strings.HasPrefix(test.path, "/everyone/"); second.shared() != marked {
			t.Errorf("%s: the second answer has the header %v", name, second.header)
		}
		if strings.Contains(test.path, "Set-Cookie") && second.header.Get("Set-Cookie") != "id=1" {
			t.Errorf("%s: %v", name, second.header)
		}
	}
	if a := p.do(t, http.MethodGet, "/user/3"); a.status != http.StatusBadRequest || a.problem() != "key-missing" {
		t.Errorf("without a user: %v", a)
	}
}

// The key, the headers in vary and unsafe say what requests want. Of a body, the service gets all.
func TestCoalesce_Keys(t *testing.T) {
	t.Parallel()
	s := startPython(t)
	p := startCaddy(t, caddyfile("reqlock {\n embedded\n }", `
		reqlock_coalesce /reports/* {
			key {path.1}
			vary Accept-Language X-Theme
			keep 1m
		}
		reqlock_coalesce /queries/* {
			key query:{body.hash}
			unsafe "the POST is a query"
			keep 1m
		}
		reverse_proxy `+s.addr()))
	type request struct {
		method, path, body string
		header             []string
	}
	for name, test := range map[string]struct {
		first, second request
		equal         bool
	}{
		"one key":                {request{"GET", "/reports/1?a", "", nil}, request{"GET", "/reports/1?b", "", nil}, true},
		"two keys":               {request{"GET", "/reports/2", "", nil}, request{"GET", "/reports/3", "", nil}, false},
		"two methods":            {request{"GET", "/reports/4", "", nil}, request{"HEAD", "/reports/4", "", nil}, false},
		"a POST":                 {request{"POST", "/reports/5", "", nil}, request{"POST", "/reports/5", "", nil}, false},
		"a range":                {request{"GET", "/reports/6", "", nil}, request{"GET", "/reports/6", "", []string{"Range", "bytes=0-1"}}, false},
		"one language":           {request{"GET", "/reports/7", "", []string{"Accept-Language", "de"}}, request{"GET", "/reports/7", "", []string{"Accept-Language", "de"}}, true},
		"two languages":          {request{"GET", "/reports/8", "", []string{"Accept-Language", "de"}}, request{"GET", "/reports/8", "", []string{"Accept-Language", "en"}}, false},
		"a header of the key":    {request{"GET", "/reports/9?header=Vary:x-theme", "", nil}, request{"GET", "/reports/9?header=Vary:x-theme", "", nil}, true},
		"another header":         {request{"GET", "/reports/10?header=Vary:Origin", "", nil}, request{"GET", "/reports/10?header=Vary:Origin", "", nil}, false},
		"one body":               {request{"POST", "/queries/1?echo=1", "all", nil}, request{"POST", "/queries/1?echo=1", "all", nil}, true},
		"two bodies":             {request{"POST", "/queries/1?echo=1", "some", nil}, request{"POST", "/queries/1?echo=1", "none", nil}, false},
		"a body and a cookie":    {request{"POST", "/queries/1?echo=1&header=Set-Cookie:a=b", "mine", nil}, request{"POST", "/queries/1?echo=1&header=Set-Cookie:a=b", "mine", nil}, false},
		"an answer to one alone": {request{"GET", "/reports/11?status=409", "", nil}, request{"GET", "/reports/11?status=409", "", nil}, false},
	} {
		send := func(r request) answer {
			a := send(t.Context(), p.client, r.method, p.url(r.path), r.body, r.header...)
			if a.err != nil || r.method != "HEAD" && !strings.HasSuffix(a.body, "\n"+r.body) {
				t.Errorf("%s: %v", name, a)
			}
			return a
		}
		if first, second := send(test.first), send(test.second); first.shared() || second.shared() != test.equal || (second.body == first.body) != test.equal {
			t.Errorf("%s: %v, then %v", name, first, second)
		}
	}
}

// Each client gets an encoding that it accepts, and 304 if it has the answer already.
func TestCoalesce_Clients(t *testing.T) {
	t.Parallel()
	s := startPython(t)
	p := startCaddy(t, caddyfile("reqlock {\n embedded\n }", `
		encode {
			gzip
			minimum_length 1
		}
		reqlock_coalesce {
			keep 1m
		}
		reverse_proxy `+s.addr()))
	const path = "/reports/7?header=Etag:%22v1%22"
	if a := p.do(t, http.MethodGet, path, "If-None-Match", `"v1"`); a.status != http.StatusOK || a.shared() || a.body != "paid by python, number 1\n" {
		t.Errorf("the run has the whole answer: %v %v", a, a.header)
	}
	for _, encoding := range []string{"gzip", "identity"} {
		a := p.do(t, http.MethodGet, path, "Accept-Encoding", encoding)
		if gzipped := encoding == "gzip"; a.status != http.StatusOK || !a.shared() || (a.header.Get("Content-Encoding") == "gzip") != gzipped || (a.body == "paid by python, number 1\n") == gzipped {
			t.Errorf("%s: %v %v", encoding, a, a.header)
		}
	}
	if a := p.do(t, http.MethodGet, path, "If-None-Match", `"v1"`); a.status != http.StatusNotModified || a.body != "" {
		t.Errorf("a client with the answer: %v %v", a, a.header)
	}
}

// A client gets the parts of an answer while it is written, if it is a stream of events, or is not
// shared for another reason.
func TestCoalesce_Stream(t *testing.T) {
	t.Parallel()
	s := startPython(t)
	p := startCaddy(t, caddyfile("reqlock {\n embedded\n }", `
		reqlock_coalesce
		reverse_proxy `+s.addr()))
	for i, query := range []string{"", "&kind=text/plain&header=Set-Cookie:a=b"} {
		gate := string(rune('a' + i))
		var streams []*bufio.Scanner
		for range 2 {
			request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, p.url("/events/7?gate="+gate+query), nil)
			if err != nil {
				t.Fatal(err)
			}
			response, err := p.client.Do(request)
			if err != nil {
				t.Fatal(err)
			}
			defer response.Body.Close()
			lines := bufio.NewScanner(response.Body)
			if !lines.Scan() || lines.Text() != "data: first" || response.Header.Get("Reqlock-Shared") != "" {
				t.Fatalf("%q: %q, %v", query, lines.Text(), lines.Err())
			}
			streams = append(streams, lines)
		}
		s.open(t, gate)
		for _, lines := range streams {
			last := ""
			for lines.Scan() {
				last += lines.Text()
			}
			if last != "data: last" {
				t.Errorf("%q: the stream ends with %q", query, last)
			}
		}
	}
}

// The run goes on when its client leaves, and a client that waits gets its answer.
func TestCoalesce_ClientLeaves(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s := startPython(t)
	config := caddyfile("reqlock {\n redis redis://"+server.Addr()+"\n }", `
		reqlock_coalesce {
			key {path.1}
			keep 1m
		}
		reverse_proxy `+s.addr())
	one, other := startCaddy(t, config), startCaddy(t, config)
	ctx, leave := context.WithCancel(t.Context())
	first := make(chan answer, 1)
	go func() { first <- send(ctx, one.client, http.MethodGet, one.url("/reports/7?gate=a"), "") }()
	s.eventuallyCalls(t, 1)
	waiting := other.doAsync(t, http.MethodGet, "/reports/7?gate=a")
	eventuallyShares(t, server.Client(t))
	leave()
	<-first
	s.open(t, "a")
	if a := mustReceive(t, waiting); a.body != "paid by python, number 1\n" || !a.shared() {
		t.Errorf("%v %v", a, a.header)
	}
}

// A request that comes after a reload gets the answer of a run that began before it.
func TestCoalesce_Reload(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s := startPython(t)
	config := func(n int) string {
		return caddyfile("reqlock {\n redis redis://"+server.Addr()+"\n }", fmt.Sprintf(`
			header Config %d
			reqlock_coalesce {
				keep 1m
			}
			reverse_proxy %s`, n, s.addr()))
	}
	p := startCaddy(t, config(1))
	run := p.doAsync(t, http.MethodGet, "/reports/7?gate=a")
	s.eventuallyCalls(t, 1)
	p.reload(t, config(2))
	waiting := p.doAsync(t, http.MethodGet, "/reports/7?gate=a")
	eventuallyShares(t, server.Client(t))
	s.open(t, "a")
	for i, a := range []answer{mustReceive(t, run), mustReceive(t, waiting)} {
		if a.body != "paid by python, number 1\n" || a.shared() != (i == 1) || a.header.Get("Config") != fmt.Sprint(i+1) {
			t.Errorf("%v %v", a, a.header)
		}
	}
}

// Caddy's error routes answer each request, with what the client sent. Failures that the service
// answers are shared for error_for.
func TestCoalesce_Errors(t *testing.T) {
	t.Parallel()
	s := startPython(t)
	p := startCaddy(t, caddyfile("reqlock {\n embedded\n }", `
		reqlock_coalesce /lasting/* {
			error_for 1m
		}
		reqlock_coalesce /each/* {
			error_for -1
		}
		reqlock_coalesce /inside/* {
			key {query.id}
			keep 1m
			handle_errors
		}
		error /inside/teapot "no coffee" 418
		reverse_proxy /inside/down 127.0.0.1:1
		reverse_proxy `+s.addr()+`
		handle_errors {
			respond "{err.status_code} {http.reqlock.problem} {header.If-None-Match}"
		}`))
	for path, equal := range map[string]bool{"/lasting/7?status=500": true, "/each/7?status=500": false} {
		first, second := p.do(t, http.MethodGet, path), p.do(t, http.MethodGet, path)
		if first.status != http.StatusInternalServerError || second.status != first.status || (first.body == second.body) != equal || second.shared() != equal {
			t.Errorf("%s: %v, then %v", path, first, second)
		}
	}
	for range 2 {
		for path, want := range map[string]string{
			"/inside/teapot?id=1": "418  tag",
			"/inside/down?id=2":   "502  tag",
			"/inside/none":        "400 urn:reqlock:problem:key-missing tag",
		} {
			if a := p.do(t, http.MethodGet, path, "If-None-Match", "tag"); a.body != want || a.shared() {
				t.Errorf("%s: %v, want %q", path, a, want)
			}
		}
	}
}
