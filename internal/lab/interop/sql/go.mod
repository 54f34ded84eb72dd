// The SQL of docs/guides/fencing.md on SQLite, apart from the library so that no database enters its dependencies.
module github.com/reqlock/reqlock/internal/lab/interop/sql

go 1.26.0

require (
	github.com/ncruces/go-sqlite3 v0.37.0
	github.com/reqlock/reqlock v0.2.0
	go.uber.org/goleak v1.3.0
)

require (
	github.com/alicebob/miniredis/v2 v2.40.0 // indirect
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	github.com/felixge/httpsnoop v1.1.0 // indirect
	github.com/google/uuid v1.6.0 // indirect
	github.com/ncruces/go-sqlite3-wasm/v6 v6.5.35401 // indirect
	github.com/ncruces/julianday v1.0.0 // indirect
	github.com/redis/go-redis/v9 v9.23.0 // indirect
	github.com/yuin/gopher-lua v1.1.2 // indirect
	go.uber.org/atomic v1.12.0 // indirect
	golang.org/x/sys v0.50.0 // indirect
)

replace github.com/reqlock/reqlock => ../../../..
