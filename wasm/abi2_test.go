package wasm

import (
	"bytes"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/reqlock/reqlock/guard"
)

// commanded returns a request with a command for the guest c2.
func commanded(command string) *http.Request {
	r := request("PUT", "/orders/1?x=%20", "the body", "acme")
	r.Header.Set("X-Command", command)
	r.RemoteAddr = "192.0.2.1:1234"
	return r
}

func wantBadGuest(t *testing.T, p *Plugin, r *http.Request, text string) {
	t.Helper()
	if err := p.Policy(r, new(guard.Policy)); !errors.Is(err, ErrBadGuest) || !strings.Contains(err.Error(), text) {
		t.Errorf("%v; want %q", err, text)
	}
}

// The snapshot has every part of the request.
func TestV2_Snapshot(t *testing.T) {
	t.Parallel()
	p := start(t, "c2", Config{})
	want := "PUT|/orders/1?x=%20|192.0.2.1:1234|HTTP/1.1|example.com|the body|"
	if v := ask(t, p.Policy, commanded("a")); !reflect.DeepEqual(v.Policy.Keys, []string{want}) {
		t.Errorf("%q, want %s", v.Policy.Keys, want)
	}
}

// A guest says more about a refusal, within limits.
func TestV2_Refusal(t *testing.T) {
	t.Parallel()
	var seen events
	log := &logged{}
	p := start(t, "c2", Config{Observer: seen.observer(), Logger: slog.New(slog.NewTextHandler(log, nil))})
	g, err := guard.New(nil, guard.Config{Policy: p.Policy, Locker: noLocker(t)})
	if err != nil {
		t.Fatal(err)
	}
	w := httptest.NewRecorder()
	g.Serve(w, commanded("r"), func(http.ResponseWriter, *http.Request) { t.Error("the handler ran") })
	if w.Code != 429 || w.Header().Get("Retry-After") != "7" || w.Header().Get("Reqlock-Reason") != "budget spent" ||
		w.Body.String() != `{"type":"urn:reqlock:problem:plugin-denied:rate-limited","title":"Too fast","status":429,"detail":"slow down"}` {
		t.Errorf("%d %v %s", w.Code, w.Header(), w.Body)
	}
	fields := []slog.Attr{slog.String("tenant", "acme"), slog.String("rule", "a=b")}
	if e := seen.calls[0]; e.Outcome != OutcomeDenied || !reflect.DeepEqual(e.Fields, fields) {
		t.Errorf("%+v", e)
	}
	if line := `msg="reqlock: wasm: the plugin refused a request" plugin=` + p.journal.plugin + ` text="slow down" status=429 reason="budget spent" tenant=acme rule="a=b"`; !strings.Contains(log.String(), line) {
		t.Errorf("log:\n%s\nwant %s", log, line)
	}

	if v := ask(t, p.Policy, commanded("f")); !reflect.DeepEqual(v.Policy.Keys, []string{"k"}) {
		t.Errorf("%+v", v)
	}
	if e := seen.calls[1]; e.Outcome != OutcomeLocked || !reflect.DeepEqual(e.Fields, []slog.Attr{slog.String("rule", "7")}) {
		t.Errorf("%+v", e)
	}
	if v := ask(t, p.Policy, commanded("0")); v.Denial.Status != http.StatusForbidden || v.Denial.Type != guard.ProblemPluginDenied {
		t.Errorf("handle_request returned 0: %+v", v)
	}
}

// A body that cannot be given costs no instance: the guest asks for the answer.
func TestV2_MissingBody(t *testing.T) {
	t.Parallel()
	p := start(t, "c2", Config{MaxBody: 10})
	first := p.current.idle[0]
	err := p.Policy(request("PUT", "/", strings.Repeat("x", 11), "acme"), new(guard.Policy))
	if !errors.Is(err, ErrBodyTooLarge) || p.current.idle[0] != first {
		t.Errorf("%v, or another instance", err)
	}
}

// Memory persists between calls of an instance, unless Isolate is set.
func TestIsolate(t *testing.T) {
	t.Parallel()
	for isolate, want := range map[bool]string{false: "123", true: "111"} {
		p := start(t, "c2", Config{MaxInstances: 1, Isolate: isolate})
		got := ""
		for range 3 {
			got += ask(t, p.Policy, commanded("n")).Policy.Keys[0]
		}
		if got != want {
			t.Errorf("Isolate %v: the instance counts %s, want %s", isolate, got, want)
		}
		if shared := ask(t, p.Policy, commanded("i")).Policy.Keys[0] + ask(t, p.Policy, commanded("i")).Policy.Keys[0]; shared != "12" {
			t.Errorf("Isolate %v: all instances count %s", isolate, shared)
		}
		if s := p.Stats(); isolate && s.Instances != 0 || !isolate && s.Instances != 1 {
			t.Errorf("Isolate %v: %+v", isolate, s)
		}
	}
}

// A testMemory is the memory of a guest that does not run.
type testMemory []byte

func (m testMemory) Read(offset, length uint32) ([]byte, bool) {
	if uint64(offset)+uint64(length) > uint64(len(m)) {
		return nil, false
	}
	return m[offset : offset+length : offset+length], true
}

// declare writes a declaration at 0, and its names behind it.
func (m testMemory) declare(wants uint32, names string, buffer, size uint32) {
	for i, word := range []uint32{wants, declarationLen, uint32(len(names)), buffer, size} {
		store32(m, 4*i, word)
	}
	copy(m[declarationLen:], names)
}

func TestDeclaration(t *testing.T) {
	t.Parallel()
	tables := uint32(fields * fieldLen)
	for name, c := range map[string]struct {
		at, wants    uint32
		names        string
		buffer, size uint32
		// want is part of the error. It is empty if there is none.
		want string
	}{
		"nothing":           {0, 0, "", 100, tables, ""},
		"all":               {0, 1<<fields - 1, "host\x00x-tenant\x00", 100, tables + 2*headerLen, ""},
		"address":           {1000, 0, "", 100, tables, "reqlock_v2 returned 1000, and the 20 bytes there are not in its memory"},
		"unknown part":      {0, 1 << fields, "", 100, tables, "it wants 0x40, which this host does not know"},
		"names without NUL": {0, 0, "host", 100, tables, "its header names do not end with NUL"},
		"too many names":    {0, 0, strings.Repeat("a\x00", maxHeaders+1), 200, 800, "it wants 65 headers; the limit is 64"},
		"short buffer":      {0, 0, "host\x00", 100, tables + headerLen - 1, "shorter than the 60 bytes"},
		"buffer outside":    {0, 0, "", 1000, tables, "not in its memory"},
	} {
		mem := make(testMemory, 1000)
		mem.declare(c.wants, c.names, c.buffer, c.size)
		d, err := readDeclaration(mem, c.at)
		switch {
		case c.want != "" && (!errors.Is(err, ErrBadGuest) || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s: %v, want %q", name, err, c.want)
		case c.want == "" && (err != nil || d.tables() != int(c.size)):
			t.Errorf("%s: %+v, %v", name, d, err)
		}
	}
}

// The URI of the snapshot is that of net/url, for every form of a URL.
func TestSnapshot_URI(t *testing.T) {
	t.Parallel()
	for _, u := range []*url.URL{
		{}, {Path: "/a"}, {Path: "/a b", RawQuery: "x=1"}, {Path: "/a", ForceQuery: true}, {Opaque: "//host/p", Scheme: "http"},
		{Path: "/a/b", RawPath: "/a%2Fb"}, {RawQuery: "q"}, {Path: "*"},
	} {
		mem := make(testMemory, 1000)
		mem.declare(1<<fieldURI, "", 100, 900)
		d, err := readDeclaration(mem, 0)
		if err != nil {
			t.Fatal(err)
		}
		d.write(mem, &call{request: &http.Request{URL: u}})
		if got := mem.text(100 + fieldURI*fieldLen); got != u.RequestURI() {
			t.Errorf("%q, want %q", got, u.RequestURI())
		}
	}
}

// text returns the text of a field or header in a snapshot.
func (m testMemory) text(at int) string {
	ptr, length := load32(m, at), load32(m, at+4)
	if ptr == 0 {
		return "\x00missing"
	}
	return string(m[ptr : ptr+length])
}

// Whatever a request has, the snapshot stays in the guest's buffer. A text is there as it was, or
// has only its length.
func FuzzSnapshot(f *testing.F) {
	f.Add("GET", "/orders/42", "x=1", "value", "", uint16(200), "body")
	f.Add("", "", "", "", "two", uint16(0), "")
	f.Add(strings.Repeat("M", 100), "/"+strings.Repeat("p", 100), "", strings.Repeat("v", 50), "\x00", uint16(150), strings.Repeat("b", 100))
	f.Fuzz(func(t *testing.T, method, path, query, one, two string, room uint16, text string) {
		const at = 200
		mem := make(testMemory, 70_000)
		size := uint32(fields*fieldLen+2*headerLen) + uint32(room)
		mem.declare(1<<fields-1, "x-one\x00x-two\x00", at, size)
		d, err := readDeclaration(mem, 0)
		if err != nil {
			t.Fatal(err)
		}
		for i := range mem[at+size:] {
			mem[int(at+size)+i] = 0xee
		}
		r := &http.Request{Method: method, URL: &url.URL{Path: path, RawQuery: query}, Header: http.Header{"X-One": {one}, "X-Two": {one, two}}}
		c := &call{request: r}
		c.scratch.bodies[kindRequest] = &body{unread: []byte(text)}
		d.write(mem, c)
		if rest := mem[at+size:]; bytes.Count(rest, []byte{0xee}) != len(rest) {
			t.Error("it wrote behind the buffer")
		}
		for i, want := range []string{method, r.URL.RequestURI(), "", "", "", text} {
			wantText(t, mem, at+i*fieldLen, want)
		}
		for i, want := range []string{one, one + "\x00" + two} {
			header := at + fields*fieldLen + i*headerLen
			wantText(t, mem, header, want)
			if n := load32(mem, header+8); n != uint32(i+1) {
				t.Errorf("header %d has %d values", i, n)
			}
		}
	})
}

func wantText(t *testing.T, mem testMemory, at int, want string) {
	t.Helper()
	if n := load32(mem, at+4); n != uint32(len(want)) {
		t.Errorf("the length is %d, want %d", n, len(want))
	}
	if got := mem.text(at); got != want && got != "\x00missing" {
		t.Errorf("%q, want %q", got, want)
	}
}

// put writes a record with its entries at an address, and the entries' texts behind it.
func (m testMemory) put(at int, action uint32, mode int32, wait, lease int64, status, retry uint32, entries ...string) {
	store32(m, at, action)
	store32(m, at+4, uint32(mode))
	store64(m, at+8, uint64(wait))
	store64(m, at+16, uint64(lease))
	store32(m, at+24, status)
	store32(m, at+28, retry)
	store32(m, at+32, uint32(len(entries)))
	texts := at + recordLen + len(entries)*entryLen
	for i, e := range entries {
		entry := at + recordLen + i*entryLen
		store32(m, entry, uint32(e[0]-'0'))
		store32(m, entry+4, uint32(texts))
		store32(m, entry+8, uint32(len(e)-1))
		texts += copy(m[texts:], e[1:])
	}
}

func TestRecord(t *testing.T) {
	t.Parallel()
	cfg := Config{}.withDefaults()
	many := make([]string, maxEntries+1)
	for i := range many {
		many[i] = "6a=b"
	}
	for name, c := range map[string]struct {
		action  uint32
		mode    int32
		wait    int64
		status  uint32
		retry   uint32
		entries []string
		want    error
		text    string
	}{
		"lock":            {0, 3, 0, 0, 0, []string{"1key", "1ключ", "6a=b"}, nil, ""},
		"no key":          {0, -1, -1, 0, 0, []string{"6a=b"}, ErrNoKey, ""},
		"detail of lock":  {0, -1, -1, 0, 0, []string{"1k", "2detail"}, ErrBadGuest, "it locks, and has an entry of kind 2"},
		"empty key":       {0, -1, -1, 0, 0, []string{"1"}, ErrBadGuest, "a key is empty"},
		"two for Fenced":  {0, 2, -1, 0, 0, []string{"1a", "1b"}, ErrBadGuest, "ModeFenced allows one"},
		"fenced":          {0, 1, 0, 0, 0, []string{"7", "1key"}, nil, ""},
		"two, with token": {0, 5, -1, 0, 0, []string{"1a", "1b", "7"}, ErrBadGuest, "it set 2 keys; ModeFenced allows one, and so does Fenced"},
		"token with text": {0, 5, -1, 0, 0, []string{"1a", "7yes"}, ErrBadGuest, "the entry of kind 7 in its record has a text"},
		"token of a skip": {1, -1, -1, 0, 0, []string{"7"}, ErrBadGuest, "it skips the lock, and has an entry of kind 7"},
		"limit":           {0, 0, 0, 0, 0, []string{"8\x05\x01\x00\x00", "1key", "1two"}, nil, ""},
		"limit below 0":   {0, 0, 0, 0, 0, []string{"1key", "8\xff\xff\xff\xff"}, nil, ""},
		"limit in text":   {0, 0, 0, 0, 0, []string{"1key", "85"}, ErrBadGuest, "the entry of kind 8 in its record has 1 bytes; want an i32"},
		"limit of a skip": {1, -1, -1, 0, 0, []string{"8\x05\x00\x00\x00"}, ErrBadGuest, "it skips the lock, and has an entry of kind 8"},
		"kind":            {0, -1, -1, 0, 0, []string{"1a", "9"}, ErrBadGuest, "it locks, and has an entry of kind 9"},
		"mode":            {0, 6, -1, 0, 0, []string{"1a"}, ErrBadGuest, "mode of its record is 6"},
		"wait":            {0, 0, 30_001, 0, 0, []string{"1a"}, ErrBadGuest, "wait_ms of its record is 30001"},
		"skip":            {1, 9, -9, 0, 0, []string{"6a=b"}, nil, ""},
		"skip with a key": {1, -1, -1, 0, 0, []string{"1k"}, ErrBadGuest, "it skips the lock, and has an entry of kind 1"},
		"deny":            {2, 0, 0, 400, 0, nil, errDenied, ""},
		"deny with a key": {2, 0, 0, 400, 0, []string{"1k"}, ErrBadGuest, "it refuses, and has an entry of kind 1"},
		"status":          {2, 0, 0, 600, 0, nil, ErrBadGuest, "status of its record is 600"},
		"retry":           {2, 0, 0, 429, 86_401, nil, ErrBadGuest, "retry_after of its record is 86401"},
		"problem":         {2, 0, 0, 400, 0, []string{"4Bad:problem"}, ErrBadGuest, "the problem of its record"},
		"reason":          {2, 0, 0, 400, 0, []string{"5a\r\nSet-Cookie: b"}, ErrBadGuest, "the reason of its record"},
		"empty reason":    {2, 0, 0, 400, 0, []string{"5"}, ErrBadGuest, "the reason of its record"},
		"field":           {1, 0, 0, 0, 0, []string{"6nothing"}, ErrBadGuest, "not name=value"},
		"fields":          {1, 0, 0, 0, 0, many[:maxFields+1], ErrBadGuest, "more than 16"},
		"entries":         {1, 0, 0, 0, 0, many, ErrBadGuest, "65 entries; the limit is 64"},
		"body":            {3, 0, 0, 0, 0, nil, ErrBadGuest, "needs the body"},
		"action":          {4, 0, 0, 0, 0, nil, ErrBadGuest, "action of its record is 4"},
	} {
		mem := make(testMemory, 4096)
		mem.put(8, c.action, c.mode, c.wait, -1, c.status, c.retry, c.entries...)
		call := newCall(&cfg, new(http.Request), initial)
		err := call.readRecord(mem, 8)
		if !errors.Is(err, c.want) || err != nil && !strings.Contains(err.Error(), c.text) {
			t.Errorf("%s: %v, want %v %q", name, err, c.want, c.text)
		}
		clear(mem) // The next call of the guest may do that.
		want, known := map[string]guard.Policy{
			"lock":   {Keys: []string{"key", "ключ"}, Mode: guard.ModeRead, LeaseTime: initial.LeaseTime},
			"fenced": {Keys: []string{"key"}, Mode: guard.ModeFair, Fenced: true, LeaseTime: initial.LeaseTime},
			"limit":  {Keys: []string{"key", "two"}, Limit: 261, LeaseTime: initial.LeaseTime},

			"limit below 0": {Keys: []string{"key"}, Limit: -1, LeaseTime: initial.LeaseTime},
		}[name]
		if known && !reflect.DeepEqual(call.policy, want) {
			t.Errorf("%s: %+v, want %+v", name, call.policy, want)
		}
	}
}

// Whatever is in the guest's memory, a record is a policy within the operator's limits, an answer
// that can be sent, or an error that blames the guest.
func FuzzRecord(f *testing.F) {
	seed := func(at uint16, write func(m testMemory)) {
		m := make(testMemory, 300)
		write(m)
		f.Add([]byte(m), uint32(at))
	}
	seed(0, func(m testMemory) { m.put(0, 0, 3, 100, 1000, 0, 0, "1key", "6a=b") })
	seed(0, func(m testMemory) { m.put(0, 0, 1, 100, 1000, 0, 0, "1key", "1other", "7") })
	seed(0, func(m testMemory) { m.put(0, 0, 0, 100, 1000, 0, 0, "1key", "8\x05\x00\x00\x00") })
	seed(8, func(m testMemory) {
		m.put(8, 2, -1, -1, -1, 429, 7, "2detail", "3title", "4problem", "5reason", "6a=b")
	})
	seed(4, func(m testMemory) { m.put(4, 1, -1, -1, -1, 0, 0, "6a=\x00") })
	seed(290, func(testMemory) {})
	f.Fuzz(func(t *testing.T, data []byte, at uint32) {
		cfg := &Config{MaxWait: time.Second, MaxLease: 2 * time.Second}
		c := newCall(cfg, new(http.Request), guard.Policy{})
		err := c.readRecord(testMemory(data), at)
		keys := strings.Join(c.policy.Keys, "\x00")
		clear(data) // The next call of the guest may do that.
		var answer *guard.Error
		switch {
		case errors.As(err, &answer):
			wantAnswer(t, answer)
		case err != nil:
			if !errors.Is(err, ErrBadGuest) && !errors.Is(err, ErrNoKey) && !errors.Is(err, ErrTrap) {
				t.Errorf("error %v", err)
			}
		default:
			wantPolicy(t, cfg, c.policy)
			if strings.Join(c.policy.Keys, "\x00") != keys {
				t.Error("the keys are in the guest's memory")
			}
		}
		for _, field := range c.fields {
			if text := field.Key + field.Value.String(); len(text) > maxField || !utf8.ValidString(text) || strings.ContainsFunc(text, unicode.IsControl) {
				t.Errorf("field %v", field)
			}
		}
	})
}

func wantAnswer(t *testing.T, e *guard.Error) {
	t.Helper()
	if e.Status < 400 || e.Status > 599 || len(e.Detail) > maxDetail || len(e.Title) > maxTitle || len(e.Reason) > maxReason ||
		e.RetryAfter > 24*time.Hour || !strings.HasPrefix(e.Type, guard.ProblemPluginDenied) {
		t.Errorf("the answer is %+v", e)
	}
	text := e.Title + e.Detail + e.Type + e.Reason
	if !utf8.ValidString(text) || strings.ContainsFunc(text, unicode.IsControl) {
		t.Errorf("the answer is %+v", e)
	}
}
