// The adapter for Echo v5, apart from the library so that its users do not get both versions of Echo.
module github.com/reqlock/reqlock/middleware/echov5

go 1.26.0

replace github.com/reqlock/reqlock => ../../

require (
	github.com/labstack/echo/v5 v5.4.4
	github.com/reqlock/reqlock v0.2.0
)

require (
	github.com/alicebob/miniredis/v2 v2.40.0 // indirect
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	github.com/felixge/httpsnoop v1.1.0 // indirect
	github.com/google/uuid v1.6.0 // indirect
	github.com/redis/go-redis/v9 v9.23.0 // indirect
	github.com/yuin/gopher-lua v1.1.2 // indirect
	go.uber.org/atomic v1.12.0 // indirect
	go.uber.org/goleak v1.3.0 // indirect
	golang.org/x/sys v0.50.0 // indirect
	golang.org/x/time v0.15.0 // indirect
)
