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
	fmt.Println("set for an hour:", rdb.Exists(ctx, "greeting").Val())
	rdb.PExpire(ctx, "greeting", 50*time.Millisecond)
	time.Sleep(50 * time.Millisecond)
	fmt.Println("when its time is over:", rdb.Exists(ctx, "greeting").Val())
	// Output:
	// set for an hour: 1
	// when its time is over: 0
}

// A program that needs Redis, and runs on a machine that has none.
func ExampleFromEnv() {
	srv, err := embedded.FromEnv()
	if err != nil {
		log.Fatal(err) // one line, which says what is wrong with REDIS_URL
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
