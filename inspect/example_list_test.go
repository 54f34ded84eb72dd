package inspect_test

import (
	"context"
	"fmt"
	"log"

	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/embedded"
	"github.com/reqlock/reqlock/inspect"
)

func ExampleList() {
	ctx := context.Background()
	srv, err := embedded.Start() // Redis, inside this process
	if err != nil {
		log.Fatal(err)
	}
	defer srv.Close()
	rdb := srv.Client()
	client, err := core.New(rdb, core.Options{ClientID: "web-1"})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close(ctx)
	lease, err := client.Lock("reqlock:order:42").Acquire(ctx, core.AcquireOptions{})
	if err != nil {
		log.Fatal(err)
	}
	defer lease.Release(ctx)

	locks, more, err := inspect.List(ctx, rdb, inspect.ListOptions{Prefix: "reqlock:order:"})
	if err != nil {
		log.Fatal(err)
	}
	for _, l := range locks {
		fmt.Println(l.Name, l.Kind, len(l.Holders))
	}
	fmt.Println("more:", more)
	// Output:
	// reqlock:order:42 lock 1
	// more: false
}
