package adaptertest

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"os"
	"strings"
	"sync/atomic"

	"github.com/reqlock/reqlock/guard"
)

var bodies = []scenario{
	{name: "a refusal asks for no body", run: refusalWithoutContinue},
	{name: "a refusal for its length asks for no body", run: lengthWithoutContinue},
	{name: "a key function that panics asks for no body", run: panicWithoutContinue},
	{name: "BufferBody passes the body on unchanged", run: bufferedIntact},
	{name: "BufferBody and a client that aborts its upload", run: bufferedBreaksOff},
	{name: "BufferBody and an outer limit", run: bufferedOuterLimit},
	{name: "BufferBody with a huge limit", run: bufferedHuge},
	{name: "without BufferBody the guard leaves the body alone", run: bodyUntouched},
	{name: "files of a form are removed after the request", run: formFiles},
}

// expectContinue sends a POST with Expect: 100-continue, and returns the first line of the answer.
func (s *site) expectContinue(length int) (first string, in *bufio.Reader, out io.Writer) {
	s.e.Helper()
	conn := s.dial()
	_, err := fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: test\r\nExpect: 100-continue\r\nContent-Length: %d\r\n\r\n", order, length)
	if err != nil {
		s.e.Fatal(err)
	}
	in = bufio.NewReader(conn)
	if first, err = in.ReadString('\n'); err != nil {
		s.e.Fatalf("no answer: %v", err)
	}
	return strings.TrimSpace(first), in, conn
}

func echo(e *env) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			e.Errorf("the body: %v", err)
		}
		if err := r.Body.Close(); err != nil {
			e.Errorf("closing the body: %v", err)
		}
		_, _ = w.Write(body)
	}
}

func refusalWithoutContinue(e *env) {
	release := e.hold(lockName)
	s := e.serveOrders(echo(e))
	if first, _, _ := s.expectContinue(5); first != "HTTP/1.1 409 Conflict" {
		e.Errorf("the first line is %q", first)
	}
	release()

	first, in, out := s.expectContinue(5)
	if first != "HTTP/1.1 100 Continue" {
		e.Fatalf("with the lock free, the first line is %q", first)
	}
	if _, err := in.ReadString('\n'); err != nil { // the empty line
		e.Fatal(err)
	}
	_, _ = io.WriteString(out, "hello")
	s.read(in).want(e, 200, "hello")
}

func lengthWithoutContinue(e *env) {
	s := e.serveOrders(echo(e), func(cfg *guard.Config) { cfg.BufferBody = 100 })
	if first, _, _ := s.expectContinue(101); first != "HTTP/1.1 413 Request Entity Too Large" {
		e.Errorf("the first line is %q", first)
	}
	if first, _, _ := s.expectContinue(100); first != "HTTP/1.1 100 Continue" {
		e.Errorf("within the limit, the first line is %q", first)
	}
}

func panicWithoutContinue(e *env) {
	caught, stacks := make(chan any, 1), make(chan string, 1)
	s := e.serveWith(recovering(caught, stacks, func() {}), Route{
		Pattern: orders,
		Guards:  []guard.Config{e.config(keyedBy(func(*http.Request) (string, error) { panic(errExploded) }))},
		Handler: func(http.ResponseWriter, *http.Request) { e.Error("the handler ran without the lock") },
	})
	if first, _, _ := s.expectContinue(5); first != "HTTP/1.1 500 Internal Server Error" {
		e.Errorf("the first line is %q", first)
	}
}

func bufferedIntact(e *env) {
	const limit = 70_000
	every := make([]byte, limit)
	for i := range every {
		every[i] = byte(i * 31 >> 3)
	}
	s := e.serveOrders(echo(e), func(cfg *guard.Config) { cfg.BufferBody = limit })
	for _, n := range []int{0, 1, limit - 1, limit} {
		body := every[:n]
		for how, reader := range map[string]io.Reader{
			"with its length": bytes.NewReader(body),
			"in chunks":       io.MultiReader(bytes.NewReader(body)),
		} {
			a := s.must(s.send(s.request(http.MethodPost, order, reader)))
			if a.status != 200 || a.body != string(body) {
				e.Errorf("%d bytes, %s: answer %d with %d bytes, equal: %t", n, how, a.status, len(a.body), a.body == string(body))
			}
		}
	}
}

func bufferedBreaksOff(e *env) {
	g := e.gate()
	s := e.serveOrders(g.ServeHTTP, func(cfg *guard.Config) { cfg.BufferBody = 100 })
	conn := s.dial()
	if _, err := io.WriteString(conn, "POST "+order+" HTTP/1.1\r\nHost: test\r\nContent-Length: 50\r\n\r\nonly the beginning"); err != nil {
		e.Fatal(err)
	}
	_ = conn.Close()
	if o := e.outcome(); o.Status != 400 && o.Status != 499 {
		e.Errorf("the outcome is %+v", o)
	}
	g.wantRuns(0)
	e.wantFree(lockName)
}

func bufferedOuterLimit(e *env) {
	s := e.serveWith(around(func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			r.Body = http.MaxBytesReader(w, r.Body, 10)
			next.ServeHTTP(w, r)
		})
	}), Route{Pattern: orders, Guards: []guard.Config{e.config(func(cfg *guard.Config) { cfg.BufferBody = 100 })}, Handler: echo(e)})
	s.post(order, "0123456789").want(e, 200, "0123456789")
	s.post(order, "0123456789+").wantProblem(e, 413, "body-too-large", "")
}

func bufferedHuge(e *env) {
	s := e.serveOrders(echo(e), func(cfg *guard.Config) { cfg.BufferBody = 1<<63 - 1 })
	s.post(order, "hello").want(e, 200, "hello")
}

// The guard asks Redis before it asks for the body, and then leaves reading to the handler.
func bodyUntouched(e *env) {
	var reads atomic.Int64
	s := e.serveWith(around(func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			r.Body = &countedBody{r.Body, &reads}
			next.ServeHTTP(w, r)
		})
	}), Route{Pattern: orders, Guards: []guard.Config{e.config()}, Handler: func(w http.ResponseWriter, r *http.Request) {
		if n := reads.Load(); n != 0 {
			e.Errorf("the guard read the body %d times", n)
		}
		echo(e)(w, r)
	}})
	s.post(order, "hello").want(e, 200, "hello")
	reads.Store(0)
	e.hold(lockName)
	s.post(order, "hello").wantProblem(e, 409, "locked", "1")
	if n := reads.Load(); n != 0 {
		e.Errorf("for a refusal, the guard read the body %d times", n)
	}
}

type countedBody struct {
	io.ReadCloser
	reads *atomic.Int64
}

func (b *countedBody) Read(p []byte) (int, error) {
	b.reads.Add(1)
	return b.ReadCloser.Read(p)
}

// The server removes the files of the request it passed on. The guard passes on a copy, and so do
// some routers.
func formFiles(e *env) {
	names := make(chan string, 1)
	handler := func(w http.ResponseWriter, r *http.Request) {
		name, err := upload(r)
		if err != nil {
			e.Error(err)
		}
		names <- name
	}
	s := e.serve(
		Route{Method: http.MethodPost, Pattern: "/free/{id}", Handler: handler},
		Route{Method: http.MethodPost, Pattern: orders, Guards: []guard.Config{e.config(), e.config()}, Handler: handler},
		Route{Method: http.MethodGet, Pattern: orders, Handler: func(http.ResponseWriter, *http.Request) {}},
	)
	removed := func(path string) bool {
		var body bytes.Buffer
		form := multipart.NewWriter(&body)
		part, err := form.CreateFormFile("upload", "big")
		if err != nil {
			e.Fatal(err)
		}
		_, _ = part.Write(make([]byte, 11<<20)) // more than is kept in memory
		_ = form.Close()
		r := s.request(http.MethodPost, path, &body)
		r.Header.Set("Content-Type", form.FormDataContentType())
		s.must(s.send(r)).want(e, 200, "")
		s.get(order).want(e, 200, "") // on the same connection: the server has removed the form
		name := await(e, "the handler runs", names)
		_, err = os.Stat(name)
		_ = os.Remove(name)
		return os.IsNotExist(err)
	}
	if removed("/free/"+key) && !removed(order) {
		e.Error("a temporary file of the form is left; without a guard there is none")
	}
}

// upload parses a form and returns the name of its temporary file.
func upload(r *http.Request) (string, error) {
	if err := r.ParseMultipartForm(1); err != nil {
		return "", err
	}
	file, _, err := r.FormFile("upload")
	if err != nil {
		return "", err
	}
	defer file.Close()
	on, ok := file.(*os.File)
	if !ok {
		return "", fmt.Errorf("the upload is a %T, not a file", file)
	}
	return on.Name(), nil
}
