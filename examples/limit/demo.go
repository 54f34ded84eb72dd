package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/reqlock/reqlock/examples/internal/demo"
)

// demonstrate sends eight exports of one tenant at the same time, and one of another.
func demonstrate(ctx context.Context, base string) error {
	fmt.Printf("\nPOST /{tenant}/exports: %d at a time for each tenant, others wait, %s at most\n", limit, waitTime)
	var requests []*demo.Request
	for i := range 9 {
		tenant := "acme"
		if i == 8 {
			tenant = "umbrella"
		}
		requests = append(requests, &demo.Request{Name: string(rune('A' + i)), What: tenant, Path: "/" + tenant + "/exports"})
	}
	if err := demo.Collide(ctx, base, requests); err != nil {
		return err
	}
	slices.SortFunc(requests, func(a, b *demo.Request) int {
		return cmp.Or(cmp.Compare(a.What, b.What), cmp.Compare(a.Waited, b.Waited))
	})
	demo.Show(requests)
	fmt.Printf("\n%s\n", demo.Legend)
	return nil
}

// invitation returns the commands to try by hand.
func invitation(base string) string {
	return "for i in 1 2 3 4; do curl -i -X POST " + base + "/acme/exports & done; wait"
}
