// Upload is a service that stores files. A client that repeats an upload, because its connection
// broke, gets the first answer, and the file is stored once.
package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"

	"github.com/redis/go-redis/v9"

	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/examples/internal/demo"
	"github.com/reqlock/reqlock/idempotency"
	"github.com/reqlock/reqlock/keyfuncs"
	httplock "github.com/reqlock/reqlock/middleware/nethttp"
)

const largest = 8 << 20 // bytes of a request

func main() {
	s := &storage{}
	demo.Main(demo.Program{
		Name: "upload", What: "Files, stored once", Run: "go run -C examples/recipes ./upload",
		Open: s.open,
		Invite: func(base string) string {
			upload := "curl -F file=@go.mod -H 'Idempotency-Key: 8e03978e' -H 'X-Account: anna' " + base + "/files"
			return upload + " & " + upload + "; wait"
		},
	})
}

// A storage stands in for an object store, which gives each file a new name.
type storage struct{ dir string }

func (s *storage) open(rdb *redis.Client) (_ *core.Client, _ http.Handler, err error) {
	s.dir = cmp.Or(os.Getenv("DIR"), filepath.Join(os.TempDir(), "reqlock-files"))
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return nil, nil, err
	}
	locks, err := core.New(rdb, core.Options{})
	if err != nil {
		return nil, nil, err
	}
	once := httplock.Idempotent(locks, idempotency.Config{
		Scope:          keyfuncs.Header("X-Account"), // a service would authenticate its customers
		MaxRequestBody: largest,                      // it is read into memory before its key is locked
		Fingerprint:    idempotency.FingerprintBody,  // the default: compares parts, not their boundary
	})
	mux := http.NewServeMux()
	mux.Handle("POST /files", once(http.HandlerFunc(s.upload)))
	return locks, mux, nil
}

func (s *storage) upload(w http.ResponseWriter, r *http.Request) {
	file, header, err := r.FormFile("file")
	if err != nil {
		http.Error(w, "want a form with a file: "+err.Error(), http.StatusBadRequest)
		return
	}
	defer file.Close()
	name, err := s.store(file)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError) // not recorded: a repeat runs
		return
	}
	w.WriteHeader(http.StatusCreated)
	fmt.Fprintf(w, "%s is stored as %s\n", header.Filename, name)
}

func (s *storage) store(content io.Reader) (name string, err error) {
	file, err := os.CreateTemp(s.dir, "")
	if err != nil {
		return "", err
	}
	_, err = io.Copy(file, content)
	return filepath.Base(file.Name()), errors.Join(err, file.Close())
}
