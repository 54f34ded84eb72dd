package main

import (
	"context"
	"fmt"

	"github.com/reqlock/reqlock/examples/internal/demo"
)

// demonstrate pays an order without delegation, and then two at the same time with it.
func demonstrate(ctx context.Context, base string) error {
	fmt.Printf("\nPOST /alone/{id}/pay: orders holds the order, and billing waits %s for it\n", waitTime)
	alone := []*demo.Request{{Name: "A", What: "order 42", Path: "/alone/42/pay"}}
	if err := demo.Collide(ctx, base, alone); err != nil {
		return err
	}
	demo.Show(alone)
	demo.Quote(alone[0])

	fmt.Println("\nPOST /orders/{id}/pay: billing and the ledger are guests of orders, and others still wait")
	together := []*demo.Request{
		{Name: "B", What: "order 42", Path: "/orders/42/pay"},
		{Name: "C", What: "order 42", Path: "/orders/42/pay", After: workTime},
	}
	if err := demo.Collide(ctx, base, together); err != nil {
		return err
	}
	demo.Show(together)
	demo.Quote(together[0])
	fmt.Printf("\n%s\n", demo.Legend)
	return nil
}

// invitation returns the commands to try by hand.
func invitation(base string) string {
	return "curl -i -X POST " + base + "/orders/42/pay & curl -i -X POST " + base + "/orders/42/pay; wait"
}
