package core_test

import (
	"bytes"
	"context"
	"fmt"
	"log"

	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/delegation"
	"github.com/reqlock/reqlock/embedded"
)

// Two services have a client each. The one that holds the lock of an order sends the other a message,
// with a token. Both let go, in any order.
func ExampleLease_Delegate() {
	server, err := embedded.Start() // In production, use a Redis that both share.
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	keys, err := delegation.NewKeys(bytes.Repeat([]byte("secret! "), 4)) // In production, use 32 random bytes that both have.
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()
	service := func(name string) *core.Client {
		locks, err := core.New(server.Client(), core.Options{Delegation: delegation.Service{Keys: keys, Name: name}})
		if err != nil {
			log.Fatal(err)
		}
		return locks
	}
	orders, billing := service("orders"), service("billing")
	defer orders.Close(ctx)
	defer billing.Close(ctx)

	lease, err := orders.Lock("order:42").Acquire(ctx, core.AcquireOptions{})
	if err != nil {
		log.Fatal(err)
	}
	_, err = billing.Lock("order:42").Acquire(ctx, core.AcquireOptions{})
	fmt.Println("without a token:", err != nil)

	token, err := lease.Delegate("billing") // or core.Delegation(ctx, "billing"), for all leases of a context
	if err != nil {
		log.Fatal(err)
	}
	guest, err := billing.Lock("order:42").Acquire(core.WithDelegation(ctx, token), core.AcquireOptions{})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("orders leaves:", lease.Release(ctx))
	held, _ := orders.Lock("order:42").IsLocked(ctx)
	fmt.Println("still held:", held)
	fmt.Println("billing leaves:", guest.Release(ctx))
	// Output:
	// without a token: true
	// orders leaves: <nil>
	// still held: true
	// billing leaves: <nil>
}

// The tokens of a request's context, as a client of gRPC or of a queue sends them.
func ExampleDelegation() {
	send := func(ctx context.Context) error {
		tokens, err := core.Delegation(ctx, "billing")
		if err != nil {
			return err
		}
		fmt.Printf("tokens: %q\n", tokens) // metadata.AppendToOutgoingContext(ctx, delegation.Header, tokens)
		return nil
	}
	if err := send(context.Background()); err != nil { // without a lease
		log.Fatal(err)
	}
	// Output: tokens: ""
}
