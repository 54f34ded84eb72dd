package embedded_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/reqlock/reqlock/embedded"
)

func ExampleStart() {
	srv, err := embedded.Start()
	if err != nil {
		log.Fatal(err)
	}
	defer srv.Close()
	rdb := srv.Client()

	ctx := context.Background()
	rdb.Set(ctx, "greeting", "hello", time.Hour)
	fmt.Println("before its TTL ends:", rdb.Exists(ctx, "greeting").Val())
	rdb.PExpire(ctx, "greeting", 50*time.Millisecond)
	time.Sleep(50 * time.Millisecond)
	fmt.Println("after its TTL:", rdb.Exists(ctx, "greeting").Val())
	// Output:
	// before its TTL ends: 1
	// after its TTL: 0
}

// A program that needs Redis but runs on a machine without one.
func ExampleFromEnv() {
	srv, err := embedded.FromEnv()
	if err != nil {
		log.Fatal(err) // one line that says how to correct REDIS_URL
	}
	defer srv.Close()

	if srv.Embedded() {
		fmt.Println("Redis runs inside this process, at", srv.URL())
	} else {
		fmt.Println("using Redis at", srv.URL())
	}
	rdb := srv.Client()
	_ = rdb // core.New(rdb, core.Options{})
}
