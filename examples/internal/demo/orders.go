package demo

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Orders makes requests collide in a shop that pays orders, and ships them after a wait of at most
// wait.
func Orders(ctx context.Context, base string, wait time.Duration) error {
	fmt.Println("\nPOST /orders/{id}/pay: while an order is busy, others get 409 at once")
	requests, err := collide(ctx, base, "pay", "A 42", "B 42", "C 42", "D 43")
	if err != nil {
		return err
	}
	Show(requests)
	fmt.Printf("\n%s\n", Legend)
	if i := slices.IndexFunc(requests, (*Request).Refused); i >= 0 {
		Quote(requests[i])
	}

	fmt.Printf("\nPOST /orders/{id}/ship: while an order is busy, others wait, %s at most\n", wait)
	requests, err = collide(ctx, base, "ship", "E 42", "F 42", "G 42")
	if err != nil {
		return err
	}
	Show(requests)
	return nil
}

// collide sends requests at the same time, given by name and order, and returns them with their
// answers.
func collide(ctx context.Context, base, action string, specs ...string) ([]*Request, error) {
	var requests []*Request
	for _, spec := range specs {
		name, order, _ := strings.Cut(spec, " ")
		requests = append(requests, &Request{Name: name, What: "order " + order, Path: "/orders/" + order + "/" + action})
	}
	if err := Collide(ctx, base, requests); err != nil {
		return nil, err
	}
	slices.SortFunc(requests, func(a, b *Request) int {
		return cmp.Or(
			cmp.Compare(a.What, b.What),
			cmp.Compare(a.Answer.StatusCode, b.Answer.StatusCode), // those that ran come first
			cmp.Compare(a.Waited, b.Waited),
		)
	})
	return requests, nil
}

// OrdersByHand returns the commands to try by hand.
func OrdersByHand(base string) string {
	pay := "curl -i -X POST " + base + "/orders/42/pay"
	return pay + " & " + pay + "; wait"
}
