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
func (s *testServer) expectContinue(length int) (first string, in *bufio.Reader, out io.Writer) {
	s.fx.Helper()
	conn := s.dial()
	_, err := fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: test\r\nExpect: 100-continue\r\nContent-Length: %d\r\n\r\n", order, length)
	if err != nil {
		s.fx.Fatal(err)
	}
	in = bufio.NewReader(conn)
	if first, err = in.ReadString('\n'); err != nil {
		s.fx.Fatalf("no answer: %v", err)
	}
	return strings.TrimSpace(first), in, conn
}

func echo(fx *fixture) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			fx.Errorf("the body: %v", err)
		}
		if err := r.Body.Close(); err != nil {
			fx.Errorf("closing the body: %v", err)
		}
		_, _ = w.Write(body)
	}
}

func refusalWithoutContinue(fx *fixture) {
	release := fx.mustHold(lockName)
	s := fx.serveOrders(echo(fx))
	if first, _, _ := s.expectContinue(5); first != "HTTP/1.1 409 Conflict" {
		fx.Errorf("the first line is %q", first)
	}
	release()

	first, in, out := s.expectContinue(5)
	if first != "HTTP/1.1 100 Continue" {
		fx.Fatalf("with the lock free, the first line is %q", first)
	}
	if _, err := in.ReadString('\n'); err != nil { // the empty line
		fx.Fatal(err)
	}
	_, _ = io.WriteString(out, "hello")
	s.read(in).want(fx, 200, "hello")
}

func lengthWithoutContinue(fx *fixture) {
	s := fx.serveOrders(echo(fx), func(cfg *guard.Config) { cfg.BufferBody = 100 })
	if first, _, _ := s.expectContinue(101); first != "HTTP/1.1 413 Request Entity Too Large" {
		fx.Errorf("the first line is %q", first)
	}
	if first, _, _ := s.expectContinue(100); first != "HTTP/1.1 100 Continue" {
		fx.Errorf("within the limit, the first line is %q", first)
	}
}

func panicWithoutContinue(fx *fixture) {
	caught, stacks := make(chan any, 1), make(chan string, 1)
	s := fx.serveWith(recovering(caught, stacks, func() {}), Route{
		Pattern: orders,
		Guards:  []guard.Config{fx.config(keyedBy(func(*http.Request) (string, error) { panic(errExploded) }))},
		Handler: func(http.ResponseWriter, *http.Request) { fx.Error("the handler ran without the lock") },
	})
	if first, _, _ := s.expectContinue(5); first != "HTTP/1.1 500 Internal Server Error" {
		fx.Errorf("the first line is %q", first)
	}
}

func bufferedIntact(fx *fixture) {
	const limit = 70_000
	every := make([]byte, limit)
	for i := range every {
		every[i] = byte(i * 31 >> 3)
	}
	s := fx.serveOrders(echo(fx), func(cfg *guard.Config) { cfg.BufferBody = limit })
	for _, n := range []int{0, 1, limit - 1, limit} {
		body := every[:n]
		for how, reader := range map[string]io.Reader{
			"with its length": bytes.NewReader(body),
			"in chunks":       io.MultiReader(bytes.NewReader(body)),
		} {
			a := s.must(s.send(s.newRequest(http.MethodPost, order, reader)))
			if a.status != 200 || a.body != string(body) {
				fx.Errorf("%d bytes, %s: answer %d with %d bytes, equal: %t", n, how, a.status, len(a.body), a.body == string(body))
			}
		}
	}
}

func bufferedBreaksOff(fx *fixture) {
	g := fx.newBlockingHandler()
	s := fx.serveOrders(g.ServeHTTP, func(cfg *guard.Config) { cfg.BufferBody = 100 })
	conn := s.dial()
	if _, err := io.WriteString(conn, "POST "+order+" HTTP/1.1\r\nHost: test\r\nContent-Length: 50\r\n\r\nonly the beginning"); err != nil {
		fx.Fatal(err)
	}
	_ = conn.Close()
	if o := fx.outcome(); o.Status != 400 && o.Status != 499 {
		fx.Errorf("the outcome is %+v", o)
	}
	g.wantRuns(0)
	fx.wantFree(lockName)
}

func bufferedOuterLimit(fx *fixture) {
	s := fx.serveWith(around(func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			r.Body = http.MaxBytesReader(w, r.Body, 10)
			next.ServeHTTP(w, r)
		})
	}), Route{Pattern: orders, Guards: []guard.Config{fx.config(func(cfg *guard.Config) { cfg.BufferBody = 100 })}, Handler: echo(fx)})
	s.post(order, "0123456789").want(fx, 200, "0123456789")
	s.post(order, "0123456789+").wantProblem(fx, 413, "body-too-large", "")
}

func bufferedHuge(fx *fixture) {
	s := fx.serveOrders(echo(fx), func(cfg *guard.Config) { cfg.BufferBody = 1<<63 - 1 })
	s.post(order, "hello").want(fx, 200, "hello")
}

// The guard asks Redis before it asks for the body, and then leaves reading to the handler.
func bodyUntouched(fx *fixture) {
	var reads atomic.Int64
	s := fx.serveWith(around(func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			r.Body = &countedBody{r.Body, &reads}
			next.ServeHTTP(w, r)
		})
	}), Route{Pattern: orders, Guards: []guard.Config{fx.config()}, Handler: func(w http.ResponseWriter, r *http.Request) {
		if n := reads.Load(); n != 0 {
			fx.Errorf("the guard read the body %d times", n)
		}
		echo(fx)(w, r)
	}})
	s.post(order, "hello").want(fx, 200, "hello")
	reads.Store(0)
	fx.mustHold(lockName)
	s.post(order, "hello").wantProblem(fx, 409, "locked", "1")
	if n := reads.Load(); n != 0 {
		fx.Errorf("for a refusal, the guard read the body %d times", n)
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
func formFiles(fx *fixture) {
	names := make(chan string, 1)
	handler := func(w http.ResponseWriter, r *http.Request) {
		name, err := upload(r)
		if err != nil {
			fx.Error(err)
		}
		names <- name
	}
	s := fx.serve(
		Route{Method: http.MethodPost, Pattern: "/free/{id}", Handler: handler},
		Route{Method: http.MethodPost, Pattern: orders, Guards: []guard.Config{fx.config(), fx.config()}, Handler: handler},
		Route{Method: http.MethodGet, Pattern: orders, Handler: func(http.ResponseWriter, *http.Request) {}},
	)
	removed := func(path string) bool {
		var body bytes.Buffer
		form := multipart.NewWriter(&body)
		part, err := form.CreateFormFile("upload", "big")
		if err != nil {
			fx.Fatal(err)
		}
		_, _ = part.Write(make([]byte, 11<<20)) // more than is kept in memory
		_ = form.Close()
		r := s.newRequest(http.MethodPost, path, &body)
		r.Header.Set("Content-Type", form.FormDataContentType())
		s.must(s.send(r)).want(fx, 200, "")
		s.get(order).want(fx, 200, "") // on the same connection: the server has removed the form
		name := mustReceive(fx, "the handler runs", names)
		_, err = os.Stat(name)
		_ = os.Remove(name)
		return os.IsNotExist(err)
	}
	if removed("/free/"+key) && !removed(order) {
		fx.Error("a temporary file of the form is left; without a guard there is none")
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
