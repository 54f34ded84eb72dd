package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/reqlock/reqlock/examples/internal/demo"
)

// demonstrate sends more requests for a report than may wait for it.
func demonstrate(ctx context.Context, base string) error {
	fmt.Printf("\nPOST /reports/{id}: while a report is being made, %d others wait for it, %s at most\n", maxWaiters, waitTime)
	var requests []*demo.Request
	for i, report := range []string{"daily", "daily", "daily", "daily", "weekly"} {
		requests = append(requests, &demo.Request{
			Name:  string(rune('A' + i)),
			What:  report,
			Path:  "/reports/" + report,
			After: time.Duration(i) * 50 * time.Millisecond,
		})
	}
	if err := demo.Collide(ctx, base, requests); err != nil {
		return err
	}
	demo.Show(requests)
	fmt.Printf("\n%s\n", demo.Legend)
	for _, problem := range []string{"queue-full", "wait-timeout"} {
		if i := slices.IndexFunc(requests, func(r *demo.Request) bool { return strings.Contains(string(r.Body), problem) }); i >= 0 {
			demo.Quote(requests[i])
		}
	}
	return nil
}

// invitation returns the commands to try by hand.
func invitation(base string) string {
	post := "curl -i -X POST " + base + "/reports/daily"
	return post + " & " + post + "; wait"
}
