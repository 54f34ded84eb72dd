package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/reqlock/reqlock/examples/internal/demo"
)

// demonstrate makes requests collide on both routes.
func demonstrate(ctx context.Context, base string) error {
	fmt.Println("\nPOST /orders/{id}/pay: while an order is busy, others get 409 at once")
	requests, err := collide(ctx, base, "pay", "A 42", "B 42", "C 42", "D 43")
	if err != nil {
		return err
	}
	demo.Show(requests)
	fmt.Printf("\n%s\n", demo.Legend)
	if i := slices.IndexFunc(requests, (*demo.Request).Refused); i >= 0 {
		demo.Quote(requests[i])
	}

	fmt.Printf("\nPOST /orders/{id}/ship: while an order is busy, others wait, %s at most\n", waitTime)
	requests, err = collide(ctx, base, "ship", "E 42", "F 42", "G 42")
	if err != nil {
		return err
	}
	demo.Show(requests)
	return nil
}

// collide sends requests at the same time, given by name and order, and returns them with their
// answers.
func collide(ctx context.Context, base, action string, specs ...string) ([]*demo.Request, error) {
	var requests []*demo.Request
	for _, spec := range specs {
		name, order, _ := strings.Cut(spec, " ")
		requests = append(requests, &demo.Request{Name: name, What: "order " + order, Path: "/orders/" + order + "/" + action})
	}
	if err := demo.Collide(ctx, base, requests); err != nil {
		return nil, err
	}
	slices.SortFunc(requests, func(a, b *demo.Request) int {
		return cmp.Or(
			cmp.Compare(a.What, b.What),
			cmp.Compare(a.Answer.StatusCode, b.Answer.StatusCode), // those that ran come first
			cmp.Compare(a.Waited, b.Waited),
		)
	})
	return requests, nil
}

// invitation returns the commands to try by hand.
func invitation(base string) string {
	pay := "curl -i -X POST " + base + "/orders/42/pay"
	return pay + " & " + pay + "; wait"
}
