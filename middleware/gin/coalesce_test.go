package ginlock

import (
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/gin-gonic/gin"
	"github.com/reqlock/reqlock/coalesce"
	"github.com/reqlock/reqlock/internal/lab/locktest"
)

// TestCoalesce_Shares has each of the ways in which Gin answers. The second request comes while the
// answer to the first is kept.
func TestCoalesce_Shares(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	var runs atomic.Int64
	s.engine.Use(func(c *gin.Context) {
		if c.Next(); len(c.Errors) > 0 && !c.Writer.Written() {
			c.String(http.StatusBadGateway, "from outside")
		}
	})
	chain := s.engine.Group("/", Coalesce(locktest.NewLocks(t), coalesce.Config{}), func(*gin.Context) { runs.Add(1) })
	for name, test := range map[string]struct {
		status int
		body   string
		handle gin.HandlerFunc
		alone  bool
	}{
		"nothing":      {200, "", func(*gin.Context) {}, false},
		"status":       {204, "", func(c *gin.Context) { c.Status(http.StatusNoContent) }, false},
		"json":         {201, `{"id":1}`, func(c *gin.Context) { c.JSON(http.StatusCreated, gin.H{"id": 1}) }, false},
		"write-string": {200, "one two", func(c *gin.Context) { _, _ = c.Writer.WriteString("one "); _, _ = c.Writer.Write([]byte("two")) }, false},
		"redirect":     {303, "<a href=\"/done\">See Other</a>.\n\n", func(c *gin.Context) { c.Redirect(http.StatusSeeOther, "/done") }, false},
		"abort-json":   {422, `{"error":"no"}`, func(c *gin.Context) { c.AbortWithStatusJSON(422, gin.H{"error": "no"}) }, false},
		"early-hints": {200, "done", func(c *gin.Context) {
			c.Writer.WriteHeader(http.StatusEarlyHints)
			c.Writer.WriteHeaderNow()
			c.String(200, "done")
		}, false},
		"an-error":  {502, "from outside", func(c *gin.Context) { _ = c.Error(errors.New("broken")) }, true},
		"abort-err": {400, "", func(c *gin.Context) { _ = c.AbortWithError(400, errors.New("bad")) }, false},
		"flushed":   {200, "ab", func(c *gin.Context) { c.String(200, "a"); c.Writer.Flush(); c.String(200, "b") }, true},
		"cookie":    {200, "", func(c *gin.Context) { c.SetCookie("user", "1", 0, "/", "", false, true) }, true},
		"handle-context": {200, "inner", func(c *gin.Context) {
			c.Request.URL.Path = "/inner"
			s.engine.HandleContext(c)
		}, true},
	} {
		chain.GET("/"+name, test.handle)
		if name == "handle-context" {
			s.engine.GET("/inner", func(c *gin.Context) { c.String(200, "inner") })
		}
		s.WantTwice(s.Shared("/"+name, &runs), test.status, test.body, !test.alone)
	}
}

// Requests that wait get the answer of the run, and the handler's chain does not go on for them.
func TestCoalesce_Waits(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	locks := locktest.NewLocks(t)
	running, end := make(chan struct{}), make(chan struct{})
	var after atomic.Int64
	s.engine.GET("/report", Coalesce(locks, coalesce.Config{}), func(c *gin.Context) {
		close(running)
		<-end
		c.String(200, "sold: 7")
	}, func(*gin.Context) { after.Add(1) })
	answers := make(chan locktest.Answer, 3)
	get := func() { answers <- s.Do(s.NewRequest(http.MethodGet, "/report", "")) }
	go get()
	<-running
	go get()
	go get()
	close(end)
	shared := 0
	for range 3 {
		a := <-answers
		if a.Status != 200 || a.Body != "sold: 7" {
			t.Errorf("answer %v", a)
		}
		shared += strings.Count(a.Header.Get("Reqlock-Shared"), "1")
	}
	if shared != 2 || after.Load() != 1 {
		t.Errorf("%d shared answers and %d runs, want 2 and 1", shared, after.Load())
	}
}

func TestCoalesce_Refuses(t *testing.T) {
	t.Parallel()
	locks := locktest.NewLocks(t)
	locktest.WantPanic(t, "Keep is -1ns", func() { Coalesce(locks, coalesce.Config{Keep: -1}) })
}
