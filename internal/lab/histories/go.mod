// The histories and the soak, apart from the library so that the checker stays out of its users' dependencies.
module github.com/reqlock/reqlock/internal/lab/histories

go 1.26.0

replace github.com/reqlock/reqlock => ../../../

require (
	github.com/anishathalye/porcupine v1.3.1
	github.com/redis/go-redis/v9 v9.23.0
	github.com/reqlock/reqlock v0.2.0
	go.uber.org/goleak v1.3.0
	golang.org/x/sys v0.50.0
)

require (
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	github.com/felixge/httpsnoop v1.1.0 // indirect
	github.com/google/uuid v1.6.0 // indirect
	go.uber.org/atomic v1.12.0 // indirect
)
