#!/usr/bin/env bash
# Prints what a program pays for the middleware, and for a lock of redsync: the modules in its go.sum
# and the size of its stripped binary. Both programs are in this file.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
root=$PWD
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
go=${GO:-go}

# measure NAME: builds main.go of standard input.
measure() {
	mkdir "$dir/$1"
	cd "$dir/$1"
	cat >main.go
	"$go" mod init footprint 2>/dev/null
	"$go" mod edit -replace "github.com/reqlock/reqlock=$root"
	"$go" mod tidy 2>/dev/null
	"$go" build -trimpath -ldflags='-s -w' -o app .
	local modules
	modules=$(cut -d' ' -f1 go.sum | sort -u | wc -l)
	if grep -q 'reqlock v' go.mod; then
		modules=$((modules + 1)) # the replaced module is not in go.sum
	fi
	echo "$1: $modules modules in go.sum, $(awk -v bytes="$(wc -c <app)" 'BEGIN { printf "%.1f", bytes / 1e6 }') MB"
	cd "$root"
}

measure reqlock <<'EOF'
package main

import (
	"log"
	"net/http"

	"github.com/redis/go-redis/v9"

	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/keyfuncs"
	httplock "github.com/reqlock/reqlock/middleware/nethttp"
)

func main() {
	locks, err := core.New(redis.NewClient(&redis.Options{Addr: "localhost:6379"}), core.Options{})
	if err != nil {
		log.Fatal(err)
	}
	lock := httplock.New(locks, httplock.Config{Key: keyfuncs.PathValue("id")})
	http.Handle("POST /orders/{id}/pay", lock(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})))
	log.Fatal(http.ListenAndServe(":8080", nil))
}
EOF
measure redsync <<'EOF'
package main

import (
	"log"
	"net/http"

	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
)

func main() {
	locks := redsync.New(goredis.NewPool(redis.NewClient(&redis.Options{Addr: "localhost:6379"})))
	http.HandleFunc("POST /orders/{id}/pay", func(w http.ResponseWriter, r *http.Request) {
		lock := locks.NewMutex("order:" + r.PathValue("id"))
		if err := lock.LockContext(r.Context()); err != nil {
			http.Error(w, "locked", http.StatusConflict)
			return
		}
		defer lock.UnlockContext(r.Context())
	})
	log.Fatal(http.ListenAndServe(":8080", nil))
}
EOF
