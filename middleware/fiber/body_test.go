package fiberlock_test

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/gofiber/fiber/v3"
	"github.com/reqlock/reqlock/guard"
	"github.com/reqlock/reqlock/idempotency"
	"github.com/reqlock/reqlock/internal/lab/locktest"
	"github.com/reqlock/reqlock/keyfuncs"
	fiberlock "github.com/reqlock/reqlock/middleware/fiber"
	"github.com/valyala/fasthttp/fasthttputil"
)

// A pipe is a server whose connections lose nothing of an answer when they are closed.
type pipe struct {
	*testing.T
	listener *fasthttputil.InmemoryListener
}

func servePipe(t *testing.T, app *fiber.App) pipe {
	t.Helper()
	p := pipe{t, fasthttputil.NewInmemoryListener()}
	ended := make(chan error, 1)
	go func() { ended <- app.Listener(p.listener, fiber.ListenConfig{DisableStartupMessage: true}) }()
	t.Cleanup(func() {
		if err := errors.Join(app.Shutdown(), <-ended); err != nil {
			t.Error(err)
		}
	})
	return p
}

func (p pipe) dial() net.Conn {
	p.Helper()
	conn, err := p.listener.Dial()
	if err != nil {
		p.Fatal(err)
	}
	p.Cleanup(func() { _ = conn.Close() })
	return conn
}

// post sends a request with a body of that length until all of it is sent or the connection is
// closed, and returns the answer, its body, and how many bytes of the body were sent. Each byte
// follows from its place.
func (p pipe) post(conn net.Conn, path, header string, length int, chunked bool) (answer *http.Response, text string, sent int) {
	p.Helper()
	if chunked {
		header += "Transfer-Encoding: chunked\r\n"
	} else {
		header += fmt.Sprintf("Content-Length: %d\r\n", length)
	}
	written := make(chan int, 1)
	go func() {
		sent := 0
		defer func() { written <- sent }()
		_, err := fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: test\r\n%s\r\n", path, header)
		part := make([]byte, 16<<10)
		for err == nil && sent < length {
			part = part[:min(cap(part), length-sent)]
			fill(part, sent)
			if chunked {
				_, err = fmt.Fprintf(conn, "%x\r\n%s\r\n", len(part), part)
			} else {
				_, err = conn.Write(part)
			}
			if err == nil {
				sent += len(part)
			}
		}
		if err == nil && chunked {
			_, _ = io.WriteString(conn, "0\r\n\r\n")
		}
	}()
	_ = conn.SetReadDeadline(time.Now().Add(time.Minute))
	answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		p.Fatal(path, err)
	}
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		p.Fatal(path, err)
	}
	if answer.Close {
		_ = conn.Close()
	}
	return answer, string(body), <-written
}

func fill(part []byte, at int) {
	for i := range part {
		part[i] = byte((at + i) % 251)
	}
}

func streamed() *fiber.App {
	return fiber.New(fiber.Config{StreamRequestBody: true, BodyLimit: 1 << 20})
}

// readers returns a guard for each way of reading a body, with a limit in bytes.
func readers(t *testing.T, limit int64) map[string]fiber.Handler {
	locks := locktest.NewLocks(t)
	buffered := quiet(keyfuncs.Const("k"))
	buffered.BufferBody = limit
	return map[string]fiber.Handler{
		"/buffer": fiberlock.New(locks, buffered),
		"/hash":   fiberlock.New(locks, quiet(keyfuncs.BodyHash(keyfuncs.MaxBody(limit)))),
		"/once":   fiberlock.Idempotent(locks, idempotency.Config{Scope: idempotency.ScopeGlobal, MaxRequestBody: limit}),
	}
}

// A streamed body is read in pieces, and no further than the limit.
func TestBody_BeyondTheLimit(t *testing.T) { //nolint:paralleltest // it measures the heap
	const limit, size = 1 << 20, 64 << 20
	app := streamed()
	paths := readers(t, limit)
	for path, lock := range paths {
		app.Post(path, lock, func(fiber.Ctx) error { t.Error(path, "the handler ran"); return nil })
	}
	p := servePipe(t, app)
	for path := range paths {
		for _, chunked := range []bool{false, true} {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			answer, text, sent := p.post(p.dial(), path, "Idempotency-Key: k\r\n", size, chunked)
			runtime.ReadMemStats(&after)
			if answer.StatusCode != 413 || !answer.Close || !strings.Contains(text, "body-too-large") {
				t.Errorf("%s, chunked %v: answer %d, close %v, %s", path, chunked, answer.StatusCode, answer.Close, text)
			}
			most := 4 * limit // what the pipe holds included
			if !chunked {
				most = limit // the length is refused before
			}
			if sent > most {
				t.Errorf("%s, chunked %v: %d bytes were read", path, chunked, sent)
			}
			if grown := after.TotalAlloc - before.TotalAlloc; grown > 24<<20 {
				t.Errorf("%s, chunked %v: %d bytes were allocated", path, chunked, grown)
			}
		}
	}
}

// Handlers get the bytes that the client has sent, as a stream and in memory.
func TestBody_IsPutBack(t *testing.T) {
	t.Parallel()
	for name, app := range map[string]*fiber.App{"streamed": streamed(), "in memory": fiber.New()} {
		paths := readers(t, 1<<20)
		paths["/twice"] = fiberlock.New(locktest.NewLocks(t), quiet(keyfuncs.BodyHash()))
		paths["/untouched"] = fiberlock.New(locktest.NewLocks(t), quiet(keyfuncs.Const("k")))
		for path, lock := range paths {
			outer := quiet(keyfuncs.Const("outer"))
			if path == "/twice" {
				outer.BufferBody = 1 << 20
			}
			app.Post(path+"/:way", fiberlock.New(locktest.NewLocks(t), outer), lock, func(c fiber.Ctx) error {
				if c.Params("way") == "body" {
					return c.Send(c.Body())
				}
				if (c.Request().BodyStream() != nil) != (name == "streamed") {
					t.Errorf("%s, %s: the stream is %v", name, path, c.Request().BodyStream())
				}
				var whole bytes.Buffer
				if err := c.Request().BodyWriteTo(&whole); err != nil {
					return err
				}
				return c.Send(whole.Bytes())
			})
		}
		p := servePipe(t, app)
		conn := p.dial() // goes on after each body
		for path := range paths {
			for i, size := range []int{1, 5000, 8 << 10, 100_000, 1 << 20} {
				for _, way := range []string{"/body", "/stream"} {
					for _, chunked := range []bool{false, true} {
						header := fmt.Sprintf("Idempotency-Key: %s%d%v\r\n", way, i, chunked)
						answer, text, _ := p.post(conn, path+way, header, size, chunked)
						want := make([]byte, size)
						fill(want, 0)
						if answer.StatusCode != 200 || answer.Close || text != string(want) {
							t.Fatalf("%s, %s, %d bytes, chunked %v: answer %d with %d bytes, close %v", name, path+way, size, chunked, answer.StatusCode, len(text), answer.Close)
						}
					}
				}
			}
		}
	}
}

// After a refusal, nothing of a body is taken for the next request of its connection.
func TestBody_RefusedUnread(t *testing.T) {
	t.Parallel()
	locks := locktest.NewLocks(t)
	locktest.MustHold(t, locks, "reqlock:k")
	app := streamed()
	app.Post("/", fiberlock.New(locks, quiet(keyfuncs.Const("k"))), answerLock)
	app.Post("/free", fiberlock.New(locks, quiet(keyfuncs.Const("free"))), answerLock)
	p := servePipe(t, app)
	for _, test := range []struct {
		size    int
		chunked bool
		close   bool
	}{{3000, false, false}, {8 << 10, false, false}, {9000, false, true}, {3000, true, true}} {
		conn := p.dial()
		answer, text, _ := p.post(conn, "/", "", test.size, test.chunked)
		if answer.StatusCode != 409 || answer.Close != test.close {
			t.Errorf("%+v: answer %d, close %v, %s", test, answer.StatusCode, answer.Close, text)
		}
		if test.close {
			continue
		}
		if answer, text, _ := p.post(conn, "/free", "", 0, false); answer.StatusCode != 200 {
			t.Errorf("%+v: the next request gets %d, %s", test, answer.StatusCode, text)
		}
	}
}

// A policy may go on after a body was too long. Only if none of it was read, the handler gets it.
func TestBody_PartlyRead(t *testing.T) {
	t.Parallel()
	cfg := quiet(nil)
	cfg.Key, cfg.Policy = nil, func(r *http.Request, p *guard.Policy) error {
		_, err := keyfuncs.BodyHash(keyfuncs.MaxBody(1000))(r)
		if tooLarge := (*http.MaxBytesError)(nil); !errors.As(err, &tooLarge) {
			return fmt.Errorf("the error is %w", err)
		}
		p.Skip, p.Keys = r.URL.Query().Has("skip"), []string{"k"}
		return nil
	}
	inner := quiet(keyfuncs.BodyHash())
	wide := quiet(keyfuncs.Const("wide"))
	wide.BufferBody = 1 << 20
	app, locks := streamed(), locktest.NewLocks(t)
	app.Post("/", fiberlock.New(locks, cfg), func(c fiber.Ctx) error { return c.Send(c.Body()) })
	app.Post("/read", fiberlock.New(locks, wide), fiberlock.New(locks, cfg), fiberlock.New(locks, inner), func(c fiber.Ctx) error { return c.Send(c.Body()) })
	p := servePipe(t, app)
	const size = 50_000
	want := make([]byte, size)
	fill(want, 0)
	for _, query := range []string{"", "?skip"} {
		if answer, text, _ := p.post(p.dial(), "/"+query, "", size, false); answer.StatusCode != 200 || text != string(want) {
			t.Errorf("%q, with a length: answer %d with %d bytes", query, answer.StatusCode, len(text))
		}
		if answer, text, _ := p.post(p.dial(), "/"+query, "", size, true); answer.StatusCode != 413 || !answer.Close || !strings.Contains(text, "body-too-large") {
			t.Errorf("%q, chunked: answer %d, close %v, %s", query, answer.StatusCode, answer.Close, text)
		}
		// An outer guard has read all of it.
		if answer, text, _ := p.post(p.dial(), "/read"+query, "", size, true); answer.StatusCode != 200 || answer.Close || text != string(want) {
			t.Errorf("%q, read before: answer %d with %d bytes, close %v", query, answer.StatusCode, len(text), answer.Close)
		}
	}
}

// A client that hangs up in the middle of its body has not sent all of it.
func TestBody_CutOff(t *testing.T) {
	t.Parallel()
	outcomes := make(chan guard.Outcome, 1)
	cfg := quiet(keyfuncs.BodyHash())
	cfg.Observe = func(_ *http.Request, o guard.Outcome) { outcomes <- o }
	app := streamed()
	app.Post("/", fiberlock.New(locktest.NewLocks(t), cfg), func(fiber.Ctx) error { t.Error("the handler ran"); return nil })
	conn := servePipe(t, app).dial()
	if _, err := fmt.Fprintf(conn, "POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 20000\r\n\r\n%s", make([]byte, 10_000)); err != nil {
		t.Fatal(err)
	}
	_ = conn.Close()
	if o := <-outcomes; o.Status != 400 || !errors.Is(o.Err, io.ErrUnexpectedEOF) {
		t.Errorf("the outcome is %+v", o)
	}
}
