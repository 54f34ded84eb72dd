package ginlock

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/gin-gonic/gin"
	"github.com/reqlock/reqlock/guard"
	"github.com/reqlock/reqlock/idempotency"
	"github.com/reqlock/reqlock/internal/lab/locktest"
)

var once = idempotency.Config{Scope: idempotency.ScopeGlobal}

// TestIdempotent_Replays has each of the ways in which Gin answers.
func TestIdempotent_Replays(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	file := filepath.Join(t.TempDir(), "file.txt")
	if err := os.WriteFile(file, []byte("a file"), 0o600); err != nil {
		t.Fatal(err)
	}
	var runs atomic.Int64
	chain := s.engine.Group("/", Idempotent(locktest.NewLocks(t), once), func(*gin.Context) { runs.Add(1) })
	for name, test := range map[string]struct {
		status int
		body   string
		handle gin.HandlerFunc
	}{
		"nothing":       {200, "", func(*gin.Context) {}},
		"status":        {204, "", func(c *gin.Context) { c.Status(http.StatusNoContent) }},
		"status-create": {201, "", func(c *gin.Context) { c.Status(http.StatusCreated) }},
		"json":          {201, `{"id":1}`, func(c *gin.Context) { c.JSON(http.StatusCreated, gin.H{"id": 1}) }},
		"string":        {200, "text 1", func(c *gin.Context) { c.String(200, "text %d", 1) }},
		"write-string":  {200, "one two", func(c *gin.Context) { _, _ = c.Writer.WriteString("one "); _, _ = c.Writer.Write([]byte("two")) }},
		"redirect":      {303, "", func(c *gin.Context) { c.Redirect(http.StatusSeeOther, "/done") }},
		"abort":         {403, "", func(c *gin.Context) { c.AbortWithStatus(http.StatusForbidden) }},
		"abort-json":    {422, `{"error":"no"}`, func(c *gin.Context) { c.AbortWithStatusJSON(422, gin.H{"error": "no"}) }},
		"abort-late":    {400, "", func(c *gin.Context) { _ = c.AbortWithError(400, errors.New("bad")) }},
		"file":          {200, "a file", func(c *gin.Context) { c.File(file) }},
		"headers": {200, "done", func(c *gin.Context) {
			c.Header("X-Mine", "1")
			c.Writer.Header().Add("X-Mine", "2")
			c.Status(http.StatusTeapot)
			c.String(200, "done")
			c.Header("X-Late", "1")
		}},
		"early-hints": {200, "done", func(c *gin.Context) {
			c.Writer.WriteHeader(http.StatusEarlyHints)
			c.Writer.WriteHeaderNow()
			c.String(200, "done")
		}},
		"seen": {200, "200 -1 false, 201 4 true", func(c *gin.Context) {
			before := fmt.Sprint(c.Writer.Status(), c.Writer.Size(), c.Writer.Written())
			w := c.Writer.(*writer)
			w.WriteHeader(201)
			defer func(size int) { w.size = size }(w.size)
			w.size = 4
			after := fmt.Sprint(c.Writer.Status(), c.Writer.Size(), c.Writer.Written())
			w.size, w.status = -1, 200
			c.String(200, "%s, %s", before, after)
		}},
	} {
		chain.POST("/"+name, test.handle)
		s.WantTwice(s.Repeated("/"+name, &runs), test.status, test.body, true)
	}
}

// Outer middleware sees the answer in Gin's own writer, which is restored.
func TestIdempotent_RestoresWriter(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	var seen []string
	s.engine.Use(func(c *gin.Context) {
		own := c.Writer
		defer func() {
			if c.Writer != own {
				t.Errorf("the writer is not restored, it is a %T", c.Writer)
			}
			seen = append(seen, fmt.Sprint(c.Writer.Status(), c.Writer.Size(), c.Writer.Written()))
		}()
		c.Next()
	}, gin.CustomRecoveryWithWriter(io.Discard, func(c *gin.Context, _ any) { c.AbortWithStatus(http.StatusInternalServerError) }))
	s.engine.POST("/:do", Idempotent(locktest.NewLocks(t), once), func(c *gin.Context) {
		switch c.Param("do") {
		case "status":
			c.Status(http.StatusAccepted)
		case "panic":
			c.Status(http.StatusCreated)
			panic("before the answer")
		case "half":
			c.String(http.StatusCreated, "half")
			panic("after half of the answer")
		default:
			c.String(http.StatusCreated, "done")
		}
	})
	for _, test := range []struct {
		path, body string
		status     int
		seen       string
	}{
		{"/body", "done", 201, "201 4 true"},
		{"/body", "done", 201, "201 4 true"},
		{"/status", "", 202, "202 0 true"},
		{"/status", "", 202, "202 0 true"},
		{"/panic", "", 500, "500 0 true"},
		{"/panic", "", 500, "500 0 true"},
		{"/half", "half", 201, "201 4 true"},
	} {
		seen = nil
		if a := s.PostWithKey(test.path, "k"+test.path[1:]); a.Status != test.status || a.Body != test.body {
			t.Errorf("%s: answer %d %q, want %d %q", test.path, a.Status, a.Body, test.status, test.body)
		}
		if len(seen) != 1 || seen[0] != test.seen {
			t.Errorf("%s: outer middleware sees %q, want %q", test.path, seen, test.seen)
		}
	}
}

// Gin's handlers leave errors to middleware, which answers after they return.
func TestIdempotent_ErrorsForMiddleware(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	answers := func(c *gin.Context) {
		c.Next()
		if len(c.Errors) > 0 && !c.Writer.Written() {
			c.JSON(max(c.Writer.Status(), 400), gin.H{"error": c.Errors.Last().Error()})
		}
	}
	fails := func(c *gin.Context) { _ = c.Error(errors.New("no")) }
	var runs atomic.Int64
	outcomes := make(chan guard.Outcome, 10)
	cfg := once
	cfg.Observe = func(_ *http.Request, o guard.Outcome) { outcomes <- o }
	idempotent := Idempotent(locktest.NewLocks(t), cfg)
	counts := func(*gin.Context) { runs.Add(1) }
	for name, test := range map[string]struct {
		status int
		body   string
		runs   int64 // of two requests
		known  int   // the status of the first outcome
		chain  []gin.HandlerFunc
	}{
		"outside":        {400, `{"error":"no"}`, 2, 0, []gin.HandlerFunc{answers, idempotent, counts, fails}},
		"with a status":  {422, `{"error":"no"}`, 2, 0, []gin.HandlerFunc{answers, idempotent, counts, func(c *gin.Context) { c.Status(422) }, fails}},
		"inside":         {400, `{"error":"no"}`, 1, 400, []gin.HandlerFunc{idempotent, counts, answers, fails}},
		"no middleware":  {200, "", 2, 0, []gin.HandlerFunc{idempotent, counts, fails}},
		"answered":       {200, "done", 1, 200, []gin.HandlerFunc{answers, idempotent, counts, fails, func(c *gin.Context) { c.String(200, "done") }}},
		"before the run": {204, "", 1, 204, []gin.HandlerFunc{answers, fails, idempotent, counts, func(c *gin.Context) { c.Status(204) }}},
	} {
		path := "/" + strings.ReplaceAll(name, " ", "-")
		s.engine.POST(path, test.chain...)
		runs.Store(0)
		for range 2 {
			if a := s.PostWithKey(path, path[1:]); a.Status != test.status || a.Body != test.body {
				t.Errorf("%s: answer %d %q, want %d %q", name, a.Status, a.Body, test.status, test.body)
			}
		}
		if runs.Load() != test.runs {
			t.Errorf("%s: the handler ran %d times, want %d", name, runs.Load(), test.runs)
		}
		if o := <-outcomes; !o.Ran || o.Status != test.known {
			t.Errorf("%s: the outcome is %+v, want status %d", name, o, test.known)
		}
		<-outcomes
	}
}

func TestIdempotent_Stream(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	var runs atomic.Int64
	cfg := once
	done := make(chan struct{}, 10)
	cfg.Observe = func(*http.Request, guard.Outcome) { done <- struct{}{} }
	s.engine.POST("/stream", Idempotent(locktest.NewLocks(t), cfg), func(c *gin.Context) {
		n := runs.Add(0)
		c.Stream(func(io.Writer) bool {
			n++
			c.SSEvent("n", n)
			return n < 3
		})
		runs.Add(1)
	})
	if a := s.PostWithKey("/stream", "k"); a.Status != 200 || strings.Count(a.Body, "event:n") != 3 {
		t.Errorf("answer %v, want three events", a)
	}
	<-done
	if a := s.PostWithKey("/stream", "k"); a.Status != 409 || !strings.Contains(a.Body, "not-replayable") || runs.Load() != 1 {
		t.Errorf("the repeat gets %v after %d runs, want 409 not-replayable after one", a, runs.Load())
	}
}

func TestIdempotent_HijackAfterBody(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	s.engine.POST("/", Idempotent(locktest.NewLocks(t), once), func(c *gin.Context) {
		c.String(200, "body")
		if _, _, err := c.Writer.Hijack(); !errors.Is(err, errAlreadyWritten) {
			t.Errorf("Hijack: %v", err)
		}
		if c.Writer.Pusher() != nil {
			t.Error("Pusher returns one on HTTP/1")
		}
	})
	if a := s.PostWithKey("/", "k"); a.Status != 200 || a.Body != "body" {
		t.Errorf("answer %v, want 200 body", a)
	}
	if a := s.PostWithKey("/", "k"); a.Header.Get("Idempotent-Replayed") != "true" {
		t.Errorf("the repeat gets %v, want a replay", a)
	}
}

// A handler may pass *gin.Context as its context.
func TestIdempotent_GinContext(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	s.engine.POST("/:id", Idempotent(locktest.NewLocks(t), once), func(c *gin.Context) {
		key, _ := idempotency.KeyFrom(c)
		if idempotency.DownstreamKey(c, "a") != idempotency.DownstreamKey(c.Request.Context(), "a") {
			t.Error("DownstreamKey depends on which of the two contexts it gets")
		}
		idempotency.NoStore(c)
		c.String(200, key)
	})
	for range 2 {
		if a := s.PostWithKey("/1", `"k"`); a.Body != "k" || a.Replayed() {
			t.Errorf("answer %v, want the key from a run", a)
		}
	}
}

// HandleContext sends its answer past the middleware of the first route.
func TestIdempotent_HandleContext(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	var runs atomic.Int64
	s.engine.Use(Idempotent(locktest.NewLocks(t), once))
	s.engine.POST("/old/:status", func(c *gin.Context) {
		c.Request.URL.Path = "/new/" + c.Param("status")
		s.engine.HandleContext(c)
	})
	s.engine.POST("/new/:status", func(c *gin.Context) {
		status, _ := strconv.Atoi(c.Param("status"))
		c.String(status, "new %d", runs.Add(1))
	})
	for _, test := range []struct {
		path   string
		status int
		body   string
	}{
		{"/old/200", 200, "new 1"}, {"/old/200", 409, "not-replayable"}, {"/new/200", 200, "new 1"},
		{"/old/500", 500, "new 2"}, {"/old/500", 500, "new 3"},
	} {
		if a := s.PostWithKey(test.path, "k"+test.path[5:]); a.Status != test.status || !strings.Contains(a.Body, test.body) {
			t.Errorf("%s: answer %v, want %d %q", test.path, a, test.status, test.body)
		}
	}
}

// What a handler holds back before HandleContext is lost, and each route says so once.
func TestIdempotent_WritesBeforeHandleContext(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		before func(*gin.Context)
		body   string
		lost   bool
	}{
		"nothing":   {func(c *gin.Context) { c.Header("X-Before", "1") }, "bc", false},
		"a body":    {func(c *gin.Context) { _, _ = c.Writer.WriteString("a") }, "bc", true},
		"a header":  {func(c *gin.Context) { c.Writer.WriteHeaderNow() }, "bc", true},
		"a status":  {func(c *gin.Context) { c.Status(http.StatusCreated) }, "bc", true},
		"a stream":  {func(c *gin.Context) { _, _ = c.Writer.WriteString("a"); c.Writer.Flush() }, "abc", false},
		"too much":  {func(c *gin.Context) { _, _ = c.Writer.WriteString("aaaaa") }, "aaaaabc", false},
		"and panic": {func(c *gin.Context) { _, _ = c.Writer.WriteString("a"); c.Set("panic", true) }, "b", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var log bytes.Buffer
			cfg := once
			cfg.MaxResponseBody, cfg.Logger = 4, slog.New(slog.NewTextHandler(&log, nil))
			engine, locks := gin.New(), locktest.NewLocks(t)
			engine.Use(gin.CustomRecoveryWithWriter(io.Discard, func(*gin.Context, any) {}))
			once := Idempotent(locks, cfg)
			for _, route := range []string{"/one/:id", "/two/:id"} {
				engine.POST(route, once, func(c *gin.Context) {
					test.before(c)
					panics := c.GetBool("panic") // HandleContext forgets it
					c.Request.URL.Path = "/inner"
					engine.HandleContext(c)
					if panics {
						panic("after HandleContext")
					}
					_, _ = c.Writer.WriteString("c")
				})
			}
			engine.POST("/inner", func(c *gin.Context) { _, _ = c.Writer.WriteString("b") })
			for i, path := range []string{"/one/1", "/one/2", "/two/1"} {
				r := httptest.NewRequest(http.MethodPost, path, nil)
				r.Header.Set("Idempotency-Key", strconv.Itoa(i))
				w := httptest.NewRecorder()
				if engine.ServeHTTP(w, r); w.Body.String() != test.body {
					t.Errorf("%s: answer %q, want %q", path, w.Body, test.body)
				}
			}
			const line = "write nothing and set no status before Engine.HandleContext"
			want := map[bool]int{true: 1}[test.lost]
			for _, pattern := range []string{"pattern=/one/:id", "pattern=/two/:id"} {
				if n := strings.Count(log.String(), pattern); n != want {
					t.Errorf("%d lines of %s, want %d", n, pattern, want)
				}
			}
			if n := strings.Count(log.String(), line); n != 2*want || strings.Count(log.String(), "level=WARN") != 2*want {
				t.Errorf("%d lines, want %d: %s", n, 2*want, log.String())
			}
		})
	}
}

func TestIdempotent_Unmatched(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	s.engine.Use(Idempotent(locktest.NewLocks(t), once))
	s.engine.POST("/here", func(c *gin.Context) { c.String(200, "here") })
	s.Want(http.MethodPost, "/there", 404, "404")
	s.Want(http.MethodPost, "/here", 400, "key-missing")
}

// A sink keeps what Gin's writer can do.
func TestSink(t *testing.T) {
	t.Parallel()
	recorder := httptest.NewRecorder()
	c, _ := gin.CreateTestContext(recorder)
	s := sink{c.Writer}
	s.WriteHeader(http.StatusNoContent)
	if recorder.Code != http.StatusNoContent || !c.Writer.Written() || c.Writer.Status() != http.StatusNoContent {
		t.Errorf("sent %d, Gin knows %d", recorder.Code, c.Writer.Status())
	}
	if err := http.NewResponseController(s).Flush(); err != nil || !recorder.Flushed {
		t.Errorf("Flush: %v", err)
	}
}
