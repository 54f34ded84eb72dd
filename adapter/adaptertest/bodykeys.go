package adaptertest

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"mime/multipart"
	"net"
	"net/http"
	"net/netip"
	"strings"

	"github.com/reqlock/reqlock/guard"
	"github.com/reqlock/reqlock/keyfuncs"
)

var bodyKeys = []scenario{
	{name: "body keys: the handler reads the unchanged body", run: bodyKeyIntact},
	{name: "body keys: the limit", run: bodyKeyLimit},
	{name: "body keys: a body that is too long is not asked for", run: bodyKeyWithoutContinue},
	{name: "body keys: compressed", run: bodyKeyCompressed},
	{name: "body keys: a client that aborts its upload", run: bodyKeyBreaksOff},
	{name: "body keys: a policy's own error about an aborted body", run: bodyKeyOwnError},
	{name: "body keys: several", run: bodyKeysSeveral},
	{name: "body keys with BufferBody", run: bodyKeyBuffered},
	{name: "body keys in nested guards", run: bodyKeyNested},
	{name: "body keys and MaxHold: the handler reads what the guard has read", run: bodyKeyMaxHold},
	{name: "ClientIP behind a proxy", run: clientIPTrusted},
}

// by sets the keys of a guard.
func by(keys ...keyfuncs.Func) func(*guard.Config) {
	return func(cfg *guard.Config) { cfg.Key, cfg.Keys = nil, keys }
}

// answerLock answers with the body, and the name of the lock in a header.
func answerLock(fx *fixture) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		lease, ok := guard.LeaseFrom(r.Context())
		if !ok {
			fx.Error("the handler runs without a lock")
			return
		}
		fx.wantHeld(lease.Name())
		w.Header().Set("X-Lock", lease.Name())
		echo(fx)(w, r)
	}
}

// postAs sends a body with a Content-Type, and with its length or in chunks.
func (s *testServer) postAs(contentType, body string, chunked bool, headers ...string) answer {
	s.fx.Helper()
	var in io.Reader = strings.NewReader(body)
	if chunked {
		in = io.MultiReader(in)
	}
	r := s.newRequest(http.MethodPost, order, in)
	r.Header.Set("Content-Type", contentType)
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	return s.must(s.send(r))
}

func hexSum(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

func bodyKeyIntact(fx *fixture) {
	var multi bytes.Buffer
	form := multipart.NewWriter(&multi)
	_ = form.WriteField("id", "m1")
	file, _ := form.CreateFormFile("upload", "some.bin") // a bytes.Buffer never fails
	_, _ = file.Write([]byte{0, 0xff, '\r', '\n', 0})
	_ = form.Close()
	long := strings.Repeat("blah ", 100_000)
	for _, test := range []struct {
		what              string
		key               keyfuncs.Func
		contentType, body string
		lock              string
	}{
		{"JSON", keyfuncs.JSON("/order/id"), "application/json", "\n{ \"order\" : {\"id\":\"j1\"},\t\"z\":1e2 }\n", "j1"},
		{"a long JSON", keyfuncs.JSON("/id"), "application/json", `{"text":"` + long + `","id":"j2"}`, "j2"},
		{"a form", keyfuncs.FormValue("id"), "application/x-www-form-urlencoded", "a=%20b+c&id=%66%31&a=", "f1"},
		{"a form of parts", keyfuncs.FormValue("id"), form.FormDataContentType(), multi.String(), "m1"},
		{"bytes", keyfuncs.BodyHash(), "application/octet-stream", "\x00\xff\r\n\x1f\x8b", hexSum("\x00\xff\r\n\x1f\x8b")},
		{"no bytes", keyfuncs.BodyHash(), "application/octet-stream", "", hexSum("")},
		{"two of them", keyfuncs.Join(keyfuncs.BodyHash(), keyfuncs.JSON("/id")), "application/json", `{"id":"j3"}`, hexSum(`{"id":"j3"}`) + ":j3"},
	} {
		s := fx.serveOrders(answerLock(fx), by(test.key))
		for _, chunked := range []bool{false, true} {
			a := s.postAs(test.contentType, test.body, chunked)
			if a.status != http.StatusOK || a.body != test.body || a.header.Get("X-Lock") != "reqlock:"+test.lock {
				fx.Errorf("%s, chunked %t: answer %d, %d bytes that are equal: %t, lock %q, want %q",
					test.what, chunked, a.status, len(a.body), a.body == test.body, a.header.Get("X-Lock"), "reqlock:"+test.lock)
			}
			fx.wantFree("reqlock:" + test.lock)
		}
	}
}

func bodyKeyLimit(fx *fixture) {
	const limit = 100
	fill := func(beginning, end string, size int) string {
		return beginning + strings.Repeat("x", size-len(beginning)-len(end)) + end
	}
	for _, test := range []struct {
		key         keyfuncs.Func
		contentType string
		body        func(size int) string
	}{
		{keyfuncs.JSON("/id", keyfuncs.MaxBody(limit)), "application/json", func(n int) string { return fill(`{"id":"1","text":"`, `"}`, n) }},
		{keyfuncs.FormValue("id", keyfuncs.MaxBody(limit)), "application/x-www-form-urlencoded", func(n int) string { return fill("id=1&text=", "", n) }},
		{keyfuncs.BodyHash(keyfuncs.MaxBody(limit)), "text/plain", func(n int) string { return fill("", "", n) }},
	} {
		s := fx.serveOrders(answerLock(fx), by(test.key))
		for _, chunked := range []bool{false, true} {
			for _, size := range []int{limit - 1, limit} {
				body := test.body(size)
				s.postAs(test.contentType, body, chunked).want(fx, http.StatusOK, body)
			}
			for _, size := range []int{limit + 1, 1000 * limit} {
				s.postAs(test.contentType, test.body(size), chunked).wantProblem(fx, http.StatusRequestEntityTooLarge, "body-too-large", "")
			}
		}
	}
}

func bodyKeyWithoutContinue(fx *fixture) {
	s := fx.serveOrders(echo(fx), by(keyfuncs.BodyHash(keyfuncs.MaxBody(100))))
	if first, _, _ := s.expectContinue(101); first != "HTTP/1.1 413 Request Entity Too Large" {
		fx.Errorf("the first line is %q", first)
	}
	first, in, out := s.expectContinue(5)
	if first != "HTTP/1.1 100 Continue" {
		fx.Fatalf("within the limit, the first line is %q", first)
	}
	if _, err := in.ReadString('\n'); err != nil { // the empty line
		fx.Fatal(err)
	}
	_, _ = io.WriteString(out, "hello")
	s.read(in).want(fx, http.StatusOK, "hello")
}

// A compressed body has no key, because its handler may decompress it or not.
func bodyKeyCompressed(fx *fixture) {
	var packed bytes.Buffer
	out := gzip.NewWriter(&packed)
	_, _ = io.WriteString(out, `{"id":"1"}`)
	_ = out.Close()
	s := fx.serve(
		Route{Pattern: orders, Guards: []guard.Config{fx.config(by(keyfuncs.JSON("/id")))}, Handler: func(http.ResponseWriter, *http.Request) {
			fx.Error("the handler ran without the lock")
		}},
		Route{Pattern: "/hash/{id}", Guards: []guard.Config{fx.config(by(keyfuncs.BodyHash()))}, Handler: answerLock(fx)},
	)
	for _, body := range []string{packed.String(), `{"id":"1"}`} {
		s.postAs("application/json", body, false, "Content-Encoding", "gzip").wantProblem(fx, http.StatusBadRequest, "key-invalid", "")
	}
	r := s.newRequest(http.MethodPost, "/hash/1", bytes.NewReader(packed.Bytes()))
	r.Header.Set("Content-Encoding", "gzip")
	a := s.must(s.send(r))
	a.want(fx, http.StatusOK, packed.String())
	if got, want := a.header.Get("X-Lock"), "reqlock:"+hexSum(packed.String()); got != want {
		fx.Errorf("the lock is %q, want %q", got, want)
	}
}

// A client that aborts is no fault of the program, so the guard logs nothing. It still answers.
func bodyKeyBreaksOff(fx *fixture) {
	for what, f := range map[string]keyfuncs.Func{
		"JSON":            keyfuncs.JSON("/id"),
		"FormValue":       keyfuncs.FormValue("id"),
		"BodyHash":        keyfuncs.BodyHash(),
		"with others":     keyfuncs.Join(keyfuncs.PathValue("id"), keyfuncs.BodyHash()),
		"the first of it": keyfuncs.FirstOf(keyfuncs.Header("X-Key"), keyfuncs.BodyHash()),
	} {
		contentType := "application/json"
		if what == "FormValue" {
			contentType = "application/x-www-form-urlencoded"
		}
		s := fx.serveOrders(func(http.ResponseWriter, *http.Request) { fx.Errorf("%s: the handler ran without the lock", what) }, by(f))
		beginning := "POST " + order + " HTTP/1.1\r\nHost: test\r\nContent-Type: " + contentType + "\r\n"
		for _, test := range []struct {
			rest, problem string
			status        int
		}{
			{"Content-Length: 50\r\n\r\n" + `{"id":"1"}`, "client-closed-request", 499},
			{"Transfer-Encoding: chunked\r\n\r\n5\r\nid=1", "client-closed-request", 499},
			{"Transfer-Encoding: chunked\r\n\r\n4\r\nid=1\r\nno number\r\n", "body-unreadable", http.StatusBadRequest},
		} {
			conn := s.dial().(*net.TCPConn)
			if _, err := io.WriteString(conn, beginning+test.rest); err != nil {
				fx.Fatal(err)
			}
			if err := conn.CloseWrite(); err != nil {
				fx.Fatal(err)
			}
			s.read(bufio.NewReader(conn)).wantProblem(fx, test.status, test.problem, "")
			if o := fx.outcome(); o.Status != test.status {
				fx.Errorf("%s: the outcome is %+v", what, o)
			}

			gone := s.dial()
			if _, err := io.WriteString(gone, beginning+test.rest); err != nil {
				fx.Fatal(err)
			}
			_ = gone.Close()
			if o := fx.outcome(); o.Status != http.StatusBadRequest && o.Status != 499 {
				fx.Errorf("%s: the outcome is %+v", what, o)
			}
		}
	}
	if text := fx.log.text(); text != "" {
		fx.Errorf("the guard logged:\n%s", text)
	}
}

func bodyKeyOwnError(fx *fixture) {
	s := fx.serveOrders(echo(fx), func(cfg *guard.Config) {
		cfg.Key = nil
		cfg.Policy = func(r *http.Request, p *guard.Policy) error {
			_, err := io.ReadAll(r.Body)
			return &guard.Error{Status: http.StatusTeapot, Type: "urn:mine", Title: "Mine", Err: err}
		}
	})
	conn := s.dial().(*net.TCPConn)
	_, _ = io.WriteString(conn, "POST "+order+" HTTP/1.1\r\nHost: test\r\nContent-Length: 50\r\n\r\nhello")
	if err := conn.CloseWrite(); err != nil {
		fx.Fatal(err)
	}
	if a := s.read(bufio.NewReader(conn)); a.status != http.StatusTeapot || !strings.Contains(a.body, "urn:mine") {
		fx.Errorf("answer %d %s", a.status, a.body)
	}
}

func bodyKeysSeveral(fx *fixture) {
	g := fx.newBlockingHandler()
	s := fx.serveOrders(g.ServeHTTP, by(keyfuncs.JSON("/from"), keyfuncs.JSON("/to")))
	start := func(body string) *pendingRequest {
		return s.start(s.newRequest(http.MethodPost, order, strings.NewReader(body)))
	}
	first := start(`{"from":"a","to":"b"}`)
	inside := g.nextRun()
	fx.wantHeld("reqlock:a")
	fx.wantHeld("reqlock:b")
	for _, body := range []string{`{"from":"b","to":"a"}`, `{"from":"b","to":"c"}`, `{"to":"a","from":"c"}`} {
		s.post(order, body).wantProblem(fx, http.StatusConflict, "locked", "1")
		fx.wantFree("reqlock:c")
	}
	s.post(order, `{"from":"a"}`).wantProblem(fx, http.StatusBadRequest, "key-missing", "")
	inside.finish()
	first.mustGetAnswer().want(fx, http.StatusOK, "done")
	fx.wantFree("reqlock:a")
	fx.wantFree("reqlock:b")
	same := start(`{"from":"a","to":"a"}`)
	g.nextRun().finish()
	same.mustGetAnswer().want(fx, http.StatusOK, "done")
}

// The smaller of the two limits counts.
func bodyKeyBuffered(fx *fixture) {
	for _, test := range []struct{ buffer, limit int64 }{{100, 50}, {50, 100}} {
		s := fx.serveOrders(answerLock(fx), by(keyfuncs.BodyHash(keyfuncs.MaxBody(test.limit))), func(cfg *guard.Config) { cfg.BufferBody = test.buffer })
		for _, chunked := range []bool{false, true} {
			body := strings.Repeat("x", 50)
			a := s.postAs("text/plain", body, chunked)
			a.want(fx, http.StatusOK, body)
			if got, want := a.header.Get("X-Lock"), "reqlock:"+hexSum(body); got != want {
				fx.Errorf("the lock is %q, want %q", got, want)
			}
			s.postAs("text/plain", body+"x", chunked).wantProblem(fx, http.StatusRequestEntityTooLarge, "body-too-large", "")
		}
	}
}

func bodyKeyNested(fx *fixture) {
	for _, change := range []func(*guard.Config){
		func(*guard.Config) {},
		func(cfg *guard.Config) { cfg.BufferBody = 1000 },
		func(cfg *guard.Config) { cfg.MaxHold = patience },
	} {
		s := fx.serve(Route{Pattern: orders, Guards: []guard.Config{
			fx.config(by(keyfuncs.JSON("/id")), change),
			fx.config(by(keyfuncs.BodyHash()), change),
			// It holds the first of them already.
			fx.config(by(keyfuncs.JSON("/id"), keyfuncs.JSON("/other")), change),
		}, Handler: func(w http.ResponseWriter, r *http.Request) {
			fx.wantHeld("reqlock:0")
			fx.wantHeld("reqlock:1")
			echo(fx)(w, r)
		}})
		body := `{"id":"1", "other":"0"}`
		for _, chunked := range []bool{false, true} {
			s.postAs("application/json", body, chunked).want(fx, http.StatusOK, body)
		}
		release := fx.mustHold("reqlock:" + hexSum(body))
		s.post(order, body).wantProblem(fx, http.StatusConflict, "locked", "1")
		release()
		for _, name := range []string{"0", "1", hexSum(body)} {
			fx.wantFree("reqlock:" + name)
		}
	}
}

func bodyKeyMaxHold(fx *fixture) {
	s := fx.serveOrders(func(w http.ResponseWriter, r *http.Request) {
		<-r.Context().Done()
		echo(fx)(w, r)
	}, by(keyfuncs.BodyHash()), holdsFor)
	for range 2 {
		s.post(order, "hello").want(fx, http.StatusOK, "hello")
	}
}

func clientIPTrusted(fx *fixture) {
	loopback := []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}
	fx.mustHold("reqlock:203.0.113.7")
	s := fx.serve(
		Route{Pattern: orders, Guards: []guard.Config{fx.config(by(keyfuncs.ClientIP(loopback...)))}, Handler: answerLock(fx)},
		Route{Pattern: "/untrusted/{id}", Guards: []guard.Config{fx.config(by(keyfuncs.ClientIP()))}, Handler: answerLock(fx)},
	)
	from := func(path string, forwarded ...string) answer {
		r := s.newRequest(http.MethodGet, path, nil)
		r.Header["X-Forwarded-For"] = forwarded
		return s.must(s.send(r))
	}
	for _, forwarded := range [][]string{
		{"203.0.113.7"}, {"6.6.6.6, 203.0.113.7"}, {"6.6.6.6", "203.0.113.7"}, {"203.0.113.7:1234, 127.0.0.9"}, {"::ffff:203.0.113.7"}, {"unknown, 203.0.113.7"},
	} {
		from(order, forwarded...).wantProblem(fx, http.StatusConflict, "locked", "1")
	}
	for _, forwarded := range []string{"unknown", "203.0.113.7,", "203.0.113.7, garbage"} {
		from(order, forwarded).wantProblem(fx, http.StatusBadRequest, "key-invalid", "")
	}
	peer, _, err := net.SplitHostPort(s.addr())
	if err != nil {
		fx.Fatal(err)
	}
	for _, test := range []struct{ path, forwarded, lock string }{
		{order, "203.0.113.7, 203.0.113.8", "203.0.113.8"},
		{order, "2001:db8:1:2:3::5", "2001:db8:1:2::/64"},
		{order, "2001:db8:1:2::6", "2001:db8:1:2::/64"},
		{"/untrusted/1", "203.0.113.7", peer},
	} {
		a := from(test.path, test.forwarded)
		if got := a.header.Get("X-Lock"); a.status != http.StatusOK || got != "reqlock:"+test.lock {
			fx.Errorf("from %s: answer %d, lock %q, want %q", test.forwarded, a.status, got, "reqlock:"+test.lock)
		}
	}
}
