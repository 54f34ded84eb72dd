package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/redis/go-redis/v9"

	"github.com/reqlock/reqlock/core"
)

// A journal records what happens, for the page to draw. It is in Redis, so that it outlives the
// API.
type journal struct{ rdb *redis.Client }

const (
	journalKey = "payments:events"
	journalLen = 1000
)

// A step is something that happens to a payment or to the server.
type step string

const (
	stepArrived  step = "arrived"  // the server has the request
	stepWaiting  step = "waiting"  // another request holds the lock
	stepLocked   step = "locked"   // this one holds it
	stepUnlocked step = "unlocked" // it released it
	stepRunning  step = "running"  // the handler began
	stepCharged  step = "charged"  // the bank moved the money
	stepKnown    step = "known"    // the bank had moved it before
	stepAnswered step = "answered" // the client gets an answer
	stepCrashed  step = "crashed"  // of the server, like the next one
	stepStarted  step = "started"
)

// An event is one step. Run and Click are what the page sent with its request.
type event struct {
	At     int64  `json:"at"` // Unix time in milliseconds
	Run    string `json:"run,omitempty"`
	Side   string `json:"side,omitempty"` // "with" or "without" the middleware
	Click  string `json:"click,omitempty"`
	Step   step   `json:"step"`
	Detail string `json:"detail,omitempty"`
}

// add records a step of the request of ctx, or of the server if ctx has none. Payments go on if
// that fails.
func (j journal) add(ctx context.Context, s step, detail string) {
	e, _ := ctx.Value(eventKey{}).(event)
	e.At, e.Step, e.Detail = time.Now().UnixMilli(), s, detail
	text, err := json.Marshal(e)
	if err != nil {
		return
	}
	add := &redis.XAddArgs{Stream: journalKey, MaxLen: journalLen, Values: []any{"event", text}}
	_ = j.rdb.XAdd(context.WithoutCancel(ctx), add).Err()
}

type eventKey struct{}

// name accepts the headers of the page.
var name = regexp.MustCompile(`^[a-z0-9]{1,32}$`)

// follow records when requests arrive and are answered, and puts what the page calls them into
// their contexts.
func (j journal) follow(side string) gin.HandlerFunc {
	return func(c *gin.Context) {
		e := event{Side: side, Run: c.GetHeader("X-Run"), Click: c.GetHeader("X-Click")}
		if !name.MatchString(e.Run) || !name.MatchString(e.Click) {
			e.Run, e.Click = "", ""
		}
		ctx := context.WithValue(c.Request.Context(), eventKey{}, e)
		c.Request = c.Request.WithContext(ctx)
		j.add(ctx, stepArrived, "")
		c.Next()
		detail := strconv.Itoa(c.Writer.Status())
		if c.Writer.Header().Get("Idempotent-Replayed") == "true" {
			detail += " replayed"
		}
		j.add(ctx, stepAnswered, detail)
	}
}

// observer records what happens to locks.
func (j journal) observer() core.Observer {
	record := func(s step) func(context.Context, core.Event) {
		return func(ctx context.Context, e core.Event) {
			if e.Err == nil {
				j.add(ctx, s, "")
			}
		}
	}
	return core.Observer{Waiting: record(stepWaiting), Acquired: record(stepLocked), Released: record(stepUnlocked)}
}

// stream sends events as they happen (text/event-stream), until the client leaves or stopping is
// closed. A browser that reconnects continues where it was.
func (j journal) stream(stopping <-chan struct{}) gin.HandlerFunc {
	return func(c *gin.Context) {
		last, err := j.position(c)
		if err != nil {
			c.JSON(http.StatusBadGateway, gin.H{"error": err.Error()})
			return
		}
		c.Header("Content-Type", "text/event-stream")
		c.Header("Cache-Control", "no-store")
		fmt.Fprintf(c.Writer, "retry: 200\nid: %s\nevent: ready\ndata: \n\n", last)
		for {
			c.Writer.Flush()
			select {
			case <-stopping:
				return
			case <-c.Request.Context().Done():
				return
			default:
			}
			if last, err = j.send(c, last); err != nil {
				return
			}
		}
	}
}

// position returns where to continue, or the end of the journal.
func (j journal) position(c *gin.Context) (string, error) {
	if id := c.GetHeader("Last-Event-ID"); id != "" {
		return id, nil
	}
	newest, err := j.rdb.XRevRangeN(c.Request.Context(), journalKey, "+", "-", 1).Result()
	if err != nil || len(newest) == 0 {
		return "0-0", err
	}
	return newest[0].ID, nil
}

// send sends the events after last, or waits a moment for some.
func (j journal) send(c *gin.Context, last string) (string, error) {
	read := &redis.XReadArgs{Streams: []string{journalKey, last}, Block: 250 * time.Millisecond}
	streams, err := j.rdb.XRead(c.Request.Context(), read).Result()
	if errors.Is(err, redis.Nil) {
		return last, nil
	}
	if err != nil {
		return last, err
	}
	for _, message := range streams[0].Messages {
		last = message.ID
		fmt.Fprintf(c.Writer, "id: %s\ndata: %s\n\n", last, message.Values["event"])
	}
	return last, nil
}
