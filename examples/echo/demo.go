package main

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/reqlock/reqlock/examples/internal/demo"
)

const (
	lookers = 5
	buyers  = 20
)

// demonstrate sends many readers of an item at once, and then more buyers than there are pieces.
func demonstrate(ctx context.Context, base string) error {
	fmt.Printf("\nGET /items/:id: %d readers of an item come at once and share the lock\n", lookers)
	var lookAt []*demo.Request
	for i := range lookers {
		lookAt = append(lookAt, &demo.Request{Name: string(rune('A' + i)), What: "a kettle", Path: "/items/kettle", GET: true})
	}
	if err := demo.Collide(ctx, base, lookAt); err != nil {
		return err
	}
	demo.Show(lookAt)

	fmt.Printf("\nPOST /items/:id/buy: %d buyers come at once and run one after another\n", buyers)
	before, err := left(ctx, base)
	if err != nil {
		return err
	}
	var requests []*demo.Request
	for i := range buyers {
		requests = append(requests, &demo.Request{Name: string(rune('A' + i)), What: "a teapot", Path: "/items/teapot/buy"})
	}
	if err := demo.Collide(ctx, base, requests); err != nil {
		return err
	}
	slices.SortFunc(requests, func(a, b *demo.Request) int { return cmp.Compare(a.Waited, b.Waited) })
	demo.Show(requests)
	fmt.Printf("\n%s\n", demo.Legend)

	after, err := left(ctx, base)
	if err != nil {
		return err
	}
	answers := map[int]int{}
	for _, r := range requests {
		answers[r.Answer.StatusCode]++
	}
	sold, soldOut := answers[http.StatusOK], answers[http.StatusGone]
	fmt.Printf("\n  %d pieces before, %d sold, %d left; %d buyers got 410 sold out\n", before, sold, after, soldOut)
	if sold != before-after || sold+soldOut != buyers {
		return fmt.Errorf("of %d pieces, %d were sold and %d are left; the answers to %d buyers: %v", before, sold, after, buyers, answers)
	}
	return nil
}

// left returns how many pieces are left.
func left(ctx context.Context, base string) (n int, err error) {
	r := &demo.Request{Path: "/items/teapot", GET: true}
	if err := demo.Collide(ctx, base, []*demo.Request{r}); err != nil {
		return 0, err
	}
	if _, err := fmt.Sscanf(string(r.Body), "%d left", &n); err != nil {
		return 0, fmt.Errorf("GET %s: %s %q", r.Path, r.Answer.Status, strings.TrimSpace(string(r.Body)))
	}
	return n, nil
}

// invitation returns the commands to try by hand.
func invitation(base string) string {
	buy := "curl -i -X POST " + base + "/items/kettle/buy"
	return buy + " & " + buy + "; wait"
}
